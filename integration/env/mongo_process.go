package env

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/mongoset"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// mongoProcesses are members in local processes, on loopback.
type mongoProcesses struct {
	set    *mongotest.ReplicaSet
	clocks []*serverprocess.Clock // nil without FakeClock
}

func newMongoProcesses(ctx context.Context, dir, name string, opts MongoOptions) (*mongoset.Set, members, error) {
	p := &mongoProcesses{}
	testing := opts.testing()
	if opts.FakeClock {
		if err := p.enableClock(dir, &testing); err != nil {
			return nil, nil, err
		}
	}
	set, err := mongotest.NewReplicaSet(ctx, dir, testing)
	if err != nil {
		return nil, nil, err
	}
	p.set = set
	fmt.Printf("integration: %s: processes at %v\n", name, set.Hosts())
	return set.Set, p, nil
}

// enableClock gives each member a clock.
func (p *mongoProcesses) enableClock(dir string, testing *mongotest.Options) error {
	for range max(testing.Members, 3) {
		clock, err := serverprocess.NewClock(dir)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		p.clocks = append(p.clocks, clock)
	}
	testing.Env = func(member int) []string { return p.clocks[member].Env() }
	return nil
}

func (p *mongoProcesses) setClock(_ context.Context, member int, offset time.Duration) error {
	if p.clocks == nil {
		return errNoClock
	}
	return p.clocks[member].Set(offset)
}

func (p *mongoProcesses) kill(_ context.Context, member int) error { return p.set.Kill(member) }

func (p *mongoProcesses) restart(ctx context.Context, member int) error {
	return p.set.Restart(ctx, member)
}

func (p *mongoProcesses) pause(_ context.Context, member int) error  { return p.set.Pause(member) }
func (p *mongoProcesses) resume(_ context.Context, member int) error { return p.set.Resume(member) }

func (p *mongoProcesses) cutOff(context.Context, int) error {
	return fmt.Errorf("%w: processes on loopback cannot be cut off from each other; containers can", ErrUnsupported)
}

func (p *mongoProcesses) rejoin(ctx context.Context, member int) error { return p.cutOff(ctx, member) }

func (p *mongoProcesses) directAddress(_ context.Context, member int) (string, error) {
	return p.set.Hosts()[member], nil
}

func (p *mongoProcesses) remove() error { return p.set.Remove() }
