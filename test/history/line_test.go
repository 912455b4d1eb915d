package history

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// The stacks of many leaked goroutines make a long line.
func TestLongLine(t *testing.T) {
	want := []Line{{At: 1, Kind: Exit, Value: 99, Note: strings.Repeat("goroutine 7 [chan receive]:\n", 10_000)}, {At: 2, Kind: Fault}}
	var b bytes.Buffer
	if err := WriteLines(&b, want); err != nil {
		t.Fatal(err)
	}
	if got, err := parseLines(b.Bytes()); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d lines, error %v", len(got), err)
	}
}

// FuzzLines checks that the lines of a file are written back as they are, and that a file that ends
// in the middle of a line has all lines before it.
func FuzzLines(f *testing.F) {
	var b bytes.Buffer
	if err := WriteLines(&b, []Line{
		{At: 1, Client: 2, Process: 3, Kind: Live, ID: 4, Token: 5, ErrNil: 6},
		{At: 7, Kind: Set, Value: -1, Base: 1 << 62, Found: 9}, {At: Never, Kind: Exit, Note: "<\u2028>\n"},
	}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), uint(0))
	f.Add(b.Bytes(), uint(90))
	f.Add([]byte("{}\n[]\n"), uint(3))
	f.Add([]byte("{\"At\":1e3}\r\n{\"note\":\"\xff\"}\n"), uint(5))
	f.Fuzz(func(t *testing.T, content []byte, cut uint) {
		lines, err := parseLines(content)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteLines(&b, lines); err != nil {
			t.Fatalf("%+v: %v", lines, err)
		}
		if again, err := parseLines(b.Bytes()); err != nil || !slices.Equal(lines, again) {
			t.Errorf("%+v comes back as %+v, error %v", lines, again, err)
		}
		part, err := parseLines(b.Bytes()[:cut%uint(b.Len()+1)])
		if whole := bytes.Count(b.Bytes()[:cut%uint(b.Len()+1)], []byte("\n")); err != nil || !slices.Equal(part, lines[:whole]) {
			t.Errorf("cut at %d: %+v, error %v", cut, part, err)
		}
	})
}

// FuzzMerge builds a history of few processes, IDs and tokens from random lines, six bytes each.
// Merge accepts it whatever the order of its lines, and Check gives the same report each time.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{0, 1, 1, 5, 0, 0, 1, 1, 1, 5, 0, 0, 1, 1, 1, 5, 9, 0, 0, 2, 2, 6, 0, 0, 1, 2, 2, 6, 0, 0}, uint8(1))
	f.Add([]byte{2, 1, 1, 5, 7, 0, 3, 1, 1, 5, 7, 0, 2, 2, 1, 4, 8, 2, 3, 2, 1, 4, 8, 2, 4, 1, 0, 5, 1, 0, 5, 1, 0, 0, 0, 0}, uint8(3))
	f.Add([]byte{6, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0, 0, 9, 1, 0, 0, 0, 0, 10, 2, 0, 0, 9, 9}, uint8(0))
	kinds := []Kind{Ask, Live, Call, Return, Exit, Set, Pause, Resume, Skew, Unskew, Stall, Fault, Grant, Quit}
	outcomes := []Outcome{OK, Refused, Failed, Unknown}
	f.Fuzz(func(t *testing.T, steps []byte, shift uint8) {
		const most = 40
		var lines []Line
		for at := time.Duration(0); len(steps) >= 6 && len(lines) < most; steps = steps[6:] {
			at += time.Millisecond // no two lines at one time, so that their order is certain
			lines = append(lines, Line{
				At: at, Kind: kinds[int(steps[0])%len(kinds)], Process: int(steps[1] % 4), Client: int(steps[1] % 4), ID: uint64(steps[2] % 4),
				Queued: steps[4]%2 == 0, Op: []Op{Write, Read}[steps[5]%2], Key: "r", Token: uint64(steps[3] % 8), Value: int64(steps[4]),
				Base: int64(steps[4] % 3), Found: int64(steps[5] % 3),
				Outcome: outcomes[steps[5]/2%4], ErrNil: at - time.Duration(steps[4])*time.Microsecond*20,
				Until: at + time.Duration(steps[4])*time.Millisecond,
			})
		}
		h, err := Merge(lines)
		if err != nil {
			return
		}
		var moved []Line
		if n := len(lines); n > 0 {
			moved = append(slices.Clone(lines[int(shift)%n:]), lines[:int(shift)%n]...)
			slices.Reverse(moved[:n/2])
		}
		again, err := Merge(moved)
		if err != nil || len(again.Holds) != len(h.Holds) || !slices.Equal(again.Operations, h.Operations) {
			t.Fatalf("%+v\nin another order is\n%+v, error %v", h, again, err)
		}
		r, second := Check(h), Check(again)
		if len(r.Violations) != len(second.Violations) || !reflect.DeepEqual(r.Faults, second.Faults) || r.Vacancy != second.Vacancy ||
			r.String() != second.String() {
			t.Errorf("%+v\nis checked as\n%v%v\nand\n%v%v", h, r, r.Err(), second, second.Err())
		}
		total := 0
		for _, rule := range Rules {
			total += r.Count(rule)
		}
		if total != len(r.Violations) || (r.Err() == nil) != (total == 0) || r.Vacancy < 0 || r.Grants != len(h.Holds) {
			t.Errorf("%d violations in %+v", total, r)
		}
	})
}

// A file of another kind is an error that names it.
func TestForeignFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x"+Suffix)
	if err := os.WriteFile(path, []byte("{}\nnot JSON\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadLines(dir); err == nil || !strings.Contains(err.Error(), path+", line 2: ") {
		t.Errorf("error %v", err)
	}
	if _, err := LoadLines(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
