//go:build unix

package azblob

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
)

// aSlowLogin puts Azure's command into PATH, which waits until the test lets it print a token, and returns a Locker of the default chain.
// Its child keeps the output open although the command is killed.
func aSlowLogin(t *testing.T) (l *Locker, logins func() int, end func()) {
	t.Helper()
	system := os.Getenv("PATH")
	noIdentity(t)
	folder := t.TempDir()
	began, printed := filepath.Join(folder, "began"), filepath.Join(folder, "printed")
	if err := syscall.Mkfifo(printed, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho >>" + began + "\ncat " + printed + "\nexit\n"
	if err := os.WriteFile(filepath.Join(folder, "az"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+system)
	s := &aService{faults: map[string]func(*http.Request) *http.Response{}, requests: map[string]int{}}
	where := location{account: "account1", container: "locks"}
	to, _, err := where.connect(azcore.ClientOptions{Transport: transport(func(r *http.Request) (*http.Response, error) {
		if !strings.HasPrefix(r.URL.Host, "account1.") { // of managed identities
			return nil, errors.New("no network")
		}
		return s.answer(r)
	})})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	l = newLocker(to.container, c)
	l.origin = &origin{where, "", to}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	t.Cleanup(func() { // if the test has failed
		if f, err := os.OpenFile(printed, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			_ = f.Close()
		}
	})
	return l, func() int {
			lines, err := os.ReadFile(began)
			if err != nil {
				return 0
			}
			return strings.Count(string(lines), "\n")
		}, func() {
			if err := os.WriteFile(printed, []byte(`{"accessToken":"x","expires_on":32503680000}`), 0); err != nil {
				t.Fatal(err)
			}
		}
}

// A login that takes longer than a call does not make the call longer, and is not begun anew by each.
func TestLoginOutlivesTheContext(t *testing.T) {
	l, logins, end := aSlowLogin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := locktest.Within(t, 10*time.Second, "an acquire whose context has ended", func() error {
		_, err := l.TryAcquire(ctx, request("job"))
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errLoginFailed) || errors.Is(err, driver.ErrDenied) {
		t.Errorf("%v", err)
	}
	locktest.Eventually(t, "a login", func() bool { return logins() > 0 })
	end()
	if _, err := l.TryAcquire(bounded(t), request("job")); err != nil {
		t.Error(err)
	}
	if n := logins(); n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}
