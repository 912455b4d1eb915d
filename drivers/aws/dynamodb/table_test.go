package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/dynamodbtest"
)

// The table is made on demand, with what a table for locks needs, once, and that is logged. All that open it at the same time get it.
func TestTableIsMade(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	server.SetTable(dynamodbtest.Table, nil)
	var log bytes.Buffer
	var mu sync.Mutex
	logger := WithLogger(slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			l, err := New(t.Context(), configFor(server.Endpoint()), dynamodbtest.Table, logger, func(c *settings) { c.rounds = 1 })
			if err != nil {
				t.Error(err)
				return
			}
			if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	made := server.TableNamed(dynamodbtest.Table)
	billing, _ := made["BillingModeSummary"].(map[string]any)
	if made == nil || billing["BillingMode"] != "PAY_PER_REQUEST" {
		t.Errorf("the table is %v", made)
	}
	if strings.Count(log.String(), "it was made") != 1 || !strings.Contains(log.String(), "table=locks region=eu-test-1") {
		t.Errorf("the log is %q", &log)
	}
	if before := server.Requests("CreateTable"); before < 1 {
		t.Errorf("%d tables", before)
	}
	openRacing(t, configFor(server.Endpoint()), logger)
	if strings.Count(log.String(), "it was made") != 1 {
		t.Errorf("the log is %q", &log)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// Without the right to make a table the error says how to, and without the right to see it nobody uses it: it may be a global one.
func TestTableRights(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	server.Deny("CreateTable")
	refused := func(what string, wants ...string) {
		t.Helper()
		_, err := New(t.Context(), configFor(server.Endpoint()), dynamodbtest.Table)
		if !errors.Is(err, driver.ErrDenied) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
	}
	allow := server.Deny("DescribeTable")
	refused("may not see it", "the user may not dynamodb:DescribeTable on the table locks")
	allow()
	server.SetTable(dynamodbtest.Table, nil)
	refused("may not make it", "the table locks does not exist in eu-test-1, and this user may not make it (dynamodb:CreateTable)",
		"aws dynamodb create-table --table-name locks --region eu-test-1 --billing-mode PAY_PER_REQUEST --attribute-definitions "+
			"AttributeName=name,AttributeType=S --key-schema AttributeName=name,KeyType=HASH")
}

// A URL that leaves the region to each machine makes no table: another machine would make one of its own elsewhere. It uses one that is
// there.
func TestTableOfEachMachine(t *testing.T) {
	server := dynamodbtest.Start(t)
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": dynamodbtest.KeyID, "AWS_SECRET_ACCESS_KEY": dynamodbtest.Secret,
		"AWS_REGION": dynamodbtest.Region, "AWS_ENDPOINT_URL_DYNAMODB": server.Endpoint(), "AWS_CONFIG_FILE": os.DevNull,
		"AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(name, value)
	}
	try := func(params string) error {
		l, err := Open(t.Context(), "dynamodb://"+dynamodbtest.Table+params, WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return err
		}
		return l.Close(context.WithoutCancel(t.Context()))
	}
	server.SetTable(dynamodbtest.Table, nil)
	if err := try(""); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "add region=eu-test-1, or run: aws dynamodb") {
		t.Errorf("without a region: %v", err)
	}
	if server.Requests("CreateTable") != 0 {
		t.Error("a table was made")
	}
	for _, params := range []string{"?region=" + dynamodbtest.Region, ""} {
		if err := try(params); err != nil {
			t.Errorf("%q: %v", params, err)
		}
	}
	if made := server.Requests("CreateTable"); made != 1 {
		t.Errorf("%d tables were made", made)
	}
}

// A global table of the old version shows itself by what DynamoDB adds to each item.
func TestOldGlobalTable(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l := openRacing(t, configFor(server.Endpoint()))
	acquire(t, l, "n", "a")
	i := server.Item("n")
	region := "us-east-1"
	i["aws:rep:updateregion"] = dynamodbtest.Attribute{S: &region}
	server.SetItem("n", i)
	if _, err := l.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "the version of 2017") {
		t.Error(err)
	}
}

// A table of another layout, a global table and one that is being deleted are refused, and stay as they are. Doctor says the same.
func TestTablesRefused(t *testing.T) {
	t.Parallel()
	schema := func(names ...string) []any {
		var all []any
		for i, name := range names {
			all = append(all, map[string]any{"AttributeName": name, "KeyType": []string{"HASH", "RANGE"}[i]})
		}
		return all
	}
	for what, c := range map[string]struct {
		field string
		value any
		want  string
	}{
		"another key":       {"KeySchema", schema("id"), "has another key"},
		"a sort key":        {"KeySchema", schema("name", "sort"), "has another key"},
		"a number":          {"AttributeDefinitions", []any{map[string]any{"AttributeName": "name", "AttributeType": "N"}}, "has another key"},
		"a global table":    {"Replicas", []any{map[string]any{"RegionName": "us-east-1"}}, "is a global table (with replicas in us-east-1)"},
		"without replicas":  {"GlobalTableVersion", "2019.11.21", "is a global table (of version 2019.11.21)"},
		"being deleted":     {"TableStatus", "DELETING", `the table locks is "DELETING"`},
		"without its key":   {"TableStatus", "INACCESSIBLE_ENCRYPTION_CREDENTIALS", "INACCESSIBLE_ENCRYPTION_CREDENTIALS"},
		"without a key yet": {"KeySchema", nil, "has another key"},
	} {
		server := dynamodbtest.Start(t)
		d := dynamodbtest.Description()
		d[c.field] = c.value
		server.SetTable(dynamodbtest.Table, d)
		_, err := New(t.Context(), configFor(server.Endpoint()), dynamodbtest.Table)
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if writes := server.Requests("PutItem") + server.Requests("CreateTable"); writes != 0 {
			t.Errorf("%s: %d writes", what, writes)
		}
		found := findings(t, open(t, configFor(server.Endpoint())))
		if first, rest, _ := strings.Cut(found, "\n"); !strings.HasPrefix(first, "table: wrong: ") || !strings.Contains(first, c.want) ||
			rest != "" {
			t.Errorf("%s: doctor found\n%s", what, found)
		}
	}
}

// A table that is being updated can be used.
func TestTableIsUpdating(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	d := dynamodbtest.Description()
	d["TableStatus"] = "UPDATING"
	server.SetTable(dynamodbtest.Table, d)
	acquire(t, openRacing(t, configFor(server.Endpoint())), "n", "a")
}

// For a Locker that only reads, the locks of a table that does not exist are free. It makes none, and says so.
func TestMissingTable(t *testing.T) {
	t.Parallel()
	server := dynamodbtest.Start(t)
	l, user := open(t, configFor(server.Endpoint())), openRacing(t, configFor(server.Endpoint()), func(c *settings) { c.rounds = 1 })
	if missing, err := l.MissingStore(t.Context()); missing != "" || err != nil {
		t.Errorf("%q, %v", missing, err)
	}
	server.SetTable(dynamodbtest.Table, nil)
	if r, err := l.Inspect(t.Context(), "n"); err != nil || r.State != driver.StateFree {
		t.Errorf("%+v, %v", r, err)
	}
	records, errs := l.InspectBatch(t.Context(), "", []string{"n", "m"})
	if errors.Join(errs...) != nil || records[1].State != driver.StateFree {
		t.Errorf("%+v, %v", records, errs)
	}
	for r, err := range l.List(t.Context(), "") {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := user.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("a Locker that does not only read: %v", err)
	}
	if missing, err := l.MissingStore(t.Context()); missing != "the table locks in eu-test-1" || err != nil {
		t.Errorf("%q, %v", missing, err)
	}
	if _, err := try(t, l, "n", "a"); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("acquiring: %v", err)
	}
	if found := findings(t, l); !strings.HasPrefix(found, "table: not checked: locks does not exist yet in eu-test-1") {
		t.Errorf("doctor found\n%s", found)
	}
	if err := driver.CheckWrites(t.Context(), l, func(f driver.Finding) { t.Errorf("a race without a table: %+v", f) }); err != nil {
		t.Error(err)
	}
	server.Deny("DescribeTable")
	if missing, err := l.MissingStore(t.Context()); missing != "" || err != nil {
		t.Errorf("without the right to see it: %q, %v", missing, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.MissingStore(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if server.Requests("CreateTable") != 0 {
		t.Error("a table was made")
	}
}
