package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/test/sim"
)

// shorten looks for a plan with less in it that still breaks one of the rules.
func shorten(ctx context.Context, m *module, plan sim.Plan, variant uint64, rules []string) (sim.Plan, error) {
	s := &shortener{ctx: ctx, m: m, variant: variant, rules: rules, best: plan}
	for before := -1; before != s.kept && s.err == nil; {
		before = s.kept
		s.cutEnd()
		s.dropActors()
		s.dropProcesses()
		s.dropFaults()
		s.simplify()
	}
	fmt.Fprintf(os.Stderr, "%d runs, %d steps\n", m.runs, s.kept)
	return s.best, s.err
}

type shortener struct {
	ctx     context.Context
	m       *module
	variant uint64
	rules   []string
	best    sim.Plan
	kept    int
	err     error
}

// try keeps a changed plan if it still fails.
func (s *shortener) try(change func(p *sim.Plan)) bool {
	if s.err != nil {
		return false
	}
	p := clone(s.best)
	change(&p)
	if encode(p) == encode(s.best) {
		return false
	}
	// With less in it, a schedule takes another course: the same latencies meet other requests. So a
	// plan gets a few attempts, each with other dice.
	for range attempts {
		out, err := s.m.run(s.ctx, p, s.variant, false)
		if err != nil {
			s.err = err
			return false
		}
		if slices.ContainsFunc(out.rules(), func(r string) bool { return slices.Contains(s.rules, r) }) {
			s.best = p
			s.kept++
			return true
		}
		p.Seed++
	}
	return false
}

const attempts = 4

func encode(p sim.Plan) string {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		panic(err) // a plan has no value that JSON lacks
	}
	return string(text)
}

func clone(p sim.Plan) (c sim.Plan) {
	if err := json.Unmarshal([]byte(encode(p)), &c); err != nil {
		panic(err) // encode wrote it
	}
	return c
}

// cutEnd ends the schedule soon after the rule was broken.
func (s *shortener) cutEnd() {
	out, err := s.m.run(s.ctx, s.best, s.variant, false)
	if err != nil {
		s.err = err
		return
	}
	for _, more := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		if end := out.at() + more; end < s.best.Duration && s.try(func(p *sim.Plan) { p.Duration, p.Heal = end, min(p.Heal, end) }) {
			return
		}
	}
}

// dropFaults leaves out faults: many at once, then fewer.
func (s *shortener) dropFaults() {
	for n := max(len(s.best.Faults), 1); n > 0; n /= 2 {
		for i := 0; i < len(s.best.Faults); {
			if !s.try(func(p *sim.Plan) { p.Faults = slices.Delete(p.Faults, i, min(i+n, len(p.Faults))) }) {
				i += n
			}
		}
	}
}

func (s *shortener) dropProcesses() {
	for i := len(s.best.Processes) - 1; i >= 0; i-- {
		s.try(func(p *sim.Plan) {
			p.Processes = slices.Delete(p.Processes, i, i+1)
			p.Faults = slices.DeleteFunc(p.Faults, func(f sim.Fault) bool { return f.Process == i && f.OfProcess() })
			for k := range p.Faults {
				if p.Faults[k].Process > i {
					p.Faults[k].Process--
				}
			}
		})
	}
}

func (s *shortener) dropActors() {
	for _, a := range s.actors() { // of all processes
		s.try(func(p *sim.Plan) {
			for i := range p.Processes {
				p.Processes[i].Does = slices.DeleteFunc(p.Processes[i].Does, func(b sim.Actor) bool { return a == b })
			}
		})
	}
	for i := range s.best.Processes {
		for k := len(s.best.Processes[i].Does) - 1; k >= 0; k-- {
			s.try(func(p *sim.Plan) { p.Processes[i].Does = slices.Delete(p.Processes[i].Does, k, k+1) })
		}
	}
}

func (s *shortener) actors() (all []sim.Actor) {
	for _, pr := range s.best.Processes {
		for _, a := range pr.Does {
			if !slices.Contains(all, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

// simplify leaves out what rarely matters.
func (s *shortener) simplify() {
	s.try(func(p *sim.Plan) { p.Noise = 0 })
	s.try(func(p *sim.Plan) { p.Members = make([]sim.Clock, len(p.Members)) })
	s.try(func(p *sim.Plan) { p.Latency = time.Millisecond })
	for i := range s.best.Processes {
		s.try(func(p *sim.Plan) { p.Processes[i].Drift = 0 })
		s.try(func(p *sim.Plan) { p.Processes[i].Start = 0 })
	}
}

// describe returns a plan for people.
func describe(p sim.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v on %s, latency %v, noise %v, no faults after %v\n", p.Seed, p.Duration, p.Backend, p.Latency, p.Noise, p.Heal)
	for i, pr := range p.Processes {
		fmt.Fprintf(&b, "process %d: TTL %v, starts at %v", i+1, pr.TTL, pr.Start)
		for _, a := range pr.Does {
			fmt.Fprintf(&b, ", %s %q (holds up to %v, idle up to %v)", a.Kind, a.Name, a.MaxHold, a.MaxIdle)
		}
		b.WriteString("\n")
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "fault: %v\n", f)
	}
	return b.String()
}
