package mongo

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

// typos are what a mistake leaves at the end of a name: a secret made with echo, a file of another system, quotes of an
// env-file, a comment.
var typos = []string{"\n", "\r\n", "\t", " ", "\"", "'", "`", "#x", "#", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00", "\x7f", "\\n",
	"$x", "\xff"}

// A name with a typo would be another database or collection, with other locks. Two programs of which one has the typo
// would both be granted a lock.
func TestTyposMakeNoOtherLocks(t *testing.T) {
	t.Parallel()
	coll := mongotest.Collection(t)
	db := coll.Database()
	acquire(t, newTestLocker(t, coll), request("job", "a"))
	base, query, _ := strings.Cut(mongotest.URI(t), "?")
	for _, typo := range typos {
		escaped := url.PathEscape(typo)
		for what, rawURL := range map[string]string{
			"database":   base + db.Name() + escaped + "?" + query + "&collection=" + coll.Name(),
			"collection": base + db.Name() + "?collection=" + coll.Name() + escaped + "&" + query,
			"literal":    base + db.Name() + "?" + query + "&collection=" + coll.Name() + strings.ReplaceAll(typo, "\x00", "%00"),
		} {
			l, err := Open(bounded(t), rawURL, WithLogger(discard))
			if err == nil {
				_, err := l.TryAcquire(bounded(t), request("job", "b"))
				t.Errorf("%s with %q was opened; a second holder: %v", what, typo, err == nil)
				closeLocker(t, l)
				continue
			}
			if !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s with %q: %v, want an invalid name", what, typo, err)
			}
		}
	}
}

// The names of a collection that the program gives to New follow the same rule.
func TestNewRefusesTypos(t *testing.T) {
	t.Parallel()
	client := mongotest.Connect(t, mongotest.URI(t))
	for _, typo := range typos {
		for field, coll := range map[string]*mongo.Collection{
			"database": client.Database("app" + typo).Collection("locks"), "collection": client.Database("app").Collection("locks" + typo),
		} {
			_, err := New(bounded(t), coll, WithLogger(discard))
			var invalid *driver.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%s with %q: %v", field, typo, err)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		database, collection, wrong string // the field
	}{
		{"app", "locks", ""}, {"App-1_ü", "my locks", ""}, {"app", "a.b.hints", ""}, {"app", "a/b", ""}, {"نمی\u200cشود", "قفل\u200cها", ""},
		{strings.Repeat("d", 63), strings.Repeat("c", 191), ""},
		{"", "locks", "database"}, {strings.Repeat("d", 64), "locks", "database"}, {"a.b", "locks", "database"}, {"a/b", "locks", "database"},
		{"a b", "locks", "database"}, {"a$b", "locks", "database"}, {"app", "", "collection"}, {"app", ".locks", "collection"},
		{"app", "system.locks", "collection"}, {"app", "a$b", "collection"}, {"app", "a\u00a0b", "collection"},
		{strings.Repeat("d", 63), strings.Repeat("c", 192), "collection"},
	} {
		err := checkNames("database", "collection", c.database, c.collection)
		var invalid *driver.InvalidError
		if got := errors.As(err, &invalid); got != (c.wrong != "") || got && invalid.Field != c.wrong {
			t.Errorf("%q, %q: %v, want %q to be wrong", c.database, c.collection, err, c.wrong)
		}
	}
}
