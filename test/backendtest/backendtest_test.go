package backendtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// TestMain runs the tests, or is the other process of [TestReach].
func TestMain(m *testing.M) {
	url := os.Getenv(envOther)
	if url == "" {
		serverprocess.Main(m)
	}
	answer, err := beOther(context.Background(), url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(answer)
}

// The drivers of this module can be opened where their descriptions say, and each test has a backend of its own.
func TestBackends(t *testing.T) {
	all, shared := Backends(driver.ReachProcess), Backends(driver.ReachMachines)
	for scheme, machines := range map[string]bool{"azblob": true, "file": false, "mem": false, "mongodb": true} {
		if all[scheme] == nil || (shared[scheme] != nil) != machines {
			t.Errorf("%s is one of all: %v, of those that machines share: %v", scheme, all[scheme] != nil, shared[scheme] != nil)
		}
	}
	left := 0
	if testing.Short() {
		left = len(longOnly)
	}
	if len(all)+left != len(driver.Drivers()) {
		t.Errorf("%d backends of %d drivers", len(all), len(driver.Drivers()))
	}
	for scheme, url := range all {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			first, second := url(t), url(t)
			if d, _ := driver.Describe(first); first == second && d.Reach != driver.ReachProcess {
				t.Error("two backends have one URL")
			}
			l, err := driver.Open(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// A driver that does not say how a test opens it, or whose server is missing, fails a test.
func TestNoBackend(t *testing.T) {
	const variable = "HOLDFAST_TEST_NEW_URL"
	t.Setenv(variable, "")
	for testURL, want := range map[string]string{"": "TestURL in its description is empty", "$" + variable: "in " + variable} {
		fake := &failure{TB: t}
		func() {
			defer func() { _ = recover() }() // Fatalf ends the function
			url(fake, driver.Description{Name: "new", TestURL: testURL})
		}()
		if !strings.Contains(fake.text, want) {
			t.Errorf("%q: %q", testURL, fake.text)
		}
	}
	t.Setenv(variable, "new://host")
	if got := url(t, driver.Description{TestURL: "$" + variable}); got != "new://host" {
		t.Error(got)
	}
}

// failure keeps the text of Fatalf.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f.text)
}
