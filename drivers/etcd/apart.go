package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/guard"
	"github.com/holdfast-go/holdfast/driver/lockrecord"
)

// apart returns the URL of a longer prefix, for which the user's role is valid, too.
func apart(rawURL, name string) (own string, remove func(context.Context) error) {
	prefix, err := prefixOf(rawURL)
	if err != nil {
		return rawURL, func(context.Context) error { return err }
	}
	base, query, found := strings.Cut(rawURL, "?")
	scheme, address, _ := strings.Cut(base, "://")
	authority, _, _ := strings.Cut(address, "/")
	own = scheme + "://" + authority + "/" + prefix + "/" + name
	if found {
		own += "?" + query
	}
	return own, func(ctx context.Context) error { return deleteAll(ctx, own) }
}

// prefixOf returns the prefix of a URL.
func prefixOf(rawURL string) (string, error) {
	_, own, err := parse(rawURL)
	if err != nil {
		return "", connectError(err)
	}
	c, err := newSettings(own)
	return c.prefix, connectError(err)
}

const removeLimit = 30 * time.Second

// deleteAll deletes every key with the prefix of a URL.
func deleteAll(ctx context.Context, rawURL string) error {
	l, err := Open(ctx, rawURL, onlyReads)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	limited, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	prefix := l.store.key("")
	return driverutil.OpError("remove", backend, "", l.store.ask(limited, call{method: methodDeleteRange,
		body: rangeRequest{Key: []byte(prefix), RangeEnd: endOf(prefix)}}, &headed{}))
}

// writeGuarded implements [driver.Description.WriteGuarded], as a program does with [TokenKey].
func writeGuarded(ctx context.Context, locks driver.Locker, lease driver.Lease, value string) (before string, err error) {
	l, err := guard.LockerOf[Locker](locks)
	if err != nil {
		return "", err
	}
	key := []byte(l.store.key(lockrecord.Key(lease.Name)) + "/.guarded")
	t := txnRequest{
		Compare: []compare{{Key: []byte(TokenKey(l.store.prefix, lease.Name)), Target: targetValue, Value: tokenValue(lease.Token)}},
		Success: []operation{{Put: &putRequest{Key: key, Value: []byte(value), PrevKV: true}}},
	}
	var a txnAnswer
	switch err := l.store.ask(ctx, call{method: methodTxn, body: t, writes: true}, &a); {
	case err != nil:
		return "", driverutil.OpError("guard", backend, lease.Name, err)
	case !a.Succeeded:
		return "", driverutil.OpError("guard", backend, lease.Name, fmt.Errorf("%w: a later holder was granted the lock", driver.ErrLost))
	case len(a.Responses) != 1:
		return "", driverutil.OpError("guard", backend, lease.Name, errNoEtcd)
	}
	if previous := a.Responses[0].Put.PrevKV; previous != nil {
		before = string(previous.Value)
	}
	return before, nil
}
