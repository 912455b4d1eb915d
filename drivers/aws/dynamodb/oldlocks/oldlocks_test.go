package oldlocks

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

const lease = time.Second

// patience is how long a migrated program watches a row with that lease.
const patience = lease + lease/1000

func value(of dynamodbtest.Item, attribute string) string {
	if a := of[attribute]; a.S != nil {
		return *a.S
	}
	return ""
}

// A row has what the other programs read, in their format. What else is in it stays, but not the clock of a machine.
func TestRows(t *testing.T) {
	t.Parallel()
	server := start(t)
	more := dynamodbtest.Item{"key": dynamodbtest.Text("job"), "ownerName": dynamodbtest.Text("x"),
		"recordVersionNumber": dynamodbtest.Text("v"), "isReleased": dynamodbtest.Text("1"),
		"data": {B: dynamodbtest.Text("aGVsbG8=").S}, "region": dynamodbtest.Text("eu"),
		"lookupTime": dynamodbtest.Text("1700000000000")}
	for _, c := range []struct {
		table                 Table
		before, first, second string
		ttl                   time.Duration
	}{
		{byGo, "20s", "1.001s", "1m30.09s", 90 * time.Second},
		{Table{Name: old, Client: Java}, "20000", "1001", "1503", 1501 * time.Millisecond}, // rounded up
	} {
		more["leaseDuration"] = dynamodbtest.Text(c.before)
		for _, before := range []dynamodbtest.Item{nil, more} {
			server.SetItemOf(old, "job", before)
			l, claim := newLock(t, configFor(server.Endpoint()), c.table, nil), claim("job", "a")
			if err := l.Acquire(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			row := server.ItemOf(old, "job")
			version := value(row, "recordVersionNumber")
			want := []string{"key", "ownerName", "leaseDuration", "recordVersionNumber"}
			if before != nil {
				want = append(want, "data", "region")
			}
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(row)); !slices.Equal(got, want) || value(row, "ownerName") != "Holdfast: me" ||
				value(row, "leaseDuration") != c.first || before != nil && *row["data"].B != "aGVsbG8=" {
				t.Errorf("%+v: the row has %v, %q, %q", c.table, got, value(row, "ownerName"), value(row, "leaseDuration"))
			}
			claim.TTL, claim.Owner = c.ttl, ""
			if err := l.Renew(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			row = server.ItemOf(old, "job")
			if value(row, "leaseDuration") != c.second || value(row, "recordVersionNumber") == version || value(row, "ownerName") != "Holdfast: me" {
				t.Errorf("%+v: after a renewal: %q, %q", c.table, value(row, "leaseDuration"), value(row, "ownerName"))
			}
			claim.TTL = time.Second // a shorter one does not end the lease earlier
			for _, err := range []error{l.Renew(t.Context(), claim), l.Acquire(t.Context(), claim)} {
				if got := value(server.ItemOf(old, "job"), "leaseDuration"); got != c.second || err != nil {
					t.Errorf("%+v: with a shorter TTL: %q, %v", c.table, got, err)
				}
			}
			if err := l.Release(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			if value(server.ItemOf(old, "job"), "isReleased") != "1" {
				t.Error("the row is not released")
			}
		}
	}
	if server.WeakReads() != 0 || server.Requests("DeleteItem") != 0 {
		t.Error("reads are not strongly consistent, or a row was deleted")
	}
}

// A table may have another key, and a sort key.
func TestKeys(t *testing.T) {
	t.Parallel()
	server := start(t)
	server.SetTable(old, described("name", "sort"))
	config := configFor(server.Endpoint())
	one := newLock(t, config, Table{Name: old, SortKey: "a", Client: Dynamolock}, nil)
	two := newLock(t, config, Table{Name: old, SortKey: "b", Client: Dynamolock}, nil)
	for _, err := range []error{one.Acquire(t.Context(), claim("job", "a")), two.Acquire(t.Context(), claim("job", "b")),
		one.Renew(t.Context(), claim("job", "a"))} {
		if err != nil {
			t.Error(err)
		}
	}
	if row := server.ItemOf(old, "job a"); value(row, "name") != "job" || value(row, "sort") != "a" {
		t.Errorf("the row is %v", row)
	}
	var held *driver.HeldError
	if err := two.Acquire(t.Context(), claim("job", "c")); !errors.As(err, &held) || held.Record.Owner != "me" {
		t.Errorf("%v", err)
	}
}

// A row is taken over once this program has itself seen it unchanged for its lease: from the end of a read to the beginning of another.
func TestTakeover(t *testing.T) {
	t.Parallel()
	server := start(t)
	var c clock
	n := newNetwork(t)
	l := newLock(t, n.config(server.Endpoint()), byGo, c.now)
	holder := newOld(t, configFor(server.Endpoint()), c.now)
	if got, err := holder.tryLock(t.Context(), "job"); !got || err != nil {
		t.Fatal(got, err)
	}
	refused := func(what string) {
		t.Helper()
		var held *driver.HeldError
		if err := l.Acquire(t.Context(), claim("job", "a")); !errors.As(err, &held) || held.Record.Owner != "old-host" ||
			held.Record.RemainingKnown {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.advance(time.Hour)
	n.before = func(string) fate { c.advance(lease); return pass } // nobody knows when the row was read
	refused("a row that is seen for the first time")
	n.before = func(string) fate { return pass }
	c.advance(patience)
	refused("a row that is as old as its lease")
	n.before = func(string) fate { c.advance(lease); return pass } // a pause in which the holder may have renewed
	refused("a row that gets older during the read")
	n.before = func(string) fate { return pass }
	holder.held.lookup = c.now()
	if err := holder.heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("a row that was renewed")
	c.advance(patience + 1)
	other := newLock(t, configFor(server.Endpoint()), byGo, c.now)
	if err := other.Acquire(t.Context(), claim("job", "b")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("a program that has just started: %v", err)
	}
	for _, name := range []string{"recordVersionNumber", "isReleased"} { // it is written between the read and the write
		changed := server.ItemOf(old, "job")
		n.before = func(action string) fate {
			if action == "UpdateItem" {
				changed[name] = dynamodbtest.Text("1")
				server.SetItemOf(old, "job", changed)
			}
			return pass
		}
		row := server.ItemOf(old, "job")
		err := l.Acquire(t.Context(), claim("job", "a"))
		if name == "recordVersionNumber" && !errors.Is(err, driver.ErrHeld) || name == "isReleased" && err != nil {
			t.Errorf("%s is written meanwhile: %v", name, err)
		}
		row["recordVersionNumber"] = dynamodbtest.Text("that of another holder after " + name)
		server.SetItemOf(old, "job", row)
		n.before = func(string) fate { return pass }
		refused("another holder")
		c.advance(patience + 1)
	}
	if err := l.Acquire(t.Context(), claim("job", "a")); err != nil {
		t.Errorf("a row that is older than its lease: %v", err)
	}
	if holder.holds() {
		t.Error("the old program still counts on its lock")
	}
	if err := holder.release(t.Context()); !dynamo.HasCode(err, dynamo.CodeCondition) {
		t.Errorf("a late release of the old program: %v", err)
	}
}

// The other programs wait for the lease of a migrated one, take it over afterwards, and take it at once when it is released.
func TestOldProgramsReadMigratedRows(t *testing.T) {
	t.Parallel()
	for _, java := range []bool{false, true} {
		server := start(t)
		var c clock
		l := newLock(t, configFor(server.Endpoint()), tableOf(java), c.now)
		waiter := newOld(t, configFor(server.Endpoint()), c.now)
		waiter.java = java
		try := func(what string, want bool) {
			t.Helper()
			if got, err := waiter.tryLock(t.Context(), "job"); got != want || err != nil {
				t.Errorf("java %v: %s: %v, %v", java, what, got, err)
			}
		}
		if err := l.Acquire(t.Context(), claim("job", "a")); err != nil {
			t.Fatal(err)
		}
		try("held", false)
		c.advance(lease)
		try("as old as the TTL", false)
		if err := l.Renew(t.Context(), claim("job", "a")); err != nil {
			t.Fatal(err)
		}
		c.advance(lease)
		try("renewed", false)
		c.advance(lease + 3*time.Millisecond)
		try("over", true)
		if err := l.Renew(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a renewal after the takeover: %v", err)
		}
		if err := l.Release(t.Context(), claim("job", "a")); err != nil || !waiter.holds() {
			t.Errorf("a release after the takeover: %v", err)
		}
		if err := l.Acquire(t.Context(), claim("job", "b")); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("beside the old program: %v", err)
		}
		if err := waiter.heartbeat(t.Context()); err != nil {
			t.Error(err)
		}
		for _, deletes := range []bool{true, false} {
			waiter.deletes = deletes
			if err := waiter.release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := errors.Join(l.Acquire(t.Context(), claim("job", "b")), l.Release(t.Context(), claim("job", "b"))); err != nil {
				t.Errorf("a lock that is released: %v", err)
			}
			try("released", true)
		}
	}
}

// Neither kind of program can use the rows of the other kind of old clients, so they are refused.
func TestWrongClient(t *testing.T) {
	t.Parallel()
	for java, want := range map[bool]string{true: `has "1000" in leaseDuration, want a time with a unit`,
		false: `has "1s" in leaseDuration, want milliseconds`} {
		server := start(t)
		var c clock
		client := newOld(t, configFor(server.Endpoint()), c.now)
		client.java = java
		if got, err := client.tryLock(t.Context(), "job"); !got || err != nil {
			t.Fatal(got, err)
		}
		for range 2 { // held, and released
			err := newLock(t, configFor(server.Endpoint()), tableOf(!java), c.now).Acquire(t.Context(), claim("job", "a"))
			if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Table.Client") {
				t.Errorf("java %v: %v", java, err)
			}
			_ = client.owned(t.Context(), "UpdateItem", "SET isReleased = :ir", attrs{":ir": text("1")})
		}
		right := newLock(t, configFor(server.Endpoint()), tableOf(java), c.now)
		if err := right.Acquire(t.Context(), claim("job", "a")); err != nil {
			t.Errorf("java %v: released: %v", java, err)
		}
	}
}

// An old program that renews by its owner alone does not renew the lock of a migrated program with the same owner.
func TestRenewalByOwner(t *testing.T) {
	t.Parallel()
	server := start(t)
	var c clock
	l, paused := newLock(t, configFor(server.Endpoint()), byGo, c.now), newOld(t, configFor(server.Endpoint()), c.now)
	paused.ownerOnly, paused.owner = true, "me"
	if got, err := paused.tryLock(t.Context(), "job"); !got || err != nil {
		t.Fatal(got, err)
	}
	if err := l.Acquire(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	c.advance(patience + 1)
	if err := l.Acquire(t.Context(), claim("job", "a")); err != nil {
		t.Fatal(err)
	}
	paused.held.lookup = c.now() // it was paused after it had looked at its clock
	if err := paused.heartbeat(t.Context()); !dynamo.HasCode(err, dynamo.CodeCondition) {
		t.Errorf("the heartbeat of the old program: %v", err)
	}
}

// Requests whose answers are lost can be repeated. Those that are late, or come twice, change nothing once another was done.
func TestLostAndLateRequests(t *testing.T) {
	t.Parallel()
	server := start(t)
	n := newNetwork(t)
	var c clock
	l := newLock(t, n.config(server.Endpoint()), byGo, c.now)
	for _, before := range []string{"", "released", "held"} {
		ours, others := claim("job", "a"), claim("job", "b")
		server.SetItemOf(old, "job", nil)
		if before != "" {
			if err := l.Acquire(t.Context(), others); err != nil {
				t.Fatal(err)
			}
		}
		switch before {
		case "released":
			if err := l.Release(t.Context(), others); err != nil {
				t.Fatal(err)
			}
		case "held":
			if err := l.Acquire(t.Context(), ours); !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
			c.advance(patience + patience/1000 + 1)
		}
		for _, f := range []fate{lose, late, twice} {
			for what, call := range map[string]func() error{
				"acquire": func() error { return l.Acquire(t.Context(), ours) },
				"renew":   func() error { return l.Renew(t.Context(), ours) },
			} {
				if what == "renew" && f != lose {
					if err := l.Acquire(t.Context(), ours); err != nil {
						t.Fatal(before, err)
					}
				}
				n.before = func(action string) fate {
					if action == "UpdateItem" {
						return f
					}
					return pass
				}
				err := call()
				n.before = func(string) fate { return pass }
				switch {
				case f == twice && err != nil, f != twice && (err == nil || driver.OutcomeKnown(err)) && what == "acquire":
					t.Errorf("%q: %s with fate %d: %v", before, what, f, err)
				}
				if err := l.Acquire(t.Context(), ours); err != nil {
					t.Errorf("%q: %s again: %v", before, what, err)
				}
				version := value(server.ItemOf(old, "job"), "recordVersionNumber")
				for len(n.held) > 0 {
					if err := n.arrive(0); err != nil {
						t.Fatal(err)
					}
				}
				if value(server.ItemOf(old, "job"), "recordVersionNumber") != version {
					t.Errorf("%q: a late %s was done after another request", before, what)
				}
			}
		}
		for range 2 {
			n.before = func(string) fate { return lose }
			_ = l.Release(t.Context(), ours)
			n.before = func(action string) fate {
				if action == "UpdateItem" {
					return lose
				}
				return pass
			}
			_ = l.Release(t.Context(), ours)
			n.before = func(string) fate { return pass }
		}
		if value(server.ItemOf(old, "job"), "isReleased") != "1" {
			t.Errorf("%q: the lock is not released", before)
		}
	}
}

// After a release neither a renewal nor a repeated acquisition that is late takes the lock, and a late release touches nobody's lock.
func TestLateRequestsAfterTheRelease(t *testing.T) {
	t.Parallel()
	server := start(t)
	n := newNetwork(t)
	l := newLock(t, n.config(server.Endpoint()), byGo, nil)
	ours := claim("job", "a")
	if err := l.Acquire(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	n.before = func(action string) fate {
		if action == "UpdateItem" {
			return late
		}
		return pass
	}
	for _, err := range []error{l.Renew(t.Context(), ours), l.Acquire(t.Context(), ours), l.Release(t.Context(), ours)} {
		if err == nil || driver.OutcomeKnown(err) {
			t.Error(err)
		}
	}
	n.before = func(string) fate { return pass }
	if err := l.Release(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	arriveAll := func() {
		t.Helper()
		for _, r := range slices.Clone(n.held) {
			again := r.Clone(t.Context())
			again.Body, _ = r.GetBody()
			if err := n.send(again); err != nil {
				t.Fatal(err)
			}
		}
	}
	arriveAll()
	if row := server.ItemOf(old, "job"); value(row, "isReleased") != "1" {
		t.Errorf("the row is %v", row)
	}
	for what, err := range map[string]error{"renewal": l.Renew(t.Context(), ours), "release": l.Release(t.Context(), ours)} {
		if what == "renewal" && !errors.Is(err, driver.ErrLost) || what == "release" && err != nil {
			t.Errorf("a %s after the release: %v", what, err)
		}
	}
	if err := l.Acquire(t.Context(), claim("job", "b")); err != nil {
		t.Fatal(err)
	}
	arriveAll()
	if err := errors.Join(l.Release(t.Context(), ours), l.Renew(t.Context(), claim("job", "b"))); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	server.SetItemOf(old, "job", nil)
	if err := l.Renew(t.Context(), claim("job", "b")); !errors.Is(err, driver.ErrLost) || server.ItemOf(old, "job") != nil {
		t.Errorf("without a row: %v", err)
	}
}

// What cannot be judged is neither free nor replaced, and the error says why, without what proves something.
func TestStrangeRows(t *testing.T) {
	t.Parallel()
	server := start(t)
	const secret = "the-version"
	good := dynamodbtest.Item{"key": dynamodbtest.Text("job"), "ownerName": dynamodbtest.Text("x"), "leaseDuration": dynamodbtest.Text("1s"),
		"recordVersionNumber": dynamodbtest.Text(secret)}
	number, no := dynamodbtest.Attribute{N: dynamodbtest.Text("7").S}, false
	for _, java := range []bool{false, true} {
		l := newLock(t, configFor(server.Endpoint()), tableOf(java), nil)
		good["leaseDuration"] = dynamodbtest.Text("1000")
		if !java {
			good["leaseDuration"] = dynamodbtest.Text("1s")
		}
		for attribute, values := range map[string]map[string]dynamodbtest.Attribute{
			"leaseDuration": {`has nothing in leaseDuration, want `: {}, `has the number 7 in leaseDuration, want `: number,
				`has "-1s" in leaseDuration`: dynamodbtest.Text("-1s"), `has "0" in leaseDuration`: dynamodbtest.Text("0"),
				`has "soon" in leaseDuration`: dynamodbtest.Text("soon")},
			"recordVersionNumber": {"has no string in recordVersionNumber": {}, "has no string in recordVersionNumber, want ": number},
			"ownerName":           {"has nothing in ownerName": {}},
			"isReleased": {`has "0" in isReleased, want "1", or no such attribute`: dynamodbtest.Text("0"),
				`has a value that is no string in isReleased`: {BOOL: &no}, "has the number 7 in isReleased": number},
		} {
			for want, a := range values {
				row := maps.Clone(good)
				if row[attribute] = a; a == (dynamodbtest.Attribute{}) {
					delete(row, attribute)
				}
				server.SetItemOf(old, "job", row)
				for what, err := range map[string]error{"acquire": l.Acquire(t.Context(), claim("job", "a")),
					"renew": l.Renew(t.Context(), claim("job", "a")), "release": l.Release(t.Context(), claim("job", "a"))} {
					if !errors.Is(err, driver.ErrDamaged) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) ||
						!strings.Contains(err.Error(), `the row "job" of the table lockTable`) {
						t.Errorf("%s: %v, want %q", what, err, want)
					}
				}
				if !maps.Equal(server.ItemOf(old, "job"), row) {
					t.Errorf("%s: the row was changed", want)
				}
			}
		}
		server.SetItemOf(old, "job", good)
		var held *driver.HeldError
		if err := l.Acquire(t.Context(), claim("job", "a")); !errors.As(err, &held) || strings.Contains(err.Error(), secret) {
			t.Error(err)
		}
	}
	// A lock that is held for ages.
	good["leaseDuration"], good["ownerName"] = dynamodbtest.Text("9223372036854775807"), dynamodbtest.Text(strings.Repeat("é", 1000))
	server.SetItemOf(old, "job", good)
	var c clock
	l := newLock(t, configFor(server.Endpoint()), Table{Name: old, Client: Java}, c.now)
	for range 2 {
		var held *driver.HeldError
		if err := l.Acquire(t.Context(), claim("job", "a")); !errors.As(err, &held) ||
			held.Record.Owner != strings.Repeat("é", maxOwner/2) {
			t.Error(err)
		}
		c.advance(driver.MaxTTL)
	}
	good["aws:rep:updatetime"] = number
	server.SetItemOf(old, "job", good)
	if err := l.Acquire(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "global table") {
		t.Error(err)
	}
}

func TestTables(t *testing.T) {
	t.Parallel()
	server := start(t)
	global := described("key")
	global["Replicas"] = []any{map[string]any{"RegionName": "us-test-1"}}
	numbers := described("key")
	numbers["AttributeDefinitions"] = []any{map[string]any{"AttributeName": "key", "AttributeType": "N"}}
	making := described("key")
	making["TableStatus"] = "DELETING"
	for what, c := range map[string]struct {
		description map[string]any
		table       Table
		is          error
		want        string
	}{
		"none":                  {nil, byGo, driver.ErrDenied, "correct its name or the region"},
		"an ARN":                {nil, Table{Name: "arn:aws:x", Client: Dynamolock}, driver.ErrInvalid, "not its ARN"},
		"a global table":        {global, byGo, driver.ErrDenied, "global table (with replicas in us-test-1)"},
		"a key of numbers":      {numbers, byGo, driver.ErrDenied, `the key "key" of the table lockTable is no string`},
		"a table being removed": {making, byGo, driver.ErrDenied, `is "DELETING"`},
		"a sort key":            {described("key", "sort"), byGo, driver.ErrInvalid, `the other programs write into "sort"`},
		"no client":             {described("key"), Table{Name: old}, driver.ErrInvalid, `Client "" is invalid`},
		"no sort key":           {described("key"), Table{Name: old, SortKey: "a", Client: Java}, driver.ErrInvalid, "the table has no sort key"},
		"no answer":             {described(), byGo, dynamo.ErrNoDynamoDB, ""},
	} {
		server.SetTable(old, c.description)
		_, err := NewDynamoLock(t.Context(), configFor(server.Endpoint()), c.table)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	server.SetTable(old, described("key"))
	allow := server.Deny("DescribeTable")
	if _, err := NewDynamoLock(t.Context(), configFor(server.Endpoint()), byGo); !errors.Is(err, driver.ErrDenied) ||
		!strings.Contains(err.Error(), "nobody knows whether it is a global table") {
		t.Error(err)
	}
	allow()
	allow = server.Deny("DescribeTimeToLive")
	if _, err := NewDynamoLock(t.Context(), configFor(server.Endpoint()), byGo); !errors.Is(err, driver.ErrDenied) ||
		!strings.Contains(err.Error(), "nobody knows whether DynamoDB deletes rows") {
		t.Error(err)
	}
	allow()
	for _, status := range []string{"ENABLING", "ENABLED", "DISABLING"} {
		server.SetTTL(status, "expires")
		if _, err := NewDynamoLock(t.Context(), configFor(server.Endpoint()), byGo); !errors.Is(err, driver.ErrDenied) ||
			!strings.Contains(err.Error(), `a time to live, by the attribute "expires"`) {
			t.Errorf("%s: %v", status, err)
		}
	}
	server.SetTTL("DISABLED", "")
	bad := configFor(server.Endpoint())
	bad.Region = ""
	if _, err := NewDynamoLock(t.Context(), bad, byGo); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	l := newLock(t, configFor(server.Endpoint()), byGo, nil)
	defer server.Deny("UpdateItem")()
	err := l.Acquire(t.Context(), claim("job", "a"))
	if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "Locks need dynamodb:GetItem, dynamodb:UpdateItem") {
		t.Error(err)
	}
	for _, shown := range []string{dynamodbtest.KeyID, dynamodbtest.Secret, dynamodbtest.SessionToken} {
		if strings.Contains(err.Error(), shown) {
			t.Errorf("the error shows a credential: %v", err)
		}
	}
}

// Each request has a time limit of its own, also without one of the caller. A row that others write all the time is given up.
func TestLimits(t *testing.T) {
	t.Parallel()
	server := start(t)
	n := newNetwork(t)
	l := newLock(t, n.config(server.Endpoint()), byGo, nil)
	c := claim("job", "a")
	for _, err := range []error{l.Acquire(t.Context(), c), l.Renew(t.Context(), c), l.Release(t.Context(), c)} {
		if err != nil {
			t.Error(err)
		}
	}
	if len(n.limits) != 8 || slices.Min(n.limits) <= 0 || slices.Max(n.limits) > dynamo.AskLimit {
		t.Errorf("the limits are %v", n.limits)
	}
	for _, call := range []func() error{func() error { return l.Acquire(t.Context(), c) }, func() error { return l.Renew(t.Context(), c) },
		func() error { return l.Release(t.Context(), c) }} {
		if err := l.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
			if r.Action == "UpdateItem" {
				return dynamodbtest.Fault{Status: 400, Code: dynamo.CodeTransaction}
			}
			return dynamodbtest.Fault{}
		})
		before := server.Requests("UpdateItem")
		if err := call(); !errors.Is(err, errOvertaken) || driver.OutcomeKnown(err) || server.Requests("UpdateItem") != before+tries {
			t.Errorf("%v after %d requests", err, server.Requests("UpdateItem")-before)
		}
		server.SetFaults(nil)
	}
}

// Of several programs that make a row at the same time, one has the lock.
func TestRowsAreMadeOnce(t *testing.T) {
	t.Parallel()
	server := start(t)
	n := newNetwork(t)
	l := newLock(t, n.config(server.Endpoint()), byGo, nil)
	other := newLock(t, configFor(server.Endpoint()), byGo, nil)
	n.before = func(action string) fate {
		if action == "UpdateItem" && server.ItemOf(old, "job") == nil {
			if err := other.Acquire(t.Context(), claim("job", "b")); err != nil {
				t.Error(err)
			}
		}
		return pass
	}
	if err := l.Acquire(t.Context(), claim("job", "a")); !errors.Is(err, driver.ErrHeld) {
		t.Error(err)
	}
}
