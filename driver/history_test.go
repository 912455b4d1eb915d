package driver_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var everyEnd = []driver.End{driver.EndUnknown, driver.EndReleased, driver.EndHandedOver, driver.EndExpired,
	driver.EndTakenOver, driver.EndBroken, driver.EndFreed}

// Every end has a text of its own, and comes back from the form that stores keep.
func TestHistoryText(t *testing.T) {
	from := time.UnixMilli(1_767_366_245_123).UTC()
	var history []driver.Tenure
	texts := map[string]bool{}
	for i, end := range everyEnd {
		history = append(history, driver.Tenure{Owner: "host/1 é,;%\x00\n" + end.String(), Token: uint64(i + 1), From: from,
			Until: from.Add(time.Minute), End: end})
		texts[end.String()] = true
	}
	history = append(history, driver.Tenure{Token: 1<<64 - 1})
	if len(texts) != len(everyEnd) || driver.End(99).String() != "unknown" {
		t.Errorf("the texts of the ends are %v", texts)
	}
	text := driver.FormatHistory(history)
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
		t.Errorf("%q is not printable ASCII", text)
	}
	if got := driver.ParseHistory(text); !slices.Equal(got, history) {
		t.Errorf("%+v comes back as %+v", history, got)
	}
	for i := range history {
		history[i].Mode = driver.Shared
	}
	if got := driver.ParseHistory(driver.FormatHistory(history)); !slices.Equal(got, history) {
		t.Errorf("the shared %+v comes back as %+v", history, got)
	}
	if got := driver.ParseHistory(driver.FormatHistory([]driver.Tenure{{Token: 1, End: 99}})); len(got) != 1 ||
		got[0].End != driver.EndUnknown {
		t.Errorf("an end of a later version comes back as %+v", got)
	}
}

// What is damaged is left out, and the rest is read.
func TestDamagedHistory(t *testing.T) {
	const good = "7;-2;1;r;me"
	if got := driver.ParseHistory(good)[0]; got.Token != 7 || got.From.UnixMilli() != 5 || got.Until.UnixMilli() != 6 {
		t.Errorf("got %+v", got)
	}
	for _, bad := range []string{
		"", "x", "7;5;6;r", "7;5;6;r;me;more", "0;5;6;r;me", "-7;5;6;r;me", "?;5;6;r;me", "7;?;6;r;me", "7;5;?;r;me", "7;5;6;r;%zz",
		"7;5;6;r;%ff",
		"7;zzzzzzzzzzz;6;r;me", "7;5;-zzzzzzzzzzz;r;me", "7;5;6;r;" + strings.Repeat("m", 1025),
	} {
		got := driver.ParseHistory(good + "," + bad + "," + good)
		if len(got) != 2 || got[0] != got[1] || got[0].Owner != "me" || got[0].End != driver.EndReleased {
			t.Errorf("%q between two good ones: %+v", bad, got)
		}
	}
	many := strings.Repeat("1;5;6;r;old,", 5) + strings.Repeat(good+",", driver.MaxHistory)
	if got := driver.ParseHistory(many); len(got) != driver.MaxHistory || got[0].Token != 7 {
		t.Errorf("%d of a history that is too long, the first with token %d", len(got), got[0].Token)
	}
}

func TestHistoryParam(t *testing.T) {
	for text, want := range map[string]int{"": driver.DefaultHistory, "history=0": 0, "history=32": 32, "history=3&x=y": 3} {
		query, _ := url.ParseQuery(text)
		if got, err := driver.HistoryParam(query); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"history=33":      `URL parameter history 33 is invalid: must be a number of past holders from 0 to 32`,
		"history=-1":      `URL parameter history -1 is invalid: must be a number of past holders from 0 to 32`,
		"history=":        `URL parameter history "" is invalid: must be a number of past holders from 0 to 32`,
		"history=ss@host": `URL parameter history with an @ is invalid: must be a number of past holders from 0 to 32`,
		"history=8x":      `URL parameter history "8x" is invalid: must be a number of past holders from 0 to 32`,
	} {
		query, _ := url.ParseQuery(text)
		_, err := driver.HistoryParam(query)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// FuzzHistory reads any text, and reads what it has read once more.
func FuzzHistory(f *testing.F) {
	f.Add("7;5;6;r;me,8;;;?;%00")
	f.Add(";;;;,-1;1;1;rr;x")
	f.Fuzz(func(t *testing.T, text string) {
		first := driver.ParseHistory(text)
		if len(first) > driver.MaxHistory {
			t.Fatalf("%d tenures", len(first))
		}
		if again := driver.ParseHistory(driver.FormatHistory(first)); !slices.Equal(again, first) {
			t.Errorf("%+v comes back as %+v", first, again)
		}
		if _, err := json.Marshal(driver.Record{History: first}); err != nil {
			t.Errorf("%+v: %v", first, err)
		}
	})
}
