package integration

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

var (
	_ gocron.Locker  = (*gocronlock.Locker[gocron.Lock])(nil)
	_ gocron.Elector = (*gocronlock.Elector)(nil)
)

// runs collects when the runs of a job began, and whether two ran at a time.
type runs struct {
	mu      sync.Mutex
	began   []time.Time
	running int
	overlap bool
}

func (r *runs) run(work func()) {
	r.mu.Lock()
	r.began = append(r.began, time.Now())
	r.running++
	r.overlap = r.overlap || r.running > 1
	r.mu.Unlock()
	work()
	r.mu.Lock()
	r.running--
	r.mu.Unlock()
}

func (r *runs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.began)
}

// overlapped reports whether two have run at a time.
func (r *runs) overlapped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.overlap
}

// shortest returns the shortest time between the beginnings of two runs.
func (r *runs) shortest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	shortest := time.Hour
	for i := 1; i < len(r.began); i++ {
		shortest = min(shortest, r.began[i].Sub(r.began[i-1]))
	}
	return shortest
}

func newScheduler(t *testing.T, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

func newLocker(t *testing.T, client *holdfast.Client, minHold time.Duration) *gocronlock.Locker[gocron.Lock] {
	t.Helper()
	l, err := gocronlock.NewLocker[gocron.Lock](client, minHold)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// addJob adds a job that runs at once and then in every period.
func addJob(t *testing.T, s gocron.Scheduler, every time.Duration, task any, opts ...gocron.JobOption) gocron.Job {
	t.Helper()
	opts = append(opts, gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()))
	job, err := s.NewJob(gocron.DurationJob(every), gocron.NewTask(task), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// Three instances are started at different times. Their short job runs once in a minimum hold,
// not once on each instance.
func TestGocronShortJobs(t *testing.T) {
	const period, instances = time.Second, 3
	for name, test := range map[string]struct {
		minHold time.Duration
		once    bool
	}{
		"a minimum hold":        {900 * time.Millisecond, true},
		"hardly a minimum hold": {time.Nanosecond, false}, // what gocron does with other lockers
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, job := memory.NewStore(), &runs{}
			for range instances {
				locker := newLocker(t, newClient(t, store), test.minHold)
				s := newScheduler(t, gocron.WithDistributedLocker(locker))
				addJob(t, s, period, locker.Task("report", func(context.Context) error { job.run(func() {}); return nil }))
				s.Start()
				time.Sleep(period / instances)
			}
			eventually(t, "five runs", func() bool { return job.count() >= 5 })
			if shortest := job.shortest(); (shortest >= period/2) != test.once {
				t.Errorf("two runs began %v apart", shortest)
			}
			if job.overlapped() {
				t.Error("two instances ran the job at the same time")
			}
		})
	}
}

// gocron cancels the job's context before it unlocks, and drops the error of Unlock.
func TestGocronUnlockAfterTheJobWasRemoved(t *testing.T) {
	client := newClient(t, memory.NewStore())
	locker := newLocker(t, client, time.Nanosecond)
	s := newScheduler(t, gocron.WithDistributedLocker(locker))
	began, canceled := make(chan struct{}), make(chan error, 1)
	job := addJob(t, s, time.Hour, locker.Task("report", func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		canceled <- ctx.Err()
		return nil
	}))
	s.Start()
	<-began
	if err := s.RemoveJob(job.ID()); err != nil {
		t.Fatal(err)
	}
	if err := <-canceled; !errors.Is(err, context.Canceled) {
		t.Errorf("the job's context ended with %v", err)
	}
	eventually(t, "release of the lock", func() bool { return isFree(t, client, "report") })
}

func TestGocronJobPanics(t *testing.T) {
	client := newClient(t, memory.NewStore())
	locker := newLocker(t, client, time.Nanosecond)
	s := newScheduler(t, gocron.WithDistributedLocker(locker))
	var panics atomic.Int32
	addJob(t, s, 50*time.Millisecond, locker.Task("report", func(context.Context) error { panics.Add(1); panic("job") }),
		gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(_ uuid.UUID, _ string, _ any) {})))
	s.Start()
	eventually(t, "a second run", func() bool { return panics.Load() >= 2 })
}

// The job sees the loss of its lock. Another instance runs the job only after that.
func TestGocronLoss(t *testing.T) {
	store, job := memory.NewStore(), &runs{}
	lost := make(chan error, 10)
	operator := newClient(t, store)
	for range 2 {
		locker := newLocker(t, newClient(t, store), time.Nanosecond)
		s := newScheduler(t, gocron.WithDistributedLocker(locker))
		addJob(t, s, 50*time.Millisecond, locker.Task("report", func(ctx context.Context) error {
			job.run(func() { <-ctx.Done() })
			lost <- context.Cause(ctx)
			return nil
		}))
		s.Start()
	}
	for n := 1; n <= 2; n++ {
		eventually(t, "a run", func() bool { return job.count() >= n })
		if err := operator.Break(t.Context(), "report", holdfast.BreakAnybody()); err != nil {
			t.Fatal(err)
		}
		if err := <-lost; !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the job's context ended with %v", err)
		}
	}
	if job.overlapped() {
		t.Error("two instances ran the job at the same time")
	}
}

// A task under another name than its job's would run without a lock.
func TestGocronTaskOfAnotherName(t *testing.T) {
	locker := newLocker(t, newClient(t, memory.NewStore()), time.Nanosecond)
	s := newScheduler(t, gocron.WithDistributedLocker(locker))
	failed := make(chan error, 1)
	addJob(t, s, time.Hour, locker.Task("bill", func(context.Context) error { t.Error("the job ran"); return nil }),
		gocron.WithEventListeners(gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err })))
	s.Start()
	var invalid *holdfast.InvalidError
	if err := <-failed; !errors.As(err, &invalid) {
		t.Errorf("the job failed with %v", err)
	}
}

// The leader runs all jobs. When it is closed, another leads, and no job ran on both meanwhile.
func TestGocronElector(t *testing.T) {
	store := memory.NewStore()
	var byInstance [2]runs
	var all runs
	var electors [2]*gocronlock.Elector
	for i := range electors {
		elector, err := gocronlock.NewElector(newClient(t, store), "scheduler")
		if err != nil {
			t.Fatal(err)
		}
		electors[i] = elector
		s := newScheduler(t, gocron.WithDistributedElector(elector))
		addJob(t, s, 50*time.Millisecond, elector.Task(func(context.Context) error {
			all.run(func() { byInstance[i].run(func() { time.Sleep(5 * time.Millisecond) }) })
			return nil
		}), gocron.WithSingletonMode(gocron.LimitModeReschedule))
		s.Start()
	}
	eventually(t, "runs", func() bool { return all.count() >= 10 })
	leader := 0
	if byInstance[1].count() > 0 {
		leader = 1
	}
	if other := byInstance[1-leader].count(); other > 0 {
		t.Errorf("both instances ran jobs: %d and %d", byInstance[leader].count(), other)
	}
	if err := electors[leader].Close(t.Context()); err != nil {
		t.Error(err)
	}
	before := byInstance[leader].count()
	eventually(t, "runs of the other instance", func() bool { return byInstance[1-leader].count() >= 5 })
	if after := byInstance[leader].count(); after != before || all.overlapped() {
		t.Errorf("the closed instance ran %d more jobs; overlap: %t", after-before, all.overlapped())
	}
	if err := electors[leader].IsLeader(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("IsLeader after Close: %v", err)
	}
}

// Leadership is released only after its jobs have returned.
func TestGocronElectorLoss(t *testing.T) {
	store := memory.NewStore()
	operator := newClient(t, store)
	elector, err := gocronlock.NewElector(newClient(t, store), "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(t, gocron.WithDistributedElector(elector))
	ended, finish := make(chan error), make(chan struct{})
	addJob(t, s, time.Hour, elector.Task(func(ctx context.Context) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		<-finish
		return nil
	}))
	s.Start()
	closed := make(chan error, 1)
	eventually(t, "leadership", func() bool { return !isFree(t, operator, "scheduler") })
	time.Sleep(100 * time.Millisecond) // the job begins
	go func() { closed <- elector.Close(context.Background()) }()
	if err := <-ended; !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("the job's context ended with %v", err)
	}
	time.Sleep(200 * time.Millisecond)
	if isFree(t, operator, "scheduler") || len(closed) > 0 {
		t.Error("leadership was released while a job ran")
	}
	close(finish)
	if err := <-closed; err != nil || !isFree(t, operator, "scheduler") {
		t.Errorf("Close: %v", err)
	}
}

// longJob writes to the journal and runs until the process is killed, or the lock is lost.
func longJob(journal journal) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := journal.write(ctx, "begin"); err != nil {
			return err
		}
		<-ctx.Done()
		return errors.Join(context.Cause(ctx), journal.writeLoss(ctx))
	}
}

func runForever(scheduler gocron.Scheduler, task any) error {
	_, err := scheduler.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(task), gocron.WithName("report"))
	if err != nil {
		return err
	}
	scheduler.Start()
	select {}
}

func gocronLockerProgram(client *holdfast.Client, journal journal) error {
	locker, err := gocronlock.NewLocker[gocron.Lock](client, time.Second)
	if err != nil {
		return err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		return err
	}
	return runForever(s, locker.Task("report", longJob(journal)))
}

func gocronElectorProgram(client *holdfast.Client, journal journal) error {
	elector, err := gocronlock.NewElector(client, "scheduler")
	if err != nil {
		return err
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		return err
	}
	var once sync.Once
	return runForever(s, elector.Task(func(ctx context.Context) (err error) {
		once.Do(func() { err = longJob(journal)(ctx) })
		return err
	}))
}

func TestGocronKilledProcess(t *testing.T) {
	for _, program := range []string{"gocron-locker", "gocron-elector"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			takesOver(t, program)
		})
	}
}
