package tools

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A program in place of gotestsum that writes what go test says into the same file.
const summary = `#!/bin/sh
for flag; do
	case $flag in --jsonfile=*) file=${flag#*=} ;; --packages=*) packages=${flag#*=} ;; esac
	shift
	[ "$flag" != -- ] || break
done
echo "test $*" >>"$RUNS"
${GO:-go} test -json "$@" $packages >"$file"
`

const calm = `package calm
import "testing"
func TestCalm(t *testing.T) {}
`

// The first process of these tests ends in a way that the test adds; the next one passes.
const broken = `package broken
import ("os"; "runtime"; "syscall"; "testing"; "testing/synctest")
func TestBroken(t *testing.T) {
	if _, err := os.Stat(os.Getenv("RUNS") + ".broken"); err == nil { return }
	os.WriteFile(os.Getenv("RUNS") + ".broken", nil, 0o600)
	end(t)
}
func crash() {
	runtime.LockOSThread()
	syscall.Syscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSEGV))
	select {}
}
var _, _ = synctest.Test, crash
`

// Every stage of the tests runs, whatever the ones before it have found, and the end says which packages have failed.
func TestEveryStageRuns(t *testing.T) {
	script, err := os.ReadFile("test.sh")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	runs := filepath.Join(folder, "runs")
	const withServers = "import (\"testing\"; _ \"example.test/test/serverprocess\")\n"
	for name, content := range map[string]string{
		"go.mod":                        "module example.test\n\ngo 1.25\n",
		"test.sh":                       string(script),
		"summary":                       summary,
		"test/serverprocess/process.go": "package serverprocess\n",
		"red/red_test.go":               "package red\nimport \"testing\"\nfunc TestRed(t *testing.T) { t.Error(\"red\") }\n",
		"calm/calm_test.go":             calm,
		"promise/promise_test.go":       "package promise\n" + withServers + "func TestPromise(t *testing.T) { t.Error(\"red\") }\n",
		"server/server_test.go":         "package server\n" + withServers + "func TestServer(*testing.T) {}\n",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "bash", "test.sh", "", "-short")
	command.Dir = folder
	command.Env = append(os.Environ(), "GOTESTSUM="+filepath.Join(folder, "summary"), "RUNS="+runs)
	output, err := command.CombinedOutput()
	list, _ := os.ReadFile(runs)
	if err == nil || strings.Count(string(list), "\n") != 3 {
		t.Errorf("the run ended with %v after these stages:\n%s%s", err, list, output)
	}
	_, end, _ := strings.Cut(string(output), "--- failed:")
	for _, want := range []string{"without servers, with the race detector: example.test/red \n",
		"what is never repeated: example.test/promise \n"} {
		if !strings.Contains(end, want) {
			t.Errorf("the end does not say %q:\n%s", want, output)
		}
	}
	if strings.Contains(end, "calm") || strings.Contains(end, "the rest") || strings.Contains(string(output), "all tests passed") {
		t.Errorf("the end says too much:\n%s", output)
	}
}

// Only a crash of the race detector inside testing/synctest is a reason to run tests without servers once more, and then only
// the packages that it ended.
func TestOnlyCrashesAreRepeated(t *testing.T) {
	script, err := os.ReadFile("test.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, end string
		repeated  bool
	}{
		{"a crash inside synctest", `synctest.Test(t, func(*testing.T) { crash() })`, true},
		{"a crash elsewhere", `crash()`, false},
		{"a failed test", `synctest.Test(t, func(t *testing.T) { t.Error("two holders") })`, false},
		{"a failed test before a crash", `t.Run("first", func(t *testing.T) { t.Fail() })
			synctest.Test(t, func(*testing.T) { crash() })`, false},
		{"a panic", `synctest.Test(t, func(*testing.T) { panic("two holders") })`, false},
		{"a data race before a crash", `n := 0
			done := make(chan bool)
			go func() { n++; close(done) }()
			n++
			<-done
			synctest.Test(t, func(*testing.T) { crash() })`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			runs := filepath.Join(folder, "runs")
			for name, content := range map[string]string{
				"go.mod":                "module example.test\n\ngo 1.25\n",
				"test.sh":               string(script),
				"summary":               summary,
				"calm/calm_test.go":     calm,
				"broken/broken_test.go": broken + "func end(t *testing.T) { " + test.end + " }\n",
			} {
				path := filepath.Join(folder, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.CommandContext(t.Context(), "bash", "test.sh", "", "-short", "-run=TestBroken|TestCalm")
			command.Dir = folder
			command.Env = append(os.Environ(), "GOTESTSUM="+filepath.Join(folder, "summary"), "RUNS="+runs)
			output, err := command.CombinedOutput()
			if (err == nil) != test.repeated {
				t.Errorf("the run ended with %v\n%s", err, output)
			}
			list, err := os.ReadFile(runs)
			if err != nil {
				t.Fatal(err, string(output))
			}
			lines := strings.Split(string(bytes.TrimSpace(list)), "\n")
			want := 1
			if test.repeated {
				want = 2
			}
			if len(lines) != want || !strings.Contains(lines[0], "example.test/calm") {
				t.Fatalf("runs: %q, want %d of them\n%s", lines, want, output)
			}
			if test.repeated && (strings.Contains(lines[1], "calm") || !strings.Contains(lines[1], "example.test/broken") ||
				!strings.Contains(lines[1], "-short -run=TestBroken|TestCalm")) {
				t.Errorf("the second run is %q, want the broken package alone, with the same flags", lines[1])
			}
			if said := strings.Contains(string(output), "once more: example.test/broken"); said != test.repeated {
				t.Errorf("the output names the package: %v, want %v\n%s", said, test.repeated, output)
			}
		})
	}
}
