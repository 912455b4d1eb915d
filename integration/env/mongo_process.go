package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

// mongoProcesses are members in local processes, on loopback.
type mongoProcesses struct {
	set    *mongotest.ReplicaSet
	clocks []string // the offset files; nil without FakeClock
}

func newMongoProcesses(ctx context.Context, dir, name string, opts MongoOptions) (*mongotest.Set, members, error) {
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

// enableClock gives each member the shim and an offset file.
func (p *mongoProcesses) enableClock(dir string, testing *mongotest.Options) error {
	code, err := clockShim()
	if err != nil {
		return fmt.Errorf("%w: cannot compile the shim that moves a server's clock: %w", ErrUnsupported, err)
	}
	shim := filepath.Join(dir, "clock.so")
	if err := os.WriteFile(shim, code, 0o700); err != nil {
		return err
	}
	for i := range max(testing.Members, 3) {
		offset := filepath.Join(dir, "clock"+strconv.Itoa(i))
		if err := os.WriteFile(offset, clockOffset(0), 0o600); err != nil {
			return err
		}
		p.clocks = append(p.clocks, offset)
	}
	testing.Env = func(member int) []string {
		return []string{"LD_PRELOAD=" + shim, clockVariable + "=" + p.clocks[member]}
	}
	return nil
}

// setClock writes the file in place, since the shim has mapped it.
func (p *mongoProcesses) setClock(_ context.Context, member int, offset time.Duration) error {
	if p.clocks == nil {
		return errNoClock
	}
	file, err := os.OpenFile(p.clocks[member], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = file.Write(clockOffset(offset))
	return err
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
