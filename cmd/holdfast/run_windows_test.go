package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The test binary has these roles if one of them is its first argument.
const (
	roleLeaver   = "role:leaver"   // starts roleLeftover, and ends with code 3
	roleLeftover = "role:leftover" // waits
)

// mainVar makes the test binary the command itself.
const mainVar = "HOLDFAST_TEST_MAIN"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case roleLeaver:
			if exec.Command(os.Args[0], roleLeftover).Start() != nil {
				os.Exit(1)
			}
			os.Exit(3)
		case roleLeftover:
			time.Sleep(2 * patience)
			os.Exit(1)
		}
	}
	if os.Getenv(mainVar) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The command runs under a lock of a folder, and its exit code is that of holdfast.
func TestRunOnWindows(t *testing.T) {
	locks := "file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "locks"))
	run := exec.Command(os.Args[0], "run", "--backend", locks, "job", "--", os.Args[0], roleLeaver)
	run.Env = append(os.Environ(), mainVar+"=1")
	out, err := run.CombinedOutput()
	if run.ProcessState == nil || run.ProcessState.ExitCode() != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
}
