package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/cronlock"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

func newJobs(t *testing.T, client *holdfast.Client, minHold time.Duration) *cronlock.Jobs {
	t.Helper()
	jobs, err := cronlock.New(client, minHold)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

func startCron(t *testing.T, spec string, job cron.Job, opts ...cron.Option) {
	t.Helper()
	c := cron.New(append(opts, cron.WithSeconds())...)
	if _, err := c.AddJob(spec, job); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() { c.Stop() }) // the client's Shutdown waits for the jobs
}

// All machines have the same crontab line. Their clocks agree so well that they begin together,
// or one after another. The job runs once a second.
func TestCronOncePerPeriod(t *testing.T) {
	for name, make := range map[string]func(jobs *cronlock.Jobs, job func()) (cron.Job, error){
		"Func": func(jobs *cronlock.Jobs, job func()) (cron.Job, error) {
			fn, err := jobs.Func("report", func(context.Context) { job() })
			return cron.FuncJob(fn), err
		},
		"Wrapper": func(jobs *cronlock.Jobs, job func()) (cron.Job, error) {
			wrapper, err := cronlock.Wrapper[cron.Job](jobs, "report")
			return cron.NewChain(cron.Recover(cron.DiscardLogger), wrapper).Then(cron.FuncJob(job)), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, report := memory.NewStore(), &runs{}
			for range 3 {
				job, err := make(newJobs(t, newClient(t, store), 500*time.Millisecond), func() { report.run(func() {}) })
				if err != nil {
					t.Fatal(err)
				}
				startCron(t, "* * * * * *", job)
			}
			eventually(t, "four runs", func() bool { return report.count() >= 4 })
			if shortest := report.shortest(); shortest < 250*time.Millisecond || report.overlapped() {
				t.Errorf("two runs began %v apart; overlap: %t", shortest, report.overlapped())
			}
		})
	}
}

// A panic reaches cron's own Recover, and the lock is released.
func TestCronJobPanics(t *testing.T) {
	store := memory.NewStore()
	panicked := make(chan struct{}, 100)
	wrapper, err := cronlock.Wrapper[cron.Job](newJobs(t, newClient(t, store), time.Nanosecond), "report")
	if err != nil {
		t.Fatal(err)
	}
	job := cron.FuncJob(func() { panicked <- struct{}{}; panic("job") })
	startCron(t, "* * * * * *", job, cron.WithChain(cron.Recover(cron.DiscardLogger), wrapper))
	<-panicked
	operator := newClient(t, store)
	eventually(t, "release of the lock", func() bool { return isFree(t, operator, "report") })
	<-panicked
}

func TestCronLoss(t *testing.T) {
	store := memory.NewStore()
	began, lost := make(chan struct{}), make(chan error)
	report, err := newJobs(t, newClient(t, store), time.Nanosecond).Func("report", func(ctx context.Context) {
		began <- struct{}{}
		<-ctx.Done()
		lost <- context.Cause(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	c := cron.New(cron.WithSeconds())
	if _, err := c.AddFunc("* * * * * *", report); err != nil {
		t.Fatal(err)
	}
	c.Start()
	<-began
	stopped := c.Stop() // no further runs
	if err := newClient(t, store).Break(t.Context(), "report", holdfast.BreakAnybody()); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the job's context ended with %v", err)
	}
	<-stopped.Done()
}

func cronProgram(client *holdfast.Client, journal journal) error {
	jobs, err := cronlock.New(client, time.Second)
	if err != nil {
		return err
	}
	report, err := jobs.Func("report", func(ctx context.Context) { _ = longJob(journal)(ctx) })
	if err != nil {
		return err
	}
	c := cron.New(cron.WithSeconds())
	if _, err := c.AddFunc("* * * * * *", report); err != nil {
		return err
	}
	c.Run()
	return nil
}

func TestCronKilledProcess(t *testing.T) {
	t.Parallel()
	takesOver(t, "cron")
}
