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

// configVariable is the environment variable that holds a process's Config, as JSON.
const configVariable = "HOLDFAST_WORKLOAD"

// Config says what a process does.
type Config struct {
	// Client is the number of the client, Process that of the process, from 1.
	Client, Process int
	// Dir is the folder for the history and the log of the process.
	Dir string
	// Store is the URL of the Store.
	Store string
	// URL is the backend of the lock, Lock its name.
	URL, Lock string
	// Dial maps addresses of MongoDB servers to those of the proxies to use instead.
	Dial map[string]string
	// TTL is the TTL of the lock. Poll is the poll interval where nothing wakes a waiter; 0 means
	// the default of the backend.
	TTL, Poll time.Duration
	// Waiters is how many goroutines of the process want the lock; 0 means one.
	Waiters int
	// MaxHold is the longest time for which a goroutine normally holds the lock. One time in
	// twenty it holds the lock for LongHold, if that is more than 0, which needs renewals.
	// MaxIdle is the longest time before it requests the lock again.
	MaxHold, LongHold, MaxIdle time.Duration
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
	return configVariable + "=" + string(b), err
}

func configFromEnv() (c Config, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(configVariable)), &c); err != nil {
		return c, fmt.Errorf("workload: %s: %w", configVariable, err)
	}
	if c.Process < 1 || c.MaxHold <= 0 || c.MaxIdle <= 0 || c.TTL <= 0 {
		return c, errors.New("workload: " + configVariable + ": Process, MaxHold, MaxIdle and TTL must be more than 0")
	}
	return c, nil
}
