package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/telemetry"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

const deployFolder = "../../deploy/"

func readDeploy(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(deployFolder, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// scrapedNames returns the names of all time series that a scrape can have, with their types.
func scrapedNames(t *testing.T) (names map[string]bool, types map[string]string) {
	t.Helper()
	m, err := newMetrics(otelholdfast.WithLockName(func(name string) string { return name }))
	if err != nil {
		t.Fatal(err)
	}
	measureEverything(m.hook)
	answer := httptest.NewRecorder()
	m.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	names, types = map[string]bool{}, map[string]string{}
	for line := range strings.Lines(answer.Body.String()) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") {
			types[fields[2]] = fields[3]
		} else if !strings.HasPrefix(line, "#") {
			names[regexp.MustCompile(`^\w+`).FindString(line)] = true
		}
	}
	// It describes the program and comes from no instrument: docs/metrics.md has it among the command's own.
	delete(names, "holdfast_build_info")
	delete(types, "holdfast_build_info")
	return names, types
}

// measureEverything makes a measurement with each instrument.
func measureEverything(hook telemetry.Hook) {
	ctx := context.Background()
	for _, kind := range []telemetry.Kind{telemetry.Acquire, telemetry.Hold, telemetry.Release, telemetry.Guard, telemetry.Call} {
		for role := telemetry.Plain; role <= telemetry.Internal; role++ {
			op := telemetry.Operation{Kind: kind, Name: "job", Role: role, Backend: "file", Method: "renew", Locks: 1}
			ctx := hook.Begin(ctx, op)
			if kind == telemetry.Hold {
				hook.Renewed(ctx, op, time.Second)
				hook.Lost(ctx, op, time.Second, driver.ErrLost)
				hook.Overrun(ctx, op)
			}
			hook.End(ctx, op, time.Second, driver.ErrLost)
		}
	}
	hook.Dropped()
}

// The page has the names under which Prometheus knows the instruments, and their types.
func TestMetricsPageHasThePrometheusNames(t *testing.T) {
	content, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, types := scrapedNames(t)
	for _, row := range regexp.MustCompile("(?m)^\\| `[\\w.]+` \\| `(\\w+)` \\| (\\w+) \\|").FindAllStringSubmatch(string(content), -1) {
		if types[row[1]] != row[2] {
			t.Errorf("%s is a %q, and by the page a %s", row[1], types[row[1]], row[2])
		}
		delete(types, row[1])
	}
	if len(types) > 0 {
		t.Errorf("the page does not have %v", types)
	}
}

// Rules and dashboard name only metrics that exist.
func TestDeployFilesNameMetricsThatExist(t *testing.T) {
	names, _ := scrapedNames(t)
	metric := regexp.MustCompile(`\b(holdfast_\w+|leader_election_master_status)\b`)
	check := func(where, text string) {
		t.Helper()
		for _, name := range metric.FindAllString(text, -1) {
			if !names[name] {
				t.Errorf("%s names %s, which does not exist", where, name)
			}
		}
	}
	used := ""
	for _, path := range []string{"prometheus/alerts.yml", "prometheus/alerts_test.yml", "prometheus/failover_test.yml"} {
		text := readDeploy(t, path)
		check(path, text)
		used += text
	}
	var dashboard struct {
		Panels []struct {
			Title       string
			Description string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Definition string }
		}
	}
	if err := json.Unmarshal([]byte(readDeploy(t, "grafana/holdfast.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 || p.Description == "" {
			t.Errorf("the panel %q has no query or no description", p.Title)
		}
		for _, target := range p.Targets {
			check("the panel "+p.Title, target.Expr)
			used += target.Expr
		}
	}
	for _, v := range dashboard.Templating.List {
		check("a variable of the dashboard", v.Definition)
	}
	for name := range names {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !strings.Contains(used, base) {
			t.Errorf("neither a rule nor a panel uses %s", base)
		}
	}
}

// Each alert has a page of the runbook, where its link leads, and a test.
func TestAlertsHaveARunbookAndATest(t *testing.T) {
	index, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, tests := readDeploy(t, "prometheus/alerts.yml"), readDeploy(t, "prometheus/alerts_test.yml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 5 {
		t.Fatalf("alerts: %v", alerts)
	}
	for _, a := range alerts {
		link := regexp.MustCompile(`- alert: ` + a[1] + `\n(?: .*\n)*? +runbook_url: \S+/docs/(runbook/\S+\.md)\n`).FindStringSubmatch(rules)
		if link == nil {
			t.Errorf("%s has no link to a page of the runbook", a[1])
			continue
		}
		page, err := os.ReadFile("../../docs/" + link[1])
		if err != nil || !strings.HasPrefix(string(page), "# "+a[1]+"\n") {
			t.Errorf("the link of %s leads to %s, which is not its page (%v)", a[1], link[1], err)
		}
		if !strings.Contains(string(index), "["+a[1]+"]("+link[1]+")") {
			t.Errorf("docs/runbook.md does not list %s", a[1])
		}
		fires := regexp.MustCompile(`alertname: ` + a[1] + `\n +exp_alerts:\n`)
		if !fires.MatchString(tests) || !strings.Contains(tests, "alertname: "+a[1]+", exp_alerts: []") {
			t.Errorf("no test has %s fire, or none has it not fire", a[1])
		}
	}
}

// commandLine is a command line of holdfast in a file of deploy/, and when the process is killed.
type commandLine struct {
	where string
	words []string
	stop  time.Duration // from SIGTERM to SIGKILL
}

func deployCommandLines(t *testing.T) (lines []commandLine) {
	t.Helper()
	for _, pattern := range []string{"systemd/*.service", "kubernetes/*.yaml"} {
		files, err := filepath.Glob(deployFolder + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s (%v)", pattern, err)
		}
		for _, path := range files {
			if filepath.Base(path) == "locks-role.yaml" {
				continue // the rights of programs that keep locks in the cluster
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text, l := string(content), commandLine{where: path}
			find := func(re string) string {
				m := regexp.MustCompile(`(?m)^\s*` + re + `$`).FindStringSubmatch(text)
				if m == nil {
					t.Fatalf("%s has no %s", path, re)
				}
				return m[1]
			}
			if strings.HasSuffix(path, ".service") {
				l.words = strings.Fields(find(`ExecStart=/usr/local/bin/holdfast (.*)`))
				l.stop, err = time.ParseDuration(find(`TimeoutStopSec=(\w+)`))
				for setting, want := range map[string]string{"KillMode": "mixed", "KillSignal": "SIGTERM"} {
					if got := find(setting + `=(\w+)`); got != want {
						t.Errorf("%s: %s=%s", path, setting, got)
					}
				}
			} else {
				words := strings.Split(find(`command: \[holdfast, (.*)\]`)+", "+find(`args: \[(.*)\]`), ", ")
				for _, w := range words {
					l.words = append(l.words, strings.Trim(w, `"`))
				}
				l.stop, err = time.ParseDuration(find(`terminationGracePeriodSeconds: (\d+)`) + "s")
			}
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// The command lines in units and manifests are valid, and the process is killed only after the command was
// killed and the lock released, whatever the command does.
func TestDeployCommandLines(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := deployCommandLines(t)
	if len(lines) < 5 {
		t.Errorf("only %d command lines", len(lines))
	}
	for _, l := range lines {
		for i, w := range l.words {
			if w == "/etc/holdfast/token" {
				l.words[i] = secret
			}
		}
		var flags cli
		if _, err := newParser(&flags, io.Discard, io.Discard, func() {}).Parse(l.words); err != nil {
			t.Errorf("%s: %v", l.where, err)
			continue
		}
		r := flags.Run
		if r.KillAfter == 0 || l.stop < r.KillAfter+shutdownTimeout+5*time.Second {
			t.Errorf("%s: SIGKILL comes %s after SIGTERM; --kill-after is %s and the release may take %s", l.where, l.stop, r.KillAfter,
				shutdownTimeout)
		}
		if r.TTL != 30*time.Second {
			t.Errorf("%s: the alerts and comments suppose a TTL of 30s, not %s", l.where, r.TTL)
		}
		if !r.Keep && !r.Try {
			t.Errorf("%s: neither a service nor a job", l.where)
		}
	}
}

// A port that is taken ends the command with its message, before it waits for the lock.
func TestListenOnATakenPort(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	if _, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:]); err != nil {
		t.Fatal(err)
	}
	r := &runner{runCmd: &runCmd{Name: "job", Listen: address, Slots: 1}, log: messages.NewLog(io.Discard, false, false)}
	_, err := r.listen()
	var exit *exitcode.Error
	if !errors.As(err, &exit) || exit.Code != exitcode.Usage {
		t.Errorf("%v", err)
	}
}
