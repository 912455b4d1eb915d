package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/driver"
)

// opener makes a client for the backend: [app.openToTake] or [app.openToLook].
type opener func(context.Context, ...holdfast.ClientOption) (*holdfast.Client, error)

// openToTake makes a client that can take and break locks.
func (a *app) openToTake(ctx context.Context, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	return a.open(ctx, nil, opts...)
}

// openToLook makes a client that only reads. Its user needs no right to take locks, and a wrong URL
// makes no folder or collection.
func (a *app) openToLook(ctx context.Context, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	locker, err := driver.OpenForReading(ctx, a.backend)
	if err != nil {
		return nil, err
	}
	return newClient(ctx, locker, opts)
}

// missingStore says which folder, collection or container of the backend does not exist, so that there
// are no locks there yet. It is empty if that exists, or nobody knows.
func (a *app) missingStore(ctx context.Context, client *holdfast.Client) string {
	what, err := findStore(ctx, client)
	if err != nil {
		a.log.Verbosef("%v", err)
	}
	return what
}

func findStore(ctx context.Context, client *holdfast.Client) (missing string, err error) {
	ctx, cancel := context.WithTimeout(ctx, missingTimeout)
	defer cancel()
	return driver.MissingStore(ctx, client.Locker())
}

// reportMissingStore logs that there are no locks on the backend yet.
func (a *app) reportMissingStore(missing string) {
	if missing != "" {
		a.log.Infof("%s", describe.NoLocksYet(missing))
	}
}

// lookFurther reads what a lock's record alone does not show.
func (a *app) lookFurther(ctx context.Context, client *holdfast.Client, record holdfast.Record) describe.Lock {
	seen := describe.Lock{Record: record}
	if record.State == driver.StateFree && record.Token == 0 {
		seen.Missing = a.missingStore(ctx, client)
	}
	if seen.Missing == "" {
		seen.Slots = a.slotsOf(ctx, client, record)
	}
	return seen
}

// slotsOf reads the records of a lock's slots. It returns nil unless a slot other than the first, whose
// record has the lock's own name, is held: then the record of the name says all.
func (a *app) slotsOf(ctx context.Context, client *holdfast.Client, first holdfast.Record) []holdfast.Record {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	slots, held := []holdfast.Record{first}, false
	for record, err := range client.List(ctx, first.Name+"#") {
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return nil
		case err != nil:
			a.log.Errorf("cannot read all slots of %q, if it has any: %v", first.Name, err)
		case slotNumber(first.Name, record.Name) > 0:
			slots, held = append(slots, record), held || record.State != driver.StateFree
		}
	}
	if !held {
		return nil
	}
	slices.SortFunc(slots, func(a, b holdfast.Record) int {
		return slotNumber(first.Name, a.Name) - slotNumber(first.Name, b.Name)
	})
	return slots
}

// slotNumber is the number of a slot, from 2 on, in the name of its record, such as job#2; 0 if that is
// no slot's.
func slotNumber(name, record string) int {
	text, found := strings.CutPrefix(record, name+"#")
	number, err := strconv.Atoi(text)
	if !found || err != nil || number < 2 || strconv.Itoa(number) != text {
		return 0
	}
	return number
}
