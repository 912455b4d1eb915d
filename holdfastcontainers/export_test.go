package holdfastcontainers

import (
	"cmp"
	"os"
	"time"
)

// WithIdle sets how long a backend stays unused before it is removed.
func WithIdle(d time.Duration) Option { return func(s *spec) { s.Idle = d } }

// Keeper returns the process of the backend of a spec, and its containers.
func Keeper(kind string, opts ...Option) (pid int, containers []string) {
	s := spec{Kind: kind, Image: cmp.Or(os.Getenv(MongoImageVariable), DefaultMongoImage), Members: 1, Idle: idleLimit}
	for _, o := range opts {
		o(&s)
	}
	dir, err := s.folder()
	if err != nil {
		return 0, nil
	}
	found, err := readState(dir)
	if err != nil {
		return 0, nil
	}
	return found.Keeper, found.Containers
}
