package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/cas/castest"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/dynamo"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// A write whose condition does not hold is a conflict, and brings the present record.
func TestConflict(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	s, ctx := open(t, configFor(server.Endpoint()), WithPrefix("team")).store, t.Context()
	first, err := s.Put(ctx, "k", []byte("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Put(ctx, "k", []byte("2"), first.Version)
	if err != nil || second.Version == first.Version {
		t.Fatal(second, err)
	}
	for what, version := range map[string]string{"there is a value": "", "an old version": first.Version} {
		_, err := s.Put(ctx, "k", []byte("3"), version)
		var refused *cas.RefusedError
		if !errors.As(err, &refused) || string(refused.Present.Data) != "2" || refused.Present.Version != second.Version {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, version := range map[string]string{"a missing item": first.Version, "no version": "2", "that of no record": versionOf("")} {
		if _, err := s.Put(ctx, "absent", []byte("3"), version); !errors.Is(err, cas.ErrConflict) || errors.As(err, new(*cas.RefusedError)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if server.Item("team/absent") != nil || server.Item("k") != nil || *server.Item("team/k")[attrRecord].S != "2" {
		t.Errorf("the items are %v", server.Keys())
	}
	if v, err := s.Get(ctx, "absent"); err != nil || v.Version != "" {
		t.Errorf("a missing value is %+v, %v", v, err)
	}
}

// Every read is strongly consistent: one that is not can show a lock as free that has a holder.
func TestReadsAreConsistent(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := open(t, configFor(server.Endpoint()))
	acquire(t, l, "n", "a")
	if _, err := l.Inspect(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	if _, errs := l.InspectBatch(t.Context(), "", []string{"n", "m"}); errors.Join(errs...) != nil {
		t.Error(errs)
	}
	for _, err := range l.List(t.Context(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	reads := server.Requests("GetItem") + server.Requests("BatchGetItem") + server.Requests("Scan")
	if weak := server.WeakReads(); weak != 0 || reads < 4 {
		t.Errorf("%d of %d reads are not strongly consistent", weak, reads)
	}
}

// A write that meets a transaction is tried again, and the lock is granted.
func TestTransactionConflict(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := open(t, configFor(server.Endpoint()))
	refused := 0
	server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
		if r.Action == "PutItem" && refused < 3 {
			refused++
			return dynamodbtest.Fault{Status: 400, Code: dynamo.CodeTransaction}
		}
		return dynamodbtest.Fault{}
	})
	acquire(t, l, "n", "a")
	if gets := server.Requests("GetItem"); refused != 3 || gets != 4 {
		t.Errorf("%d refusals, %d reads", refused, gets)
	}
}

// What passes is no lasting error: the request is made once only, and can be made again.
func TestBusy(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := open(t, configFor(server.Endpoint()))
	lease := acquire(t, l, "n", "a")
	faults := []dynamodbtest.Fault{{Status: 500, Code: "InternalServerError"}, {Status: 503, Code: "ServiceUnavailable"},
		{Status: 502, Message: "<html>"}, {Status: 429}, {Status: 307}, {Status: 404, Message: "not here"},
		{Status: 403, Message: "<html>a proxy"}}
	for _, code := range []string{"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded",
		"LimitExceededException", "TransactionConflictException", "ReplicatedWriteConflictException"} {
		faults = append(faults, dynamodbtest.Fault{Status: 400, Code: code})
	}
	for _, fault := range faults {
		server.SetFaults(func(dynamodbtest.Request) dynamodbtest.Fault { return fault })
		before := server.Requests("GetItem")
		if _, err := l.Inspect(t.Context(), "n"); err == nil || driver.OutcomeKnown(err) || server.Requests("GetItem") != before+1 {
			t.Errorf("%v: %v after %d requests", fault, err, server.Requests("GetItem")-before)
		}
		before = server.Requests("PutItem")
		if _, err := l.store.Put(t.Context(), "n", nil, "=1"); err == nil || driver.OutcomeKnown(err) ||
			errors.Is(err, cas.ErrConflict) != (fault.Code == dynamo.CodeTransaction) || server.Requests("PutItem") != before+1 {
			t.Errorf("%v: a write: %v after %d requests", fault, err, server.Requests("PutItem")-before)
		}
		server.SetFaults(nil)
		var err error
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Fatalf("after %v: %v", fault, err)
		}
	}
}

// An answer that is no JSON is none of DynamoDB: a proxy's page must not count as a write that was done.
func TestNoDynamoDB(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := open(t, configFor(server.Endpoint()))
	server.SetFaults(func(dynamodbtest.Request) dynamodbtest.Fault {
		return dynamodbtest.Fault{Status: 200, Message: "<html>log in</html>"}
	})
	_, get := l.store.Get(t.Context(), "n")
	_, put := l.store.Put(t.Context(), "n", []byte("2"), "=1")
	_, _, list := l.store.List(t.Context(), "", "")
	_, batch := l.store.GetBatch(t.Context(), []string{"n", "m"})
	for what, err := range map[string]error{"Get": get, "Put": put, "List": list, "GetBatch": batch} {
		if !errors.Is(err, dynamo.ErrNoDynamoDB) || driver.OutcomeKnown(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A hold survives an outage that is shorter than its lease, and the answers that are lost or come twice meanwhile.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	proxy := castest.NewProxy(t, server.Addr())
	l := open(t, configFor("http://"+proxy.Addr()))
	lease := acquire(t, l, "n", "a")
	for _, mode := range []castest.Mode{castest.Refuse, castest.LoseAnswers, castest.Stall, castest.Double} {
		proxy.Set(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		next, err := l.Renew(ctx, lease)
		cancel()
		if err == nil {
			lease = next
		} else if driver.OutcomeKnown(err) || showsSecret(err.Error()) {
			t.Errorf("mode %d: %v", mode, err)
		}
		proxy.Set(castest.Pass)
		proxy.Cut() // the connection of a doubled request
		if lease, err = l.Renew(t.Context(), lease); err != nil {
			t.Fatalf("after mode %d: %v", mode, err)
		}
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}

// A write that is done twice, or done without an answer, is granted once, and its holder is known.
func TestDoubtfulWrites(t *testing.T) {
	t.Parallel()
	for what, fault := range map[string]dynamodbtest.Fault{"twice": {Twice: true}, "unanswered": {Unanswered: true}} {
		server := dynamodbtest.Start(t)
		l := open(t, configFor(server.Endpoint()))
		writes := 0
		server.SetFaults(func(r dynamodbtest.Request) dynamodbtest.Fault {
			if r.Action != "PutItem" {
				return dynamodbtest.Fault{}
			}
			if writes++; writes%2 == 0 {
				return dynamodbtest.Fault{}
			}
			return fault
		})
		lease := acquire(t, l, "n", "a")
		if _, err := try(t, l, "n", "b"); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s: a second holder: %v", what, err)
		}
		lease, err := l.Renew(t.Context(), lease)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		next := acquire(t, l, "n", "b")
		if present, ok := cas.ReadPresent([]byte(*server.Item("n")[attrRecord].S)); !ok || present.Grants != 2 || next.Token <= lease.Token {
			t.Errorf("%s: %+v, the token %d after %d", what, present, next.Token, lease.Token)
		}
	}
}

// An item that somebody has edited or that belongs to others is never written, and one that was deleted ends its hold.
func TestForeignItems(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := open(t, configFor(server.Endpoint()))
	lease := acquire(t, l, "n", "a")
	whole := server.Item("n")
	record := *whole[attrRecord].S
	yes := true
	for what, edited := range map[string]dynamodbtest.Item{
		"a text":           {attrRecord: dynamodbtest.Text("hello")},
		"an empty text":    {attrRecord: dynamodbtest.Text("")},
		"no record":        {},
		"another type":     {attrRecord: dynamodbtest.Attribute{BOOL: &yes}},
		"half a record":    {attrRecord: dynamodbtest.Text(record[:len(record)/2])},
		"another lock's":   {attrRecord: dynamodbtest.Text(strings.Replace(record, `"name":"n"`, `"name":"m"`, 1))},
		"one with a clock": {attrRecord: dynamodbtest.Text(strings.Replace(record, driver.ByObservation.String(), driver.ByServer.String(), 1))},
	} {
		edited[attrKey], edited["about"] = dynamodbtest.Text("n"), dynamodbtest.Text("a person's")
		server.SetItem("n", edited)
		_, err := try(t, l, "n", "b")
		if _, renewed := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrDamaged) || !errors.Is(renewed, driver.ErrDamaged) {
			t.Errorf("%s: %v, %v", what, err, renewed)
		}
		if _, kept := server.Item("n")["about"]; !kept {
			t.Errorf("%s was overwritten", what)
		}
	}
	// An edit that leaves a whole record is seen too, by one who does not know of it.
	server.SetItem("n", dynamodbtest.Item{attrKey: dynamodbtest.Text("n"), attrRecord: dynamodbtest.Text(strings.Replace(record, "host-a",
		"host-b", 1))})
	if _, err := l.store.Put(t.Context(), "n", []byte("x"), versionOf(record)); !errors.As(err, new(*cas.RefusedError)) {
		t.Errorf("a write over an edit: %v", err)
	}
	server.SetItem("n", whole)
	var err error
	if lease, err = l.Renew(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	server.SetItem("n", nil)
	if _, err := l.Renew(t.Context(), lease); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a renewal of what was deleted: %v", err)
	}
	if server.Item("n") != nil {
		t.Error("a lost lease was written")
	}
}

// A list has all pages of this prefix, and nothing that lies beside it or deeper.
func TestList(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "team"} {
		server := dynamodbtest.Start(t)
		l := open(t, configFor(server.Endpoint()), WithPrefix(prefix))
		want := pageSize + 5
		for i := range want {
			key := l.store.key(fmt.Sprintf("k%04d", i))[attrKey].S
			server.SetItem(key, dynamodbtest.Item{attrKey: dynamodbtest.Text(key), attrRecord: dynamodbtest.Text(key)})
		}
		for _, other := range []string{"team/deeper/k", "other/k", "team2/k", "k/.guarded", "team/k/.guarded"} {
			server.SetItem(other, dynamodbtest.Item{attrKey: dynamodbtest.Text(other)})
		}
		got := map[string]bool{}
		for page, pages := "", 0; ; {
			items, next, err := l.store.List(t.Context(), "k", page)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range items {
				if got[item.Key] = true; string(item.Data) != l.store.prefix+item.Key {
					t.Errorf("%s has the record %s", item.Key, item.Data)
				}
			}
			if pages++; next == "" {
				break
			}
			page = next
		}
		if len(got) != want || !got["k0000"] {
			t.Errorf("prefix %q: %d keys, want %d", prefix, len(got), want)
		}
	}
}

// A batch has the value of each key, in order, also if DynamoDB reads some of them later.
func TestGetBatch(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	s := open(t, configFor(server.Endpoint()), WithPrefix("team")).store
	var keys []string
	for i := range 130 {
		keys = append(keys, fmt.Sprintf("k%03d", i))
		if i%3 > 0 {
			if _, err := s.Put(t.Context(), keys[i], []byte(keys[i]), ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	values, err := s.GetBatch(t.Context(), keys)
	if err != nil || len(values) != len(keys) {
		t.Fatal(len(values), err)
	}
	for i, v := range values {
		if want := (i%3 > 0); (v.Version != "") != want || want && string(v.Data) != keys[i] {
			t.Errorf("%s: %+v", keys[i], v)
		}
	}
	server.SetFaults(func(dynamodbtest.Request) dynamodbtest.Fault {
		return dynamodbtest.Fault{Status: 200, Message: `{"UnprocessedKeys":{"locks":{"Keys":[{"name":{"S":"team/k000"}},{"name":{"S":"team/k001"}}]}}}`}
	})
	if _, err := s.GetBatch(t.Context(), keys[:2]); err == nil || !strings.Contains(err.Error(), "throttled") || driver.OutcomeKnown(err) {
		t.Errorf("a batch of which nothing was read: %v", err)
	}
	server.SetFaults(func(dynamodbtest.Request) dynamodbtest.Fault {
		return dynamodbtest.Fault{Status: 200, Message: `{"Responses":{"locks":[{"name":{"S":"other"},"record":{"S":"x"}}]}}`}
	})
	if _, err := s.GetBatch(t.Context(), keys[:2]); !errors.Is(err, dynamo.ErrNoDynamoDB) {
		t.Errorf("an item that was not asked for: %v", err)
	}
}

// The calls cost as many requests as the page says.
func TestRequests(t *testing.T) {
	t.Parallel()
	var sent atomic.Int32
	l := open(t, configFor(dynamodbtest.Start(t).Endpoint()), func(c *settings) { c.sent = func() { sent.Add(1) } })
	costs := func(what string, want int32, call func() error) {
		t.Helper()
		before := sent.Load()
		if err := call(); err != nil || sent.Load()-before != want {
			t.Errorf("%s: %d requests, want %d, %v", what, sent.Load()-before, want, err)
		}
	}
	var lease driver.Lease
	costs("open for reading", 0, func() error { return nil })
	costs("acquire", 2, func() error { lease = acquire(t, l, "n", "a"); return nil })
	costs("renew", 1, func() (err error) { lease, err = l.Renew(t.Context(), lease); return err })
	costs("refused", 1, func() error {
		if _, err := try(t, l, "n", "b"); !errors.Is(err, driver.ErrHeld) {
			return err
		}
		return nil
	})
	costs("release", 1, func() error { return l.Release(t.Context(), lease) })
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	l2 := open(t, configFor(dynamodbtest.Start(t).Endpoint()), func(c *settings) { c.sent = func() { sent.Add(1) } })
	before := sent.Load()
	if _, errs := l2.InspectBatch(t.Context(), "", names); errors.Join(errs...) != nil {
		t.Error(errors.Join(errs...))
	}
	if n := sent.Load() - before; n != 100 { // the server of the test reads ten at a time
		t.Errorf("%d requests for 1,000 names", n)
	}
}

// The longest record that a lock can have fits into an item, and a batch of them into an answer.
func TestLongestRecord(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t) // it refuses what is longer than an item of DynamoDB
	l := open(t, configFor(server.Endpoint()), WithHistory(driver.MaxHistory))
	limits := l.Info().Limits
	long := strings.Repeat("<", 1024) // in JSON each is six characters
	r := driver.Request{Name: long[:limits.MaxName], Owner: long[:limits.MaxOwner], TTL: time.Minute}
	for i := range driver.MaxHistory + 2 {
		r.ID = driver.NewLeaseID(fmt.Sprint("id-", i))
		lease, err := l.TryAcquire(t.Context(), r)
		if err != nil {
			t.Fatal(i, err)
		}
		if i == 0 {
			at := driver.DataRevision{Token: lease.Token}
			if err := l.WriteData(t.Context(), lease, make([]byte, limits.MaxData), at); err != nil {
				t.Fatalf("%.3000s", driver.ErrorText(err))
			}
		}
		if i > driver.MaxHistory {
			break
		}
		if err := l.Release(t.Context(), lease); err != nil {
			t.Fatal(i, err)
		}
	}
	text, err := json.Marshal(server.Item(server.Keys()[0]))
	if len(text) < 180<<10 || len(text)*maxKeys > 8<<20 || err != nil {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	t.Logf("an item of %d bytes, in JSON", len(text))
}
