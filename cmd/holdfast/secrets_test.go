package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
)

// The command's environment is without the credentials of this backend, unless --keep-env is given.
func TestEnvironmentWithoutAWSVariables(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "sEcReT")
	client, err := holdfast.Open(t.Context(), "mem:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Shutdown(context.WithoutCancel(t.Context())) })
	hold, err := client.TryLock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	const aws = "mongodb://h/app?authMechanism=MONGODB-AWS"
	for _, c := range []struct {
		backend string
		keep    bool
		want    bool
	}{{aws, false, false}, {aws, true, true}, {"mongodb://h/app", false, true}} {
		r := &runner{runCmd: &runCmd{KeepEnv: c.keep}, backend: c.backend}
		if got := slices.Contains(r.environment(held{lease: hold, first: hold}), "AWS_SECRET_ACCESS_KEY=sEcReT"); got != c.want {
			t.Errorf("with %s and --keep-env=%t the command inherits the key: %t", c.backend, c.keep, got)
		}
	}
}

// The command that explain shows for a lock whose name begins with a dash can be pasted.
func TestExplainOfANameWithADash(t *testing.T) {
	store := "file:" + filepath.ToSlash(t.TempDir())
	client, err := holdfast.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Shutdown(context.Background()) }()
	hold, err := client.Lock(t.Context(), "-dash")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	a := &app{backend: store, stdout: &out, log: messages.NewLog(io.Discard, false, false)}
	if err := (&explainCmd{Name: "-dash"}).Run(a); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("holdfast break --token %d -- -dash\n", hold.Token())
	if !strings.Contains(out.String(), want) {
		t.Fatalf("want %s in\n%s", want, out.String())
	}
	var flags cli
	parser := newParser(&flags, io.Discard, io.Discard, func() {})
	if _, err := parser.Parse(strings.Fields(want)[1:]); err != nil || flags.Break.Name != "-dash" || *flags.Break.Token != hold.Token() {
		t.Errorf("%v; %+v", err, flags.Break)
	}
}

// explain repeats --backend in the commands that it shows, but no secret.
func TestExplainRepeatsNoSecret(t *testing.T) {
	store := "file:" + filepath.ToSlash(t.TempDir())
	client, err := holdfast.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Shutdown(context.Background()) }()
	if _, err := client.Lock(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	for flag, shown := range map[string]bool{"mongodb://db1/app": true, "mongodb://app@db1/app": true, "mongodb://app:pw@db1/app": false} {
		var out strings.Builder
		a := &app{backend: store, backendFlag: flag, stdout: &out, log: messages.NewLog(io.Discard, false, false)}
		if err := (&explainCmd{Name: "job"}).Run(a); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, flag) != shown || !strings.Contains(text, "holdfast break") || strings.Contains(text, "pw") {
			t.Errorf("with --backend %s:\n%s", flag, text)
		}
	}
}
