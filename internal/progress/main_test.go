package main

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each case is a stream of events and what is printed for it.
func TestShow(t *testing.T) {
	for _, c := range []struct{ name, events, want, wantErr string }{
		{"a test passes", `
{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"chatter\n"}
{"Action":"pass","Package":"a","Test":"TestX","Elapsed":0}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a","Elapsed":0.1}`, "ok  \ta\t0.1s\n", ""},
		{"a test fails", `
{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:3: wrong\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"--- FAIL: TestX (0.00s)\n"}
{"Action":"fail","Package":"a","Test":"TestX","Elapsed":0}
{"Action":"output","Package":"a","Output":"FAIL\ta\t0.1s\n"}
{"Action":"fail","Package":"a","Elapsed":0.1}`, "    x_test.go:3: wrong\n--- FAIL: TestX (0.00s)\nFAIL\ta\t0.1s\n", "1 of 1 packages failed"},
		{"a test is cut off", `
{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Test":"TestX","Output":"panic: no\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t0.1s\n"}
{"Action":"fail","Package":"a","Elapsed":0.1}`, "FAIL\ta\t0.1s\npanic: no\n", "1 of 1 packages failed"},
		{"it does not compile", `
{"ImportPath":"a.test","Action":"build-output","Output":"a.go:1: wrong\n"}
{"ImportPath":"a.test","Action":"build-fail"}
{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Output":"FAIL\ta [build failed]\n"}
{"Action":"fail","Package":"a","FailedBuild":"a.test"}`, "a.go:1: wrong\nFAIL\ta [build failed]\n", "1 of 1 packages failed"},
		{"the go command fails", "go: no such thing", "go: no such thing\n", "no package was tested"},
	} {
		var out strings.Builder
		err := show(strings.NewReader(strings.TrimSpace(c.events)), &out, nil)
		if out.String() != c.want {
			t.Errorf("%s: it prints %q, want %q", c.name, out.String(), c.want)
		}
		if got := errorText(err); got != c.wantErr {
			t.Errorf("%s: the error is %q, want %q", c.name, got, c.wantErr)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Running packages are printed at every interval.
func TestRunningPackages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, events := io.Pipe()
		ticks := time.NewTicker(reportEvery)
		defer ticks.Stop()
		var out strings.Builder
		done := make(chan error)
		go func() { done <- show(in, &out, ticks.C) }()
		time.Sleep(reportEvery + time.Second)
		for _, e := range []string{`{"Action":"start","Package":"a"}`, `{"Action":"start","Package":"b"}`, `{"Action":"pass","Package":"a"}`} {
			if _, err := io.WriteString(events, e+"\n"); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(reportEvery)
		events.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := "... 30s: compiling\n... 1m0s: b\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}
