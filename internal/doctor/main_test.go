package doctor_test

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/doctor"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) {
	if os.Getenv(envHelper) != "" {
		helper()
		return
	}
	serverprocess.Main(m)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// secrets are texts that no report may show.
var secrets = regexp.MustCompile(`(?i)` + strings.Join([]string{
	"sig=", "locker-password", "mongotest-admin-password", "s3cr3t",
	"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", // lease IDs
}, "|"))

// examine examines a backend. No report may show a secret. The service's numbers of requests look
// like lease IDs and are left out.
func examine(t *testing.T, url string) *doctor.Report {
	t.Helper()
	r, err := doctor.Run(bounded(t), url)
	if err != nil {
		t.Fatal(err)
	}
	checkSecrets(t, r)
	return r
}

var requestNumber = regexp.MustCompile(`\(request [0-9a-f-]+\)`)

func checkSecrets(t *testing.T, r *doctor.Report) {
	t.Helper()
	var text strings.Builder
	if err := r.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(strings.Fields(text.String()+string(object)), " ")
	if secret := secrets.FindString(requestNumber.ReplaceAllString(all, "")); secret != "" {
		t.Errorf("the report shows %q:\n%s", secret, text.String())
	}
}

// finding returns the finding about a subject that is worst.
func finding(r *doctor.Report, subject string) (found driver.Finding, ok bool) {
	for _, f := range r.Findings {
		if f.Subject == subject && (!ok || f.Level > found.Level) {
			found, ok = f, true
		}
	}
	return found, ok
}

func textOf(t *testing.T, r *doctor.Report) string {
	t.Helper()
	var text strings.Builder
	if err := r.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// wantFound fails unless a subject has this level, and the remedy contains a text.
func wantFound(t *testing.T, r *doctor.Report, subject string, level driver.Level, remedy string) driver.Finding {
	t.Helper()
	f, ok := finding(r, subject)
	if !ok || f.Level != level {
		t.Fatalf("%s is %v (found: %v), want %v:\n%s", subject, f.Level, ok, level, textOf(t, r))
	}
	if !strings.Contains(f.Remedy+" "+f.Command, remedy) || f.Level >= driver.LevelDoubtful && f.Remedy == "" {
		t.Fatalf("%s: the remedy is %q %q, want one with %q", subject, f.Remedy, f.Command, remedy)
	}
	return f
}

// wantCured fails unless a subject is as it should be. It may take a while until a server has noticed.
func wantCured(t *testing.T, url, subject string) {
	t.Helper()
	r := examine(t, url)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); r = examine(t, url) {
		if f, ok := finding(r, subject); ok && f.Level == driver.LevelOK {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	wantFound(t, r, subject, driver.LevelOK, "")
}

// isSlowness reports whether a finding says only that the machine is slow.
func isSlowness(f driver.Finding) bool {
	return f.Level == driver.LevelDoubtful && (strings.HasPrefix(f.Subject, "latency of") || f.Subject == "majority write")
}

// wantHealthy fails if anything is doubtful or wrong, or was not checked without a known reason. A busy
// machine may be slow.
func wantHealthy(t *testing.T, r *doctor.Report, unchecked ...string) {
	t.Helper()
	for _, f := range r.Findings {
		if isSlowness(f) {
			continue
		}
		if f.Level > driver.LevelUnchecked || f.Level == driver.LevelUnchecked && !slices.Contains(unchecked, f.Subject) {
			t.Errorf("%s is %v: %s", f.Subject, f.Level, f.Detail)
		}
	}
}
