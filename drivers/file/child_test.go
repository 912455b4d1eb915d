package file

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"
)

// Tests with several processes run the test program again, with a task in its environment.
const taskVar = "HOLDFAST_FILE_TEST_TASK"

// tasks are what a child process can do in a folder.
var tasks = map[string]func(dir string) error{}

func TestMain(m *testing.M) {
	task := os.Getenv(taskVar)
	if task == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := tasks[task](os.Args[1]); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// child returns a command that does a task. It ends with the test.
func child(t *testing.T, task, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, dir)
	cmd.Env = append(os.Environ(), taskVar+"="+task)
	return cmd
}

// startWhenReady starts a child and waits for its first line.
func startWhenReady(t *testing.T, task, dir string) *exec.Cmd {
	t.Helper()
	cmd := child(t, task, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Errorf("the child says %q (%v), want ready", line, err)
	}
	return cmd
}

// errOf is the error of a call, or are the errors of a batch.
func errOf[R, E any](_ R, err E) E { return err }
