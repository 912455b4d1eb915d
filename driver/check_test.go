package driver_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

var errOpenedForCheck = errors.New("the driver was called for a check")

func init() {
	plain := described("plain")
	plain.OpenForCheck = nil
	driver.Register(plain)
}

// A backend is opened for a check as its driver has registered, or else as always.
func TestOpenForCheck(t *testing.T) {
	for url, want := range map[string]error{
		"registered:x": errOpenedForCheck, "REGISTERED://host/path": errOpenedForCheck, "plain:x": errOpened, "unknown:x": driver.ErrInvalid,
		"": driver.ErrInvalid,
	} {
		if _, err := driver.OpenForCheck(t.Context(), url); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", url, err, want)
		}
	}
}

// A finding survives JSON, and its level is a word there.
func TestFindingJSON(t *testing.T) {
	for level, word := range map[driver.Level]string{driver.LevelOK: "ok", driver.LevelUnchecked: "not checked",
		driver.LevelDoubtful: "doubtful", driver.LevelWrong: "wrong"} {
		f := driver.Finding{Subject: "TTL index", Level: level, Detail: "d"}
		text, err := json.Marshal(f)
		if want := `{"subject":"TTL index","level":"` + word + `","detail":"d"}`; err != nil || string(text) != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
		var back driver.Finding
		if err := json.Unmarshal(text, &back); err != nil || back != f {
			t.Errorf("%s became %+v, %v", text, back, err)
		}
	}
	var l driver.Level
	if err := json.Unmarshal([]byte(`"bad"`), &l); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an unknown level: %v", err)
	}
	if got := driver.Level(9).String(); got != "level 9" {
		t.Errorf("an unknown level is %q", got)
	}
}
