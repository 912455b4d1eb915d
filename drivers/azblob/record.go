package azblob

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The metadata of a lock's blob. They have no underscores and no dashes: the
// service refuses the one, and some proxies drop headers with the other.
const (
	keyVersion  = "holdfastv"
	keyID       = "holdfastid"
	keyToken    = "holdfasttoken"
	keyOwner    = "holdfastowner"    // percent-encoded
	keyTTL      = "holdfastttl"      // seconds
	keyAcquired = "holdfastacquired" // RFC 3339, by the service's clock
	keyWrites   = "holdfastwrites"   // of the data: how many, and the last writer's mark; missing before the first
	version     = "1"
)

var keys = []string{keyVersion, keyID, keyToken, keyOwner, keyTTL, keyAcquired, keyWrites}

// record is what the metadata say of the last grant. Whether it still holds is
// for the lease to say.
type record struct {
	id       string // of the lease; empty if there was no grant yet
	owner    string
	token    uint64
	ttl      time.Duration
	acquired time.Time
	writes   uint64             // of the data since then
	writer   string             // the mark of the last of them
	others   map[string]*string // metadata that are not ours, a [Fence]'s among them
}

// parse reads metadata. The service gives the keys in any case.
func parse(metadata map[string]*string) (record, error) {
	r := record{others: map[string]*string{}}
	ours := map[string]string{}
	for key, value := range metadata {
		if key = strings.ToLower(key); slices.Contains(keys, key) && value != nil {
			ours[key] = *value
		} else {
			r.others[key] = value
		}
	}
	if len(ours) == 0 {
		return r, nil
	}
	if v := ours[keyVersion]; v != version {
		return r, fmt.Errorf("the blob's metadata have version %.20q, this program knows %s", v, version)
	}
	var err error
	fail := func(key string) (record, error) {
		return r, fmt.Errorf("the blob's metadata are damaged: %s is not well-formed", key)
	}
	var ok bool
	if r.id, ok = canonical(ours[keyID]); !ok {
		return fail(keyID)
	}
	if r.token, err = strconv.ParseUint(ours[keyToken], 10, 63); err != nil || r.token == 0 {
		return fail(keyToken)
	}
	if r.owner, err = url.PathUnescape(ours[keyOwner]); err != nil {
		return fail(keyOwner)
	}
	seconds, err := strconv.ParseUint(ours[keyTTL], 10, 16)
	if r.ttl = time.Duration(seconds) * time.Second; err != nil || driver.ValidateTTL(r.ttl, limits) != nil {
		return fail(keyTTL)
	}
	if r.acquired, err = time.Parse(time.RFC3339, ours[keyAcquired]); err != nil {
		return fail(keyAcquired)
	}
	if text, ok := ours[keyWrites]; ok {
		count, mark, _ := strings.Cut(text, " ")
		if r.writes, err = strconv.ParseUint(count, 10, 63); err != nil {
			return fail(keyWrites)
		}
		r.writer = mark
	}
	return r, nil
}

// metadata are all that the blob is to have: every write replaces them.
func (r record) metadata() map[string]*string {
	m := make(map[string]*string, len(r.others)+7)
	for key, value := range r.others {
		m[key] = value
	}
	for key, value := range map[string]string{
		keyVersion:  version,
		keyID:       r.id,
		keyToken:    strconv.FormatUint(r.token, 10),
		keyOwner:    url.PathEscape(r.owner),
		keyTTL:      strconv.Itoa(int(r.ttl / time.Second)),
		keyAcquired: r.acquired.UTC().Format(time.RFC3339),
	} {
		m[key] = &value
	}
	if r.writes > 0 {
		writes := strconv.FormatUint(r.writes, 10) + " " + r.writer
		m[keyWrites] = &writes
	}
	return m
}

// next is the record of a grant at the service's time now.
func (r record) next(req driver.Request, id string, now time.Time) record {
	return record{
		id: id, owner: req.Owner, ttl: req.TTL, acquired: now, others: r.others,
		token: max(r.token+1, uint64(max(now.UnixMilli(), 0))),
	}
}

// dataRevision marks the state of the data that the record is about.
func (r record) dataRevision() driver.DataRevision {
	return driver.DataRevision{Token: r.token, Writes: r.writes}
}

func (r record) lease(req driver.Request) driver.Lease {
	return driver.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: r.token, TTL: req.TTL}
}
