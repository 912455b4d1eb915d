package owner

import (
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestGone(t *testing.T) {
	if Gone(Labels()) {
		t.Error("this process counts as ended")
	}
	ended := exec.Command("go", "version")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(ended.Process.Pid)
	if !Gone(map[string]string{Label: host() + "/" + pid}) {
		t.Error("a process that has ended counts as running")
	}
	if runtime.GOOS == "linux" {
		zombie := exec.Command("true")
		if err := zombie.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = zombie.Wait() }()
		pid := strconv.Itoa(zombie.Process.Pid)
		for end := time.Now().Add(time.Minute); !Gone(map[string]string{Label: host() + "/" + pid}); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a zombie counts as running")
			}
		}
	}
	for _, label := range []string{"", "1", "another-" + host() + "/" + pid, host() + "/x"} {
		if Gone(map[string]string{Label: label}) {
			t.Errorf("the owner %q counts as ended", label)
		}
	}
}
