package mongo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestURLParameters(t *testing.T) {
	got, err := parseURL("mongodb://u:p%40ss@h1:1,h2:2/app?replicaSet=rs0&collection=my%20locks" +
		"&commandTimeout=3s&retention=2h&wake=poll&history=3&maxPoolSize=7")
	if err != nil {
		t.Fatal(err)
	}
	config, err := newConfig(got.options)
	if err != nil {
		t.Fatal(err)
	}
	if got.database != "app" || got.collection != "my locks" || config.timeout != 3*time.Second || config.retention != 2*time.Hour ||
		config.wake != WakePoll || config.history != 3 {
		t.Errorf("got %+v, %+v", got, config)
	}
	if o := got.client; len(o.Hosts) != 2 || *o.ReplicaSet != "rs0" || *o.MaxPoolSize != 7 || o.Auth.Password != "p@ss" ||
		*o.AppName != "holdfast" {
		t.Errorf("got %+v", o)
	}
	if plain, err := parseURL("mongodb://h/app?appName=mine"); err != nil || plain.collection != DefaultCollection ||
		*plain.client.AppName != "mine" {
		t.Errorf("got %+v, %v", plain, err)
	}
}

// Each parameter sets one thing, and none is read as another one.
func TestEveryParameterIsRead(t *testing.T) {
	values := map[string]string{paramCollection: "x", paramCommandTimeout: "2h", driver.ParamHistory: "1", paramRetention: "2h",
		paramWake: "poll"}
	plain, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	setBy := map[string]string{}
	for _, name := range params {
		got, err := parseURL("mongodb://h/app?" + name + "=" + values[name]) // this test must have a value
		if err != nil {
			t.Fatal(err)
		}
		config, err := newConfig(got.options)
		if err != nil {
			t.Fatal(err)
		}
		set := strings.TrimSuffix("collection "+got.collection, "collection "+DefaultCollection)
		for i, was, is := 0, reflect.ValueOf(plain), reflect.ValueOf(config); i < is.NumField(); i++ {
			if fmt.Sprint(is.Field(i)) != fmt.Sprint(was.Field(i)) {
				set += is.Type().Field(i).Name
			}
		}
		if set == "" || setBy[set] != "" {
			t.Errorf("%s sets %q, as %q does", name, set, setBy[set])
		}
		setBy[set] = name
	}
}

// What the URL says comes before the options of the program; the options are for what it does not say.
func TestURLBeforeOptions(t *testing.T) {
	opts := []Option{WithCommandTimeout(4 * time.Second), WithRetention(3 * time.Hour), WithWake(WakePoll), WithHistory(5)}
	for params, want := range map[string]config{
		"":                  {timeout: 4 * time.Second, retention: 3 * time.Hour, wake: WakePoll, history: 5},
		"commandTimeout=3s": {timeout: 3 * time.Second, retention: 3 * time.Hour, wake: WakePoll, history: 5},
		"retention=2h":      {timeout: 4 * time.Second, retention: 2 * time.Hour, wake: WakePoll, history: 5},
		"wake=hints":        {timeout: 4 * time.Second, retention: 3 * time.Hour, wake: WakeHints, history: 5},
		"history=0":         {timeout: 4 * time.Second, retention: 3 * time.Hour, wake: WakePoll},
	} {
		l, err := connect("mongodb://127.0.0.1:1/app?"+params, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.config; got.timeout != want.timeout || got.retention != want.retention || got.wake != want.wake ||
			got.history != want.history {
			t.Errorf("%q: %+v, want %+v", params, got, want)
		}
		if err := l.disconnect(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Each mistake has an error that says what is wrong, and none shows a part of the password.
func TestURLErrors(t *testing.T) {
	const secret = "s3cr3t"
	at := "mongodb://user:" + secret + "@"
	for rawURL, want := range map[string]string{
		at + "127.0.0.1:1/app?colection=x":         `"colection"`,
		at + "127.0.0.1:1/app?waitQueueMultiple=5": "or a connection option that MongoDB's driver for Go has",
		at + "127.0.0.1:1/app?wtimeoutMS=5000": `URL parameter "wtimeoutMS" is invalid: must be left out: MongoDB's driver for Go does ` +
			"not have this option; commandTimeout limits each command",
		at + "127.0.0.1:1/app?WAITQUEUETIMEOUTMS=5000":     `URL parameter "waitQueueTimeoutMS" is invalid: must be left out`,
		at + "127.0.0.1:1/app?tlsAllowInvalidHostnames=1":  "use tlsInsecure",
		at + "127.0.0.1:1/app?collection=":                 "collection",
		at + "127.0.0.1:1/app?collection=%zz":              "collection",
		at + "127.0.0.1:1/app?collection=%00":              "collection",
		at + "127.0.0.1:1/a%00b":                           "without a database",
		at + "127.0.0.1:1/app%0A?collection=x":             `URL database with '\n' at its end`,
		at + "127.0.0.1:1/" + secret + "%0A":               `URL database with '\n' at its end`,
		at + "127.0.0.1:1/app#x":                           `URL database with '#' in it`,
		at + "127.0.0.1:1/app/":                            `URL database with '/' at its end`,
		at + "127.0.0.1:1/app?collection=x%C2%A0":          `URL parameter collection with '\u00a0' at its end`,
		at + "127.0.0.1:1/app?replicaSet=rs0\n":            "URL with white space or an invisible character at an end",
		"mongodb://127.0.0.1:1/app?" + secret + "%2B%2F=1": "not shown",
		at + "127.0.0.1:1/app?commandTimeout=soon":         "commandTimeout",
		at + "127.0.0.1:1/app?commandTimeout=0s":           "command timeout 0s",
		at + "127.0.0.1:1/app?history=33": "URL parameter history 33 is invalid: must be a number of past holders " +
			"from 0 to 32",
		at + "127.0.0.1:1/app?history=all":                             `URL parameter history "all"`,
		"mongodb://user:x?history=" + secret + "@127.0.0.1:1/app":      "",
		at + "127.0.0.1:1/app?wake=up":                                 `wake "up" is invalid: must be hints or poll`,
		at + "127.0.0.1:1/app?wake=stream":                             `wake "stream" is invalid: must be hints or poll`,
		at + "127.0.0.1:1/app?retention=1m":                            "retention 1m is",
		at + "127.0.0.1:1/app?maxPoolSize=many":                        "maxPoolSize",
		at + "127.0.0.1:1":                                             "without a database",
		at + "127.0.0.1:1/?replicaSet=rs":                              "without a database",
		at + "127.0.0.1:x/app":                                         "a port is not a number",
		at + "/app":                                                    "connection string",
		"mongodb://user:" + secret + "@x@127.0.0.1:1/app":              "percent-encoded",
		"mongodb://user:p@" + secret + "/word@127.0.0.1:1/app":         "percent-encoded (%40 for @, %2F for /, %3F for ?)",
		"mongodb+srv://user:p@" + secret + "/word@127.0.0.1/app":       "percent-encoded (%40 for @, %2F for /, %3F for ?)",
		"mongodb://user:%" + secret + "@127.0.0.1:1/app":               "percent-encoded",
		"mongodb://user:" + secret + "/x@127.0.0.1:1/app":              "percent-encoded",
		"mongodb://user:p@" + secret + "/x?y=z@127.0.0.1:1/app":        "percent-encoded",
		"mongodb+srv://user:p@" + secret + "/x?y=z@127.0.0.1/app":      "percent-encoded",
		"mongodb://user:to/p?retention=" + secret + "@127.0.0.1:1/app": "percent-encoded",
		"mongodb://user:to/p?" + secret + "=1@127.0.0.1:1/app":         "percent-encoded",
		at + "127.0.0.1:1/app?appName=me@here":                         "user, password and options must be percent-encoded",
		"mongodb://:" + secret + "@127.0.0.1:1/app":                    "percent-encoded",
		at + "127.0.0.1:1/app?authMechanism=" + secret:                 "percent-encoded",
		at + "127.0.0.1:1/app?authMechanismProperties=" + secret:       "percent-encoded",
		"mongodb://user:" + secret + "/app":                            "is an @ missing",
		"mongodb://app:se:" + secret + "/db":                           "is an @ missing",
		"mongodb://app:" + secret + ":se/db":                           "is an @ missing",
		"mongodb://app:" + secret + "/x/db":                            "is an @ missing",
		"mongodb://app:se," + secret + "/db":                           "is an @ missing",
		"mongodb://app:" + secret + "]/db":                             "is an @ missing",
		"mongodb://app:[" + secret + "/db":                             "is an @ missing",
		"mongodb://app:se%3A" + secret + "/db":                         "is an @ missing",
		"mongodb://app:" + secret + "?x=" + secret + "/db":             "is an @ missing",
		"mongodb://app:se?" + secret + "=x/db":                         "is an @ missing",
		"mongodb://app:" + secret + "127.0.0.1:1/db":                   "is an @ missing",
		"mongodb://" + secret + "%zz/db":                               "is an @ missing",
		"mongodb://app:p@ss:" + secret + ":x/db":                       "is an @ missing",
		"mongodb+srv://app:" + secret + "/db":                          "is an @ missing",
		"mongodb+srv://app:se:" + secret + "/db":                       "is an @ missing",
		"mongodb:///app":                                               "hosts",
		"mongodb://127.0.0.1:1/app?maxPoolSize=many":                   "maxPoolSize",
		at + "x.mongo.cosmos.azure.com:10255/app?ssl=true":             "Azure Cosmos DB",
		at + "x.y.docdb.amazonaws.com/app":                             "Amazon DocumentDB",
		at + "127.0.0.1:1/app?commandTimeout=2s":                       "no primary reachable (127.0.0.1:1 refused the connection)",
		"mongodb+srv://user:" + secret + "@127.0.0.1/app?collection=":  "collection",
	} {
		_, err := driver.Open(t.Context(), rawURL)
		if err == nil {
			t.Errorf("%s: no error", rawURL)
			continue
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			for _, text := range []string{e.Error(), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e)} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: the password is in %s", rawURL, text)
				}
			}
		}
		if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "holdfast: connect to mongodb: ") {
			t.Errorf("%s: got %v, want %q in it", rawURL, err, want)
		}
	}
}

// A URL without credentials is accepted, whatever the form of its hosts.
func TestURLHosts(t *testing.T) {
	for _, rawURL := range []string{
		"mongodb://h/app", "mongodb://h:65535,g/app", "mongodb://[::1]/app", "mongodb://[::1]:27017,h:1/app",
		"mongodb://%2Ftmp%2Fmongodb-1.sock/app",
	} {
		if _, err := parseURL(rawURL); err != nil {
			t.Errorf("%s: %v", rawURL, err)
		}
	}
}

// A server with access control: a wrong password, no privileges, and only those that are
// needed.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	ctx := bounded(t)
	coll := mongotest.CollectionOf(t, mongotest.Connect(t, rs.URI()))
	admin := coll.Database().Client().Database("admin")
	resource := doc{{Key: "db", Value: coll.Database().Name()}, {Key: "collection", Value: coll.Name()}}
	for user, actions := range map[string]list{
		"nothing": {"collStats"}, "core": {"find", "insert", "update"}, "index": {"find", "insert", "update", "createIndex", "listIndexes"},
	} {
		for _, cmd := range []bson.D{
			{{Key: "createRole", Value: user}, {Key: "privileges",
				Value: list{doc{{Key: "resource", Value: resource}, {Key: "actions", Value: actions}}}}, {Key: "roles", Value: list{}}},
			{{Key: "createUser", Value: user}, {Key: "pwd", Value: "pw-" + user}, {Key: "roles", Value: list{user}}},
		} {
			if err := admin.RunCommand(ctx, cmd).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := func(user, password string) (*Locker, *locktest.Log, error) {
		logger, text := locktest.NewLog()
		uri := strings.Replace(rs.URI(), mongotest.AdminUser+":"+mongotest.AdminPassword, user+":"+password, 1)
		l, err := Open(ctx, urlOf(uri, coll, "authSource=admin"), WithLogger(logger))
		if err == nil {
			t.Cleanup(func() { closeLocker(t, l) })
		}
		for _, shown := range []string{fmt.Sprint(err), text.String()} {
			if strings.Contains(shown, password) {
				t.Errorf("the password is in %s", shown)
			}
		}
		return l, text, err
	}
	if _, _, err := open("core", "wr0ng-password"); err == nil || !strings.Contains(err.Error(), "authSource") {
		t.Errorf("with a wrong password: %v", err)
	}
	if _, _, err := open("nothing", "pw-nothing"); err == nil ||
		!strings.Contains(err.Error(), "lacks a privilege on "+coll.Database().Name()+"."+coll.Name()+
			": one of find, insert and update is missing; grant it the role readWrite") || len(err.Error()) > 250 {
		t.Errorf("without rights: %v", err)
	}
	anonymous := strings.Replace(rs.URI(), mongotest.AdminUser+":"+mongotest.AdminPassword+"@", "", 1)
	if _, err := Open(ctx, urlOf(anonymous, coll)); err == nil || !strings.Contains(err.Error(), "the server requires a login") {
		t.Errorf("without a user: %v", err)
	}
	for user, warning := range map[string]string{"core": "not cleaned up", "index": ""} {
		l, text, err := open(user, "pw-"+user)
		if err != nil {
			t.Fatalf("with %s: %v", user, err)
		}
		lease := acquire(t, l, request("n", user))
		if err := errors.Join(errOf(l.Renew(ctx, lease)), l.Release(ctx, lease)); err != nil {
			t.Errorf("with %s: %v", user, err)
		}
		if got := text.String(); !strings.Contains(got, warning) || warning == "" && strings.Contains(got, "WARN") {
			t.Errorf("with %s: logged %q", user, got)
		}
	}
}

// Closing a Locker that was opened by URL disconnects its client. Otherwise goleak, which
// TestMain runs, would report it.
func TestOpenAndClose(t *testing.T) {
	coll := mongotest.Collection(t)
	l, err := Open(bounded(t), urlOf(mongotest.URI(t), coll))
	if err != nil {
		t.Fatal(err)
	}
	acquire(t, l, request("n", "a"))
	closeLocker(t, l)
	if err := l.majority.Database().Client().Ping(context.Background(), nil); err == nil {
		t.Error("the client is still connected")
	}
}

// FuzzURL checks that a URL leads to a database and a collection, or is an *InvalidError. A part of
// a password is never shown, however the password is written.
func FuzzURL(f *testing.F) {
	f.Add("", "", "127.0.0.1:1/app?replicaSet=rs0&collection=my%20locks")
	f.Add("a@b:c/d?e=f&g#h%", "%zz", "h1:1,h2:2/app?commandTimeout=3s&retention=2h")
	f.Add("to/p?retention=", "", "h/app")
	f.Add("to/p?x&", "=1&y", "h/app")
	f.Add("to/p?collection=x&authSource=", "&a", "h/app?tls=true")
	f.Add("p", "", "[::1]:27017/app?maxPoolSize=many")
	f.Add("p", "", "h/%00?collection=%00")
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		const secret = "s3cr3t0f7h3us3r"
		if strings.Contains(strings.ToLower(before+after+rest), "file=") {
			return // an option that reads a file
		}
		password := before + secret + after
		for _, raw := range []string{"mongodb://user:" + password + "@" + rest, "mongodb://" + password + "@" + rest, "mongodb://" + rest} {
			checkURL(t, raw, secret, !strings.Contains(before, "@"))
		}
		if escaped := "mongodb://user:" + url.QueryEscape(password) + "@h/app"; !strings.Contains(escaped, "+") {
			if got, err := parseURL(escaped); err != nil || got.client.Auth.Password != password || got.database != "app" {
				t.Errorf("%q: %+v, error %v", escaped, got, err)
			}
		}
	})
}

// checkURL checks what the URL leads to. If inPassword is false, an unescaped @ comes before the
// secret, and nothing says that the secret is not the host.
func checkURL(t *testing.T, raw, secret string, inPassword bool) {
	t.Helper()
	got, err := parseURL(raw)
	if err != nil {
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, "URL") && invalid.Field != "server" {
			t.Errorf("%q: %v is no *InvalidError about the URL", raw, err)
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q: the password is in %v", raw, err)
		}
		return
	}
	if _, err := newConfig(got.options); err != nil {
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "retention" && invalid.Field != "command timeout" {
			t.Errorf("%q: error %v", raw, err)
		}
	}
	if got.database == "" || got.collection == "" || strings.ContainsAny(got.database+got.collection, "\x00") || len(got.client.Hosts) == 0 {
		t.Errorf("%q: database %q, collection %q, hosts %q", raw, got.database, got.collection, got.client.Hosts)
	}
	if inPassword && strings.Contains(got.database+got.collection+strings.Join(got.client.Hosts, ","), secret) {
		t.Errorf("%q: a part of the password became database %q, collection %q or hosts %q, which are shown", raw, got.database, got.collection,
			got.client.Hosts)
	}
}
