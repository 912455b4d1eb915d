package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing/fstest"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/holdfast-go/holdfast/test/sim"
)

// module is the simulator as WebAssembly.
type module struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
	runs     int
}

// build builds and compiles the simulator. What was compiled before is found in dir.
func build(ctx context.Context, dir, overlay string) (*module, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "sim.wasm")
	args := []string{"test", "-c", "-o", file}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/holdfast-go/holdfast/test/sim")...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c for wasip1: %w\n%s", err, out)
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, "wazero"))
	if err != nil {
		return nil, err
	}
	m := &module{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))}
	wasi_snapshot_preview1.MustInstantiate(ctx, m.runtime)
	if m.compiled, err = m.runtime.CompileModule(ctx, code); err != nil {
		m.close(ctx)
		return nil, err
	}
	return m, nil
}

func (m *module) close(ctx context.Context) { _ = m.runtime.Close(ctx) }

// output is what a run printed.
type output struct{ text []byte }

var violation = regexp.MustCompile(`(?m)^ +sim_test\.go:\d+: seed \d+: ([^:]+): at ([^:]+): `)

func (o output) failed() bool { return violation.Match(o.text) }

// rules returns the names of the broken rules.
func (o output) rules() (names []string) {
	for _, m := range violation.FindAllSubmatch(o.text, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// at returns when the last rule was broken.
func (o output) at() (last time.Duration) {
	for _, m := range violation.FindAllSubmatch(o.text, -1) {
		if d, err := time.ParseDuration(string(m[2])); err == nil {
			last = max(last, d)
		}
	}
	return last
}

// run runs a plan. The variant decides all that the plan does not: the order of goroutines that are
// ready at once, of maps and of selects.
func (m *module) run(ctx context.Context, plan sim.Plan, variant uint64, trace bool) (output, error) {
	m.runs++
	text, err := json.Marshal(plan)
	if err != nil {
		return output{}, err
	}
	var out bytes.Buffer
	var clock int64
	args := []string{"sim.test", "-test.run=^TestSchedules$", "-test.timeout=0", "-sim.count=1", "-sim.plan=/plan.json"}
	if trace {
		args = append(args, "-sim.trace")
	}
	var key [32]byte
	for i := range 8 {
		key[i] = byte(plan.Seed >> (8 * i))
		key[8+i] = byte(variant >> (8 * i))
	}
	config := wazero.NewModuleConfig().WithName("").WithArgs(args...).WithStdout(&out).WithStderr(&out).
		WithFSConfig(wazero.NewFSConfig().WithFSMount(fstest.MapFS{"plan.json": {Data: text}}, "/")).
		WithRandSource(rand.NewChaCha8(key)).
		WithWalltime(func() (int64, int32) { clock += 1000; return clock / 1e9, int32(clock % 1e9) }, sys.ClockResolution(1000)).
		WithNanotime(func() int64 { clock += 1000; return clock }, sys.ClockResolution(1000)).
		WithNanosleep(func(ns int64) { clock += ns })
	instance, err := m.runtime.InstantiateModule(ctx, m.compiled, config)
	if instance != nil {
		_ = instance.Close(ctx)
	}
	var exit *sys.ExitError
	if err != nil && !errors.As(err, &exit) {
		return output{}, fmt.Errorf("%w\n%s", err, out.Bytes())
	}
	return output{out.Bytes()}, nil
}
