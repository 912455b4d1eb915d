package lockrecord_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
	"github.com/holdfast-go/holdfast/driver/lockstate"
)

type record struct {
	Version int `json:"version"`
	lockrecord.Stored
}

func TestDecode(t *testing.T) {
	const whole = `{"version":3,"owner":"me","token":7,"ttlNanoseconds":1,"expiresNanoseconds":2,` +
		`"acquiredAt":"2026-01-02T15:04:05Z","renewedAt":"2026-01-02T15:04:05Z","renewals":0}`
	for content, want := range map[string]string{
		whole:                               "",
		" ":                                 "it is empty",
		whole + "{}":                        "there is more after the record",
		`{"version":4,"kind":1}`:            "it has version 4, and this program knows only 3: see docs/upgrading.md",
		strings.Replace(whole, "3", "2", 1): "it has version 2, and this program knows only 3: see docs/upgrading.md",
		strings.Replace(whole, "owner", "kind", 1): "unknown field",
	} {
		var rec record
		if err := lockrecord.Decode([]byte(content), &rec, &rec.Version, 3); want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

// Whatever a damaged record has, its error fits into a log.
func TestDecodeErrorIsShort(t *testing.T) {
	long := strings.Repeat("é", 1<<19)
	for _, content := range []string{
		`{"version":3,"` + long + `":1}`,
		`{"version":3,"token":1` + strings.Repeat("0", 1<<20) + `}`,
		`{"version":3,"acquiredAt":"` + long + `"}`,
		`{"version":3,"owner":"a"}` + long,
		long,
	} {
		var rec record
		err := lockrecord.Decode([]byte(content), &rec, &rec.Version, 3)
		if err == nil || len(err.Error()) > 300 || !utf8.ValidString(err.Error()) {
			t.Errorf("%.40s: an error of %d bytes: %.400v", content, len(fmt.Sprint(err)), err)
		}
	}
}

func TestCheck(t *testing.T) {
	at := time.UnixMilli(1)
	for want, lock := range map[string]lockstate.Lock{
		"":                  {Token: lockrecord.LastToken - 1, AcquiredAt: at},
		"no token":          {AcquiredAt: at},
		"out of range":      {Token: lockrecord.LastToken, AcquiredAt: at},
		"no TTL":            {Token: 1, AcquiredAt: at, Holder: "x"},
		"when the lock was": {Token: 1},
	} {
		s := lockrecord.Stored{Lock: lock}
		if err := s.Check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", lock, err, want)
		}
	}
}

// A shared lock of which a reader cannot be read must not be granted to a writer.
func TestCheckOfReaders(t *testing.T) {
	reader := func(token uint64) lockstate.Reader {
		return lockstate.Reader{Holder: "x", Token: token, TTL: time.Second, Expires: time.Duration(token)}
	}
	whole := lockstate.Lock{Holder: lockstate.Shared, Token: 9, TTL: time.Second, Expires: 7, AcquiredAt: time.UnixMilli(1),
		Readers: []lockstate.Reader{reader(5), reader(7)}}
	for name, c := range map[string]struct {
		spoil func(k *lockstate.Lock)
		want  string
	}{
		"whole":                   {func(*lockstate.Lock) {}, ""},
		"no readers":              {func(k *lockstate.Lock) { k.Readers = nil }, "shared by nobody"},
		"exclusive, with readers": {func(k *lockstate.Lock) { k.Holder = "x" }, "is not shared"},
		"free, with readers":      {func(k *lockstate.Lock) { k.Holder = "" }, "is not shared"},
		"a reader is missing":     {func(k *lockstate.Lock) { k.Readers = k.Readers[:1] }, "last reader"},
		"no holder":               {func(k *lockstate.Lock) { k.Readers[0].Holder = "" }, "reader 1"},
		"no TTL":                  {func(k *lockstate.Lock) { k.Readers[1].TTL = 0 }, "reader 2"},
		"no token":                {func(k *lockstate.Lock) { k.Readers[0].Token = 0 }, "reader 1"},
		"a token twice":           {func(k *lockstate.Lock) { k.Readers[1].Token = 5 }, "reader 2"},
		"a token to come":         {func(k *lockstate.Lock) { k.Token = 6 }, "reader 2"},
	} {
		s := lockrecord.Stored{Lock: whole}
		s.Readers = slices.Clone(whole.Readers)
		c.spoil(&s.Lock)
		if err := s.Check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A history stays what it was through its text, whichever part of it is kept.
func TestHistoryText(t *testing.T) {
	var all []driver.Tenure
	for i := range 5 {
		all = append(all, driver.Tenure{Owner: string(rune('a' + i)), Token: uint64(i + 1), From: time.UnixMilli(int64(i)).UTC(),
			End: driver.EndReleased})
	}
	for keep := range 7 {
		s := lockrecord.Stored{Past: driver.FormatHistory(all[:4])}
		s.ReadHistory()
		s.History = append(s.History, all[4])
		s.KeepTenures(keep)
		want := driver.FormatHistory(all[max(0, 5-keep):])
		if got := s.HistoryText(); got != want || driver.FormatHistory(s.Tenures()) != want {
			t.Errorf("%d kept of 5: %q and %+v, want %q", keep, got, s.Tenures(), want)
		}
	}
}
