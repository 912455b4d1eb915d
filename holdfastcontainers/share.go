package holdfastcontainers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// A backend is shared by test processes and belongs to a keeper: a process that starts the
// containers, waits until nobody uses them, and removes them (keeper.go). The keeper is the test
// binary itself, which does nothing else if the variable role is set. All of them meet in a folder
// of the user's cache:
//
//	start.lock   held while a test process looks for the backend or starts a keeper, and while a
//	             keeper removes its containers
//	use.lock     shared by all processes that use the backend, until they end
//	keeper.lock  held by the keeper
//	state.json   written by the keeper when the backend is ready, or has failed
//	keeper.log   the keeper's output

const startLimit = 10 * time.Minute // for a backend, with the pull of its image

// Kinds of backends.
const (
	kindMongo    = "mongo"
	kindAzurite  = "azurite"
	kindPostgres = "postgres"
)

// spec is what a backend must be. Processes with equal specs share a backend.
type spec struct {
	Kind, Image string
	Members     int
	Idle        time.Duration

	membersSet bool
}

// state is what a keeper says of its backend.
type state struct {
	Hosts      []string // addresses
	Containers []string // IDs
	Keeper     int      // its process ID
	Error      string   // why it could not be started
}

// folder returns the folder of a backend. Different Docker engines have different ones.
func (s spec) folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	key, err := json.Marshal([]any{"1", s, os.Getenv("DOCKER_HOST"), os.Getenv("DOCKER_CONTEXT"), os.Getenv("TESTCONTAINERS_HOST_OVERRIDE")})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(key)
	dir := filepath.Join(cache, "holdfastcontainers", s.Kind+"-"+hex.EncodeToString(sum[:8]))
	return dir, os.MkdirAll(dir, 0o700)
}

func readState(dir string) (s state, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

func (s state) write(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "state.json")
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// backends are those that this process uses.
var backends struct {
	mu    sync.Mutex
	found map[spec]state
	uses  []*flock.Flock // held until the process ends
}

// share returns a backend that is ready; an error ends the test.
func share(tb testing.TB, s spec) state {
	tb.Helper()
	s.membersSet = false
	backends.mu.Lock()
	defer backends.mu.Unlock()
	if found, ok := backends.found[s]; ok {
		return found
	}
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	found, use, err := join(ctx, s)
	if err != nil {
		tb.Fatalf("holdfastcontainers: start %s with image %s: %v", s.Kind, s.Image, err)
	}
	if backends.found == nil {
		backends.found = map[spec]state{}
	}
	backends.found[s], backends.uses = found, append(backends.uses, use)
	return found
}

// join finds a backend or starts it. It stays while use is locked.
func join(ctx context.Context, s spec) (found state, use *flock.Flock, err error) {
	dir, err := s.folder()
	if err != nil {
		return state{}, nil, err
	}
	start := flock.New(filepath.Join(dir, "start.lock"))
	if _, err := start.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return state{}, nil, err
	}
	defer func() { err = errors.Join(err, start.Close()) }()
	use = flock.New(filepath.Join(dir, "use.lock"))
	if _, err := use.TryRLockContext(ctx, 20*time.Millisecond); err != nil {
		return state{}, nil, err
	}
	if found, err = running(ctx, dir); err == nil && found.Hosts == nil {
		found, err = launch(ctx, s, dir)
	}
	if err != nil {
		return state{}, nil, errors.Join(err, use.Close())
	}
	return found, use, nil
}

// running returns the backend that a keeper keeps, or a state without hosts if there is no keeper. A keeper that still starts its
// backend, for a process that has ended meanwhile, is awaited. One whose backend does not answer, for example because somebody has
// removed the containers, is ended.
func running(ctx context.Context, dir string) (state, error) {
	keeper := flock.New(filepath.Join(dir, "keeper.lock"))
	for tick := time.Tick(20 * time.Millisecond); ; {
		if free, err := keeper.TryLock(); err != nil || free {
			return state{}, errors.Join(err, keeper.Close())
		}
		if found, err := readState(dir); err == nil {
			if answer(ctx, found.Hosts) {
				return found, nil
			}
			if process, err := os.FindProcess(found.Keeper); err == nil && found.Keeper > 0 {
				_ = process.Kill()
			}
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return state{}, ctx.Err()
		}
	}
}

// answer reports whether all addresses accept connections.
func answer(ctx context.Context, hosts []string) bool {
	for _, host := range hosts {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", host)
		if err != nil {
			return false
		}
		_ = conn.Close()
	}
	return len(hosts) > 0
}

// launch starts a keeper and waits for its backend.
func launch(ctx context.Context, s spec, dir string) (state, error) {
	if err := os.Remove(filepath.Join(dir, "state.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return state{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return state{}, err
	}
	if program, err = lasting(program, dir); err != nil {
		return state{}, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return state{}, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), role+"="+roleStarter, roleSpec+"="+string(text))
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return state{}, fmt.Errorf("%w: %s", err, output)
	}
	found, err := readState(dir)
	if err == nil && found.Error != "" {
		err = errors.New(found.Error)
	}
	return found, err
}
