package mysql

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

// identityKey is the key of the row that tells a table from others. It is no lock's.
const identityKey = "~store"

// A URL can begin to lead to another server: by its name, or by a proxy. One that takes writes may be the new primary, with the rows of
// the old one, or one of another cluster, whose table was made on its own: locks there are others. The first program makes a row with a
// random identity, each read brings it along, and each insert compares it. A server cannot say more: each has an identity of its own, and
// nothing counts fail-overs.

// admit checks and remembers the identity of the table that was read. It is empty if the row is missing.
//
// Promise 1: holders in two tables would not exclude each other.
func (s *store) admit(identity string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.identity == "":
		s.identity = identity
	case s.identity != identity:
		return driver.Denied(errors.New("the table is not the one that this program has used: its row ~store is another, or is gone; " +
			"correct the address, or restart the program if the table was replaced or emptied"))
	}
	return nil
}

// identify makes the row of the identity, unless there is one.
func (s *store) identify(ctx context.Context) error {
	none := func(table string) string { return table + " AS l ON FALSE" }
	if _, err := s.read(ctx, none); err != nil || s.known() != "" {
		return err
	}
	value, err := json.Marshal(map[string]string{"about": "This row tells the table from others. Leave it as it is.", "id": rand.Text()})
	if err != nil {
		return err
	}
	_, err = do(ctx, s, func(ctx context.Context, c session) (struct{}, error) {
		_, err := c.exec(ctx, c.insert(identityKey, value, 0, ""))
		if hasCode(err, codeDuplicate) { // another program was faster
			err = nil
		}
		return struct{}{}, err
	})
	if err == nil {
		_, err = s.read(ctx, none)
	}
	if err == nil && s.known() == "" {
		err = errors.New("the row ~store was written, and cannot be read")
	}
	return err
}

// known is the identity of the table, as soon as one was read.
func (s *store) known() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}
