package driver_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// No output has a lease ID, nor the State of a lease, which may be the lock's data, whatever struct it is in and whatever prints that.
// Package fmt, log/slog and the encoders do not call the methods of unexported fields.
func TestNothingPrintsALeaseID(t *testing.T) {
	const secret = "3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"
	type inner struct {
		lease    driver.Lease
		record   driver.Record
		request  driver.Request
		id       driver.LeaseID
		revision driver.Revision
		held     *driver.HeldError
		state    driver.LeaseState
	}
	type nested struct {
		inner    inner
		pointer  *inner
		list     []inner
		byID     map[driver.LeaseID]driver.Lease
		anything any
	}
	id, revision, state := driver.NewLeaseID(secret), driver.NewRevision(secret), driver.NewLeaseState(secret)
	if state.Content() != secret || state.IsZero() || (driver.LeaseState{}).Content() != "" || !driver.NewLeaseState("").IsZero() {
		t.Errorf("the State is %q", state.Content())
	}
	record := driver.Record{Name: "n", Revision: revision}
	in := inner{
		lease: driver.Lease{Name: "n", ID: id, State: state}, record: record, id: id, revision: revision, state: state,
		request: driver.Request{Name: "n", ID: id, TTL: time.Second, Replace: revision}, held: &driver.HeldError{Record: record},
	}
	out := nested{in, &in, []inner{in}, map[driver.LeaseID]driver.Lease{id: in.lease}, in}
	var b bytes.Buffer
	text := slog.New(slog.NewTextHandler(&b, nil))
	lines := slog.New(slog.NewJSONHandler(&b, nil))
	for _, v := range []any{id, revision, state, &state, in.lease, record, in.request, in, &in, out, &out, []any{out}, struct{ V nested }{out},
		map[string]driver.LeaseState{"a": state}, struct{ S driver.LeaseState }{state}} {
		for _, verb := range "vsqxXdobcUeEfFgGtpTw" {
			for _, flag := range []string{"", "+", "#", " ", "-60", "060"} {
				fmt.Fprintf(&b, "%"+flag+string(verb)+"\n", v)
			}
		}
		fmt.Fprintln(&b, v)
		text.Info("x", "v", v, slog.Group("g", "v", v))
		lines.Info("x", "v", v, slog.Group("g", "v", v))
		if data, err := json.Marshal(v); err == nil { // a map with such a key is refused
			b.Write(data)
		}
		_ = gob.NewEncoder(&b).Encode(v) // refused
	}
	if line, err := json.Marshal(in.lease); err != nil || strings.Contains(string(line), "State") {
		t.Errorf("a lease is %s, %v", line, err)
	}
	all := b.String()
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("%d", []byte(secret))[1:20],
		fmt.Sprintf("% x", secret)} {
		if i := strings.Index(strings.ToLower(all), strings.ToLower(form)); i >= 0 {
			t.Errorf("the ID is in …%q…", all[max(i-60, 0):min(i+60, len(all))])
		}
	}
	if !strings.Contains(all, `lease of "n"`) || !strings.Contains(all, "driver.LeaseID(lease ID)") {
		t.Error("nothing was printed")
	}
}

// An ID of any text reveals that text, whether it is a UUID in the usual form, in another one, or almost one. IDs of equal texts are equal.
func TestLeaseID(t *testing.T) {
	var none driver.LeaseID
	if none != driver.NewLeaseID("") || !none.IsZero() || none.Reveal() != "" || none.String() == driver.NewLeaseID("a").String() {
		t.Errorf("the zero value is %v with the text %q", none, none.Reveal())
	}
	const uuid = "3f1d9e0a-7a0e-4b52-9f7e-2f6f7c6a1b11"
	seen := map[driver.LeaseID]string{}
	for _, text := range []string{
		uuid, strings.ToUpper(uuid), "{" + uuid + "}", strings.ReplaceAll(uuid, "-", ""), strings.ReplaceAll(uuid, "-", "_"),
		uuid[:35], uuid[:35] + "g", uuid[:35] + "A", uuid[:35] + "0", uuid[:7] + "-" + uuid[8:], uuid + "1",
		"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "x", "",
	} {
		id := driver.NewLeaseID(text)
		same := driver.NewLeaseID(strings.Clone(text))
		if id.Reveal() != text || id != same || id.IsZero() != (text == "") || (driver.Lease{ID: id}) != (driver.Lease{ID: same}) {
			t.Errorf("the ID of %q reveals %q, or differs from another of the same text", text, id.Reveal())
		}
		if other, known := seen[id]; known {
			t.Errorf("%q and %q have the same ID", text, other)
		}
		seen[id] = text
	}
	if n := testing.AllocsPerRun(100, func() { driver.NewLeaseID(uuid) }); n > 0 {
		t.Errorf("an ID needs %v allocations", n)
	}
}
