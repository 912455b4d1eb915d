package azblob

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/driver"
)

// The metadata of a lock's blob. The keys have no dashes, which the service refuses, and no
// underscores, with which some proxies drop headers.
const (
	keyVersion  = "holdfastv"
	keyID       = "holdfastid"
	keyToken    = "holdfasttoken"
	keyOwner    = "holdfastowner"    // percent-encoded
	keyTTL      = "holdfastttl"      // seconds
	keyAcquired = "holdfastacquired" // RFC 3339, by the service's clock
	keyWrites   = "holdfastwrites"   // number of data writes, and the last one's mark; missing before the first
	keyHistory  = "holdfasthistory"  // see driver.FormatHistory
	version     = "1"
)

const (
	// maxMetadata is the service's limit of 8 KiB for all names and values, less the header prefix of
	// each name, which other services may count.
	maxMetadata  = 8<<10 - 512
	maxPastOwner = 64 // in bytes, of an owner in the history
)

// lastToken cannot be exceeded, since tokens have 63 bits, so a record that has it is damaged.
const lastToken = math.MaxInt64

var keys = []string{keyVersion, keyID, keyToken, keyOwner, keyTTL, keyAcquired, keyWrites}

// record is the content of the metadata: the last grant. Only the lease shows whether it is
// still in effect.
type record struct {
	id        string // lease ID; empty before the first grant
	owner     string
	token     uint64
	ttl       time.Duration
	acquired  time.Time
	writes    uint64             // data writes since the grant
	writeMark string             // the mark of the last of them
	others    map[string]*string // other metadata, such as a [Fence]'s
	history   []driver.Tenure    // the latest last
}

// parse decodes metadata. The service returns the keys in any case.
func parse(metadata map[string]*string) (record, error) {
	r := record{others: map[string]*string{}}
	fields := map[string]string{}
	for key, value := range metadata {
		if key = strings.ToLower(key); slices.Contains(keys, key) && value != nil {
			fields[key] = *value
		} else if key == keyHistory && value != nil {
			r.history = driver.ParseHistory(*value) // without what is damaged: nothing depends on it
		} else {
			r.others[key] = value
		}
	}
	if len(fields) == 0 {
		return r, nil
	}
	if v := fields[keyVersion]; v != version {
		return r, driver.Damaged(fmt.Errorf("the blob's metadata have version %.20q, but this version of Holdfast reads only %s: "+
			"see docs/upgrading.md", v, version))
	}
	var err error
	fail := func(key string) (record, error) {
		return r, driver.Damaged(fmt.Errorf("the blob's metadata are damaged: %s is malformed", key))
	}
	var ok bool
	if r.id, ok = canonicalID(fields[keyID]); !ok {
		return fail(keyID)
	}
	if r.token, err = strconv.ParseUint(fields[keyToken], 10, 63); err != nil || r.token == 0 || r.token == lastToken {
		return fail(keyToken)
	}
	if r.owner, err = url.PathUnescape(fields[keyOwner]); err != nil {
		return fail(keyOwner)
	}
	seconds, err := strconv.ParseUint(fields[keyTTL], 10, 16)
	if r.ttl = time.Duration(seconds) * time.Second; err != nil || driver.ValidateTTL(r.ttl, limits) != nil {
		return fail(keyTTL)
	}
	// In UTC, a year next to 0 or 9999 may become one that cannot be written back.
	if r.acquired, err = time.Parse(time.RFC3339, fields[keyAcquired]); err != nil || r.acquired.UTC().Year() < 0 ||
		r.acquired.UTC().Year() > 9999 {
		return fail(keyAcquired)
	}
	if text, ok := fields[keyWrites]; ok {
		count, mark, _ := strings.Cut(text, " ")
		if r.writes, err = strconv.ParseUint(count, 10, 62); err != nil {
			return fail(keyWrites)
		}
		r.writeMark = mark
	}
	return r, nil
}

// metadata returns all metadata of the blob, since every write replaces them.
func (r record) metadata() map[string]*string {
	m := make(map[string]*string, len(r.others)+8)
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
		writes := strconv.FormatUint(r.writes, 10) + " " + r.writeMark
		m[keyWrites] = &writes
	}
	if history := r.historyWithin(maxMetadata - size(m)); history != "" {
		m[keyHistory] = &history
	}
	return m
}

// historyWithin is the history in at most so many bytes, with its key.
func (r record) historyWithin(limit int) (text string) {
	for past := r.history; len(past) > 0; past = past[1:] {
		if text = driver.FormatHistory(past); len(keyHistory)+len(text) <= limit {
			return text
		}
	}
	return ""
}

// size is the length of all names and values.
func size(metadata map[string]*string) (n int) {
	for key, value := range metadata {
		if n += len(key); value != nil {
			n += len(*value)
		}
	}
	return n
}

// tenure is the record as a past one. How it ended only the state of the lease can tell, until the
// next one: renewals and releases write no metadata.
func (r record) tenure(state *lease.StateType) driver.Tenure {
	t := driver.Tenure{Owner: shortened(r.owner), Token: r.token, From: r.acquired}
	if state != nil {
		switch *state {
		case lease.StateTypeAvailable:
			t.End = driver.EndReleased
		case lease.StateTypeExpired:
			t.End = driver.EndExpired
		case lease.StateTypeBroken:
			t.End = driver.EndBroken
		case lease.StateTypeLeased, lease.StateTypeBreaking: // by the next one
		}
	}
	return t
}

func shortened(owner string) string {
	if len(owner) <= maxPastOwner {
		return owner
	}
	cut := maxPastOwner - len("…")
	for cut > 0 && !utf8.RuneStart(owner[cut]) {
		cut--
	}
	return owner[:cut] + "…"
}

// pastHolders returns the history as [driver.Record] has it. present says that the record is that of
// the holder.
func (r record) pastHolders(present bool, state *lease.StateType) []driver.Tenure {
	past := slices.Clone(r.history)
	if r.id != "" && !present {
		past = append(past, r.tenure(state))
	}
	slices.Reverse(past)
	return past
}

// nextGrant is the record of a grant at the service's time now. It keeps so many past holders.
func (r record) nextGrant(req driver.Request, id string, now time.Time, keep int) record {
	past := r.pastHolders(false, nil)
	past = past[:min(len(past), keep)]
	slices.Reverse(past)
	return record{
		id: id, owner: req.Owner, ttl: req.TTL, acquired: now, others: r.others, history: past,
		// Promise 3: greater than the last token, and than one that was removed with its blob, once
		// the service's clock has passed it.
		token: max(r.token+1, uint64(max(now.UnixMilli(), 0))),
	}
}

// dataRevision identifies the state of the data.
func (r record) dataRevision() driver.DataRevision {
	return driver.DataRevision{Token: r.token, Writes: r.writes}
}

func (r record) lease(req driver.Request) driver.Lease {
	return driver.Lease{Name: req.Name, ID: req.ID, Owner: r.owner, Token: r.token, TTL: req.TTL}
}
