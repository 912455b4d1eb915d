package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
)

// parsed is what the parser made of a command line.
type parsed struct {
	cli
	command string // empty if the parser showed the help or the version
}

// exited ends the parser after it has shown the help or the version.
type exited struct{}

// parse parses a command line as execute does.
func parse(t *testing.T, args []string) (p parsed, err error) {
	t.Helper()
	defer func() {
		r := recover()
		if _, ok := r.(exited); r != nil && !ok {
			panic(r)
		}
	}()
	ctx, err := newParser(&p.cli, io.Discard, io.Discard, func() { panic(exited{}) }).Parse(args)
	if err == nil {
		p.command = strings.Fields(ctx.Command())[0]
	}
	return p, err
}

// FuzzCommandLine parses command lines, one argument a line. A password in any argument is never
// in the error or in the lock's name, and the flags of an accepted command line are in range.
func FuzzCommandLine(f *testing.F) {
	f.Add("-b\n", "\nrun\n--ttl\n15s\nname\n--\nsleep\n1")
	f.Add("run\n--backend=", "\n--wait=0s\n--slots=3\n-E1\nname\ntrue")
	f.Add("status\n", "\n--json")
	f.Add("run\n--owner\n", "\nx\n--\ny")
	f.Add("run\n", "\n--\ncommand")
	f.Add("run\n--ttl=", "")
	f.Add("--", "\n--help")
	f.Add("bench\n-x", "=1")
	f.Add("ls\n--wait 1ms\n", "\"\\")
	f.Setenv(envBackend, "")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "s3cr3t-0f-7h3-u53r"
		p, err := parse(t, strings.Split(before+"mongodb://user:"+secret+"@db/app"+after, "\n"))
		if err != nil {
			if message := backends.Redact(err.Error()); strings.Contains(message, secret) || message == "" {
				t.Errorf("the password is in %s", message)
			}
			return
		}
		if strings.Contains(p.Run.Name+p.Status.Name, secret) {
			t.Errorf("the password is in the lock's name, %s%s", p.Run.Name, p.Status.Name)
		}
		if r := p.Run; p.command == "run" {
			durations := []time.Duration{r.TTL, r.Grace, r.MinHold, r.KillAfter}
			if r.Wait != nil {
				durations = append(durations, *r.Wait)
			}
			for _, d := range durations {
				if d < 0 {
					t.Errorf("a duration is %v: %+v", d, r)
				}
			}
			if len(r.Command) == 0 || r.Command[0] == "" || r.ConflictExitCode < 0 || r.ConflictExitCode > 255 || r.Wait != nil && *r.Wait == 0 &&
				!r.Try {
				t.Errorf("%+v is accepted", r)
			}
		}
	})
}

// FuzzFlagValues compares the values of flags with the packages that parse them.
func FuzzFlagValues(f *testing.F) {
	for _, value := range []string{"90s", "1m30s", "0", "0s", "-1s", "1e3", "5", "1h ", "9223372036854775807ns", "2562048h", "", "\x00",
		"0x10", "-", "--"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		d, invalid := time.ParseDuration(value)
		for flag, get := range map[string]func(parsed) time.Duration{
			"--ttl":      func(p parsed) time.Duration { return p.Run.TTL },
			"--min-hold": func(p parsed) time.Duration { return p.Run.MinHold },
		} {
			p, err := parse(t, []string{"run", flag + "=" + value, "name", "command"})
			allowed := invalid == nil && (d > 0 || d == 0 && flag == "--min-hold")
			if allowed != (err == nil) || allowed && get(p) != d {
				t.Errorf("%s=%q is %v, error %v", flag, value, get(p), err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), flag+": ") {
				t.Errorf("%s=%q: the error does not begin with the flag: %v", flag, value, err)
			}
		}
		p, err := parse(t, []string{"run", "-E=" + value, "name", "command"})
		if err == nil && (p.Run.ConflictExitCode < 0 || p.Run.ConflictExitCode > 255) {
			t.Errorf("-E=%q is %d", value, p.Run.ConflictExitCode)
		}
	})
}
