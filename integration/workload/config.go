//go:build unix

package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"
)

// envConfig is the variable in which a process finds its Config.
const envConfig = "HOLDFAST_WORKLOAD"

// Config is what a process does.
type Config struct {
	// Client is the number of the client, Process that of the process, from 1.
	Client, Process int
	// Dir is where its history is written, and what it logs.
	Dir string
	// Store is the URL of the Store.
	Store string
	// URL is the backend of the lock, Lock its name.
	URL, Lock string
	// Dial says, for addresses of MongoDB's servers, which to dial instead: those of
	// proxies.
	Dial map[string]string
	// TTL of the lock, and how often to ask for it where nothing wakes a waiter; 0
	// means the backend's default.
	TTL, Poll time.Duration
	// Waiters is how many goroutines of the process want the lock, each for itself; 0
	// means one. Among several the lock is handed over within the process.
	Waiters int
	// Hold is how long it holds the lock at most. One time in twenty it holds it for
	// Long, if that is more than 0: long enough to need renewals. Between is how long
	// it waits at most before it wants the lock again.
	Hold, Long, Between time.Duration
}

func (c Config) scheme() string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return ""
	}
	return u.Scheme
}

func (c Config) environ() (string, error) {
	b, err := json.Marshal(c)
	return envConfig + "=" + string(b), err
}

func configFromEnv() (c Config, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(envConfig)), &c); err != nil {
		return c, fmt.Errorf("workload: %s: %w", envConfig, err)
	}
	if c.Process < 1 || c.Hold <= 0 || c.Between <= 0 || c.TTL <= 0 {
		return c, errors.New("workload: " + envConfig + ": Process, Hold, Between and TTL must be more than 0")
	}
	return c, nil
}
