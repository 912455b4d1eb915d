// Command deploytest checks the files in deploy/prometheus with a real Prometheus: the rules with promtool, and
// a fail-over of two processes of the command whose metrics Prometheus scrapes. "make -f tools/tools.mk test-deploy" runs it.
//
//	deploytest -holdfast PROGRAM -rules deploy/prometheus [-record]
//
// With -record it records the series of a fail-over with the default TTL, two minutes long, as input of
// promtool: deploy/prometheus/failover_test.yml.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	program := flag.String("holdfast", "bin/holdfast", "the command")
	rules := flag.String("rules", "deploy/prometheus", "the folder of the rules")
	record := flag.Bool("record", false, "write failover_test.yml")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *program, *rules, *record)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploytest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, rules string, record bool) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	if rules, err = filepath.Abs(rules); err != nil {
		return err
	}
	f := failOver{program: program, rules: rules, ttl: 4 * time.Second, scrape: time.Second}
	if record {
		f.ttl, f.scrape, f.quiet = 30*time.Second, 5*time.Second, 45*time.Second
	}
	if err := f.run(ctx); err != nil {
		return err
	}
	if record {
		path := filepath.Join(rules, "failover_test.yml")
		if err := os.WriteFile(path, []byte(f.recording), 0o644); err != nil { //nolint:gosec // a file of the repository
			return err
		}
	}
	if err := verifyUnits(ctx, program, filepath.Join(filepath.Dir(rules), "systemd")); err != nil {
		return err
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"},
		{"test", "rules", "failover_test.yml"}} {
		cmd := exec.CommandContext(ctx, "promtool", args...)
		cmd.Dir = rules
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		fmt.Println("promtool", strings.Join(args, " "), "passed")
	}
	return nil
}

// verifyUnits has systemd check the units, with programs that exist. Other systems have no such check.
func verifyUnits(ctx context.Context, program, units string) error {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		fmt.Println("no systemd-analyze here: the units are not checked by it")
		return nil
	}
	dir, err := os.MkdirTemp("", "holdfast-units")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	files, err := filepath.Glob(filepath.Join(units, "*.*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no units in %s (%w)", units, err)
	}
	args := []string{"verify", "--man=no"}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := regexp.MustCompile(`-- /usr/local/bin/\S+`).ReplaceAllString(string(content), "-- "+program)
		copied := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(copied, []byte(strings.ReplaceAll(text, "/usr/local/bin/holdfast", program)), 0o600); err != nil {
			return err
		}
		args = append(args, copied)
	}
	out, err := exec.CommandContext(ctx, "systemd-analyze", args...).CombinedOutput() //nolint:gosec // our own files
	if err != nil || len(out) > 0 {
		return fmt.Errorf("systemd-analyze verify: %w\n%s", err, out)
	}
	fmt.Println("systemd-analyze verify passed")
	return nil
}

// failOver is a fail-over of two processes under a Prometheus.
type failOver struct {
	program, rules string
	ttl, scrape    time.Duration
	quiet          time.Duration // before and after the fail-over
	dir            string
	prometheus     string // its URL
	recording      string
}

// run starts Prometheus and two processes, kills the one that leads, and checks what Prometheus has seen.
func (f *failOver) run(ctx context.Context) (err error) {
	if f.dir, err = os.MkdirTemp("", "holdfast-deploy"); err != nil {
		return err
	}
	defer os.RemoveAll(f.dir) //nolint:errcheck // a temporary folder
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	begin := time.Now()
	leader, err := f.start(ctx, "one", ports[0])
	if err != nil {
		return err
	}
	defer leader.kill()
	if err := until(ctx, func() bool { return answers("http://" + ports[0] + "/readyz") }); err != nil {
		return fmt.Errorf("the first process does not lead: %w", err)
	}
	follower, err := f.start(ctx, "two", ports[1])
	if err != nil {
		return err
	}
	defer follower.kill()
	server, err := f.startPrometheus(ctx, ports)
	if err != nil {
		return err
	}
	defer server.kill()
	leads := func(instance, value string) func() bool {
		return func() bool {
			got, err := f.query(ctx, fmt.Sprintf(`holdfast_leader{instance=%q}`, instance))
			return err == nil && len(got) == 1 && got[0].last() == value
		}
	}
	for instance, value := range map[string]string{"one": "1", "two": "0"} {
		if err := until(ctx, leads(instance, value)); err != nil {
			return fmt.Errorf("no holdfast_leader in Prometheus, want %s of %s: %w", value, instance, err)
		}
	}
	if err := wait(ctx, f.quiet); err != nil {
		return err
	}
	killed := time.Now()
	leader.kill()
	if err := until(ctx, leads("two", "1")); err != nil {
		return fmt.Errorf("no fail-over in Prometheus: %w", err)
	}
	took := time.Since(killed)
	if least := f.ttl / 2; took < least {
		return fmt.Errorf("the fail-over took %s with a TTL of %s", took, f.ttl)
	}
	if err := wait(ctx, f.quiet); err != nil {
		return err
	}
	firing, err := f.query(ctx, `ALERTS{alertstate="firing"}`)
	if err != nil {
		return err
	}
	if len(firing) > 0 {
		return fmt.Errorf("alerts fire after a fail-over: %v", firing)
	}
	loaded, err := f.get(ctx, "/api/v1/rules", nil)
	if err != nil {
		return err
	}
	if strings.Count(string(loaded), `"health":"ok"`) < 9 {
		return fmt.Errorf("rules that Prometheus could not evaluate: %s", loaded)
	}
	fmt.Printf("Prometheus saw the fail-over %s after the kill; no alert fired\n", took.Round(time.Millisecond))
	f.recording, err = f.series(ctx, begin, killed, took)
	return err
}

// process is a child process.
type process struct{ *exec.Cmd }

// kill kills the process with SIGKILL, and waits for it.
func (p process) kill() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()
}

// start starts one process of the command, which waits for the lock or holds it.
func (f *failOver) start(ctx context.Context, name, address string) (process, error) {
	cmd := exec.CommandContext(ctx, f.program, "run", "--backend", "file:"+filepath.Join(f.dir, "locks"), "--keep", "--owner", name,
		"--ttl", f.ttl.String(), "--listen", address, "billing", "--", "sleep", "600")
	return f.begin(cmd, name)
}

// begin starts a process whose output is in a file.
func (f *failOver) begin(cmd *exec.Cmd, name string) (process, error) {
	log, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return process{}, err
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, time.Second
	return process{cmd}, cmd.Start()
}

func (f *failOver) startPrometheus(ctx context.Context, ports []string) (process, error) {
	config := fmt.Sprintf(`global: {scrape_interval: %s, evaluation_interval: %s}
rule_files: [%s]
scrape_configs:
  - job_name: app
    static_configs:
      - {targets: ["%s"], labels: {instance: one}}
      - {targets: ["%s"], labels: {instance: two}}
`, f.scrape, f.scrape, filepath.Join(f.rules, "alerts.yml"), ports[0], ports[1])
	path := filepath.Join(f.dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return process{}, err
	}
	f.prometheus = "http://" + ports[2]
	data := filepath.Join(f.dir, "data")
	p, err := f.begin(exec.CommandContext(ctx, "prometheus", "--config.file="+path, "--storage.tsdb.path="+data, //nolint:gosec // our own
		"--web.listen-address="+ports[2]), "prometheus")
	if err != nil {
		return p, err
	}
	if err := until(ctx, func() bool { return answers(f.prometheus + "/-/ready") }); err != nil {
		p.kill()
		return p, fmt.Errorf("start Prometheus: %w", err)
	}
	return p, nil
}

// sample is one time series of an answer.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  []any             `json:"value"`
	Values [][]any           `json:"values"`
}

// last is the value of an instant query.
func (s sample) last() string {
	if len(s.Value) != 2 {
		return ""
	}
	return fmt.Sprint(s.Value[1])
}

// String is the series in Prometheus' notation, with sorted labels.
func (s sample) String() string {
	var labels []string
	for key, value := range s.Metric {
		if key != "__name__" {
			labels = append(labels, key+"="+strconv.Quote(value))
		}
	}
	slices.Sort(labels)
	return s.Metric["__name__"] + "{" + strings.Join(labels, ",") + "}"
}

func (f *failOver) query(ctx context.Context, q string) ([]sample, error) {
	return f.decode(f.get(ctx, "/api/v1/query", url.Values{"query": {q}}))
}

func (f *failOver) decode(body []byte, err error) ([]sample, error) {
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	return answer.Data.Result, errors.Join(json.Unmarshal(body, &answer), nil)
}

func (f *failOver) get(ctx context.Context, path string, values url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.prometheus+path+"?"+values.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, err
}

// series returns what Prometheus has recorded, as a test of promtool.
func (f *failOver) series(ctx context.Context, begin, killed time.Time, took time.Duration) (string, error) {
	const metrics = `{__name__=~"holdfast_leader|holdfast_held|holdfast_waiting|holdfast_losses_total|` +
		`holdfast_overruns_total|holdfast_leader_transitions_total` +
		`|leader_election_master_status|holdfast_renewal_margin_seconds_(count|bucket)|holdfast_client_operation_duration_seconds_count"}`
	first := begin.Add(f.scrape + time.Second)
	end := time.Now()
	all, err := f.decode(f.get(ctx, "/api/v1/query_range", url.Values{"query": {metrics},
		"start": {fmt.Sprint(first.Unix())}, "end": {fmt.Sprint(end.Unix())}, "step": {fmt.Sprint(int(f.scrape.Seconds()))}}))
	if err != nil {
		return "", err
	}
	if len(all) < 10 {
		return "", fmt.Errorf("only %d series in Prometheus", len(all))
	}
	slices.SortFunc(all, func(a, b sample) int { return strings.Compare(a.String(), b.String()) })
	at := func(t time.Time) string { return t.Sub(first).Truncate(f.scrape).String() }
	var b strings.Builder
	fmt.Fprintf(&b, `# Written by "go run ./test/deploytest -record"; do not edit.
#
# What Prometheus scraped from two real processes of "holdfast run --keep --ttl %s" when the one that led was killed with
# SIGKILL, after %s. The other led %s later. A fail-over like this raises no alert.
rule_files: [alerts.yml]
evaluation_interval: %s
tests:
  - name: a real fail-over
    interval: %s
    input_series:
`, f.ttl, at(killed), took.Round(time.Second), f.scrape, f.scrape)
	for _, s := range all {
		fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", s, values(s, first, end, f.scrape))
	}
	fmt.Fprintf(&b, "    promql_expr_test:\n")
	for _, c := range []struct {
		at    time.Time
		leads string
	}{{killed.Add(-f.scrape), "1"}, {killed.Add(2 * f.scrape), "0"}, {killed.Add(took + 2*f.scrape), "1"}} {
		for _, expr := range []string{`sum by (lock) (holdfast_leader)`, `sum by (name) (leader_election_master_status)`} {
			label := `{lock="billing"}`
			if strings.Contains(expr, "name") {
				label = `{name="billing"}`
			}
			fmt.Fprintf(&b, "      - {expr: %s, eval_time: %s, exp_samples: [{labels: '%s', value: %s}]}\n", expr, at(c.at), label, c.leads)
		}
	}
	fmt.Fprintf(&b, "    alert_rule_test:\n")
	for t := killed.Add(-f.scrape); t.Before(end); t = t.Add(3 * f.scrape) {
		for _, alert := range []string{"HoldfastNoLeader", "HoldfastTwoLeaders", "HoldfastRenewalMarginLow", "HoldfastLosses", "HoldfastOverrun",
			"HoldfastBackendFailing", "HoldfastLeaderFlapping"} {
			fmt.Fprintf(&b, "      - {eval_time: %s, alertname: %s, exp_alerts: []}\n", at(t), alert)
		}
	}
	return b.String(), nil
}

// values writes the values of a series as promtool reads them.
func values(s sample, first, end time.Time, step time.Duration) string {
	byTime := map[int64]string{}
	for _, v := range s.Values {
		if seconds, ok := v[0].(float64); ok {
			byTime[int64(seconds)] = fmt.Sprint(v[1])
		}
	}
	var out []string
	had := false
	for t := first.Unix(); t <= end.Unix(); t += int64(step.Seconds()) {
		value, ok := byTime[t]
		switch {
		case ok:
			out, had = append(out, value), true
		case had: // Prometheus marks a series of a target that is gone
			out, had = append(out, "stale"), false
		default:
			out = append(out, "_")
		}
	}
	return strings.Join(out, " ")
}

// freePorts returns addresses at which nothing listens now.
func freePorts(n int) (out []string, err error) {
	for range n {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // nothing was accepted
		out = append(out, l.Addr().String())
	}
	return out, nil
}

// answers reports whether a URL answers 200.
func answers(address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is read
	return resp.StatusCode == http.StatusOK
}

// until waits until a condition holds, for up to a minute.
func until(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !holds() {
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
