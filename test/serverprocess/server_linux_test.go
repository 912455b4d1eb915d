package serverprocess

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A test process that is killed leaves no server behind.
func TestServerDiesWithTheTestProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], t.TempDir())
	cmd.Env = append(os.Environ(), envRole+"=test process")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr := strings.TrimSpace(line)
	if err != nil || !answers(addr, 10*time.Second) {
		t.Errorf("the server at %q does not answer: %v", addr, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for end := time.Now().Add(10 * time.Second); answers(addr, time.Second); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server outlives the test process")
		}
	}
}
