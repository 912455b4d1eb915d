package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/completion"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
)

func TestCompletions(t *testing.T) {
	t.Setenv(envBackend, "")
	asked := ""
	names := func(backend, prefix string) []string {
		asked = backend + " " + prefix
		return []string{prefix + "-1", prefix + "-2"}
	}
	for _, c := range []struct {
		line, kind string
		want       []string
		asked      string
	}{
		{"", "values", []string{"run", "status", "ls", "watch"}, ""},
		{"sta", "values", []string{"status"}, ""},
		{"ma", "values", nil, ""}, // hidden
		{"run --tr", "values", []string{"--try"}, ""},
		{"run --backend az", "values", []string{"azblob://"}, ""},
		{"run --backend=az", "values", []string{"--backend=azblob://"}, ""},
		{"-b file:/x status job", "values", []string{"job-1", "job-2"}, "file:/x job"},
		{"--backend=file:/y ls job", "values", []string{"job-1", "job-2"}, "file:/y job"},
		{"run --ttl 5s -q job", "values", []string{"job-1", "job-2"}, " job"},
		{"run --ttl 5", "values", nil, ""},
		{"run -b file:/x --with job", "values", []string{"job-1", "job-2"}, "file:/x job"},
		{"run --with=job", "values", []string{"--with=job-1", "--with=job-2"}, " job"},
		{"watch a b", "values", []string{"b-1", "b-2"}, " b"},
		{"status a b", "values", nil, ""},
		{"run job ma", "commands", nil, ""},
		{"run job -- ma", "commands", nil, ""},
		{"run job -- make al", "commands", nil, ""},
		{"data ", "values", []string{"get", "set"}, ""},
		{"data set job", "values", []string{"job-1", "job-2"}, " job"},
		{"data set job val", "values", nil, ""},
		{"completion z", "values", []string{"zsh"}, ""},
		{"help ver", "values", []string{"version"}, ""},
		{"serve --token-file x", "files", nil, ""},
		{"nonsense more", "values", nil, ""},
	} {
		asked = ""
		found := completionsOf(strings.Split(c.line, " "), names)
		var got []string
		for _, v := range found.Values {
			got = append(got, v.Text)
		}
		if found.Kind != c.kind || !slices.Equal(got[:min(len(got), max(len(c.want), 1), 4)], c.want[:min(len(c.want), 4)]) || asked != c.asked {
			t.Errorf("%q: %s %q, asked for %q", c.line, found.Kind, got, asked)
		}
	}
}

// A backend that cannot be reached, or a URL that is none, completes nothing, and soon.
func TestCompletionWithoutABackend(t *testing.T) {
	for _, url := range []string{"mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=60000", "file:/dev/null/x", "mem:", "nonsense",
		"mongodb://user:secret@"} {
		t.Setenv(envBackend, url)
		var out bytes.Buffer
		if code := execute([]string{completion.Arg, "status", "x"}, &out, &out); code != 0 || out.String() != "values\n" {
			t.Errorf("%s: code %d, %q", url, code, &out)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out bytes.Buffer
		if code := execute([]string{"completion", shell}, &out, &out); code != 0 || !strings.Contains(out.String(), completion.Arg) {
			t.Errorf("%s: code %d, %q", shell, code, &out)
		}
	}
	var out bytes.Buffer
	if code := execute([]string{"completion", "tcsh"}, &out, &out); code != exitcode.Usage {
		t.Errorf("tcsh: code %d, %q", code, &out)
	}
}
