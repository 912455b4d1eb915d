package mongo

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/holdfast-go/holdfast/driver"
)

// hintsSuffix makes the name of a collection of hints of that of the locks. One of hintsCollections
// digits follows. The server wakes every cursor on a collection for every insert, if only to find
// that the hint is for another, so the waiting processes are spread over several collections.
const (
	hintsSuffix      = ".hints."
	hintsCollections = 16
)

// hintsSize is the size of each capped collection in bytes, enough for hundreds of hints.
const hintsSize = 64 << 10

// The fields of a hint. A hint has no lease ID.
const (
	hintName     = "name"     // of the lock
	hintTo       = "to"       // the ID of the waiter's Locker
	hintPosition = "position" // of the waiter
)

// hints are small documents in capped collections beside the locks, by which a process that
// releases a lock wakes the first waiters of its queue. Each process with waiters follows one
// collection with one tailable cursor, and the server filters out the hints for others. Unlike a
// change stream, such a cursor does not read the oplog, and it works on a standalone server.
//
// A hint promises nothing. It can be lost, doubled, late, or come before a majority has the
// release: then the waiter's own request, which a majority acknowledges, is later in the oplog
// than the release, and certain only together with it.
type hints struct {
	locks *mongo.Collection
	coll  *mongo.Collection // of the hints for this Locker
	me    string            // the ID of this Locker

	connections *connections // of the client
	maxLag      int64        // maxLag, shorter in tests
}

func newHints(locks *mongo.Collection, me string, c *connections) *hints {
	h := &hints{locks: locks, me: me, connections: c, maxLag: maxLag}
	h.coll = h.collectionOf(me)
	return h
}

// collectionOf returns the collection of the hints for a Locker.
func (h *hints) collectionOf(id string) *mongo.Collection {
	number := 0
	if id != "" {
		number = int(id[0]) % hintsCollections
	}
	// A hint is worth nothing to a waiter that would have to wait for a majority.
	return h.locks.Database().Collection(h.locks.Name()+hintsSuffix+strconv.FormatInt(int64(number), hintsCollections),
		majorityOptions(), acknowledgedByPrimary().SetReadConcern(readconcern.Local()))
}

func (h *hints) source() source {
	return source{
		what: "hints",
		open: h.open,
		read: func(hint bson.Raw) (name string, turn time.Duration, ok bool) {
			position, _ := hint.Lookup(hintPosition).AsInt64OK()
			name, ok = hint.Lookup(hintName).StringValueOK()
			return name, driver.Turn(int(min(max(position, 0), driver.MaxWaiters))), ok
		},
	}
}

// send leaves a hint for the waiter of a lock at a position.
func (h *hints) send(ctx context.Context, name, waiter string, position int) error {
	coll, hint := h.collectionOf(waiter), doc{field(hintName, name), field(hintTo, waiter), field(hintPosition, position)}
	_, err := sendOnce(ctx, coll, "insert", field("documents", list{hint}))
	if worthRepeating(ctx, err) {
		_, err = coll.InsertOne(ctx, hint)
	}
	return err
}

// open opens a cursor, and first makes the collection if there is none. A cursor on an empty
// collection would die at once, so there is a first document.
func (h *hints) open(ctx context.Context) (eventCursor, error) {
	session, err := h.coll.Database().Client().StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return nil, err
	}
	h.connections.reopened()
	cursor, err := h.openIn(mongo.NewSessionContext(ctx, session))
	if err != nil {
		session.EndSession(ctx)
		return nil, err
	}
	return &hintCursor{Cursor: cursor, session: session, hints: h}, nil
}

func (h *hints) openIn(ctx context.Context) (*mongo.Cursor, error) {
	const tries = 3 // a hint that is sent meanwhile makes a collection that is not capped
	var err error
	for range tries {
		var cursor *mongo.Cursor
		switch cursor, err = h.follow(ctx); {
		case hasCode(err, codeBadValue):
			if err := h.dropUncapped(ctx, err); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case cursor.ID() != 0:
			return cursor, nil
		default:
			err = errStreamEnded
		}
		if err := h.create(ctx); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// create makes the collection, unless there is one, with its first document.
func (h *hints) create(ctx context.Context) error {
	err := h.coll.Database().CreateCollection(ctx, h.coll.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(hintsSize))
	if err != nil && !hasCode(err, codeNamespaceExists) {
		return err
	}
	_, err = h.coll.InsertOne(ctx, docOf(hintTo, ""))
	return err
}

// dropUncapped removes a collection that cannot be followed because it is not capped: a hint that
// was sent just after the collection's removal has made it. It removes nothing but hints.
func (h *hints) dropUncapped(ctx context.Context, cause error) error {
	other := h.coll.FindOne(ctx, docOf(hintTo, docOf("$exists", false))).Err()
	if !errors.Is(other, mongo.ErrNoDocuments) {
		return errors.Join(cause, other)
	}
	return h.coll.Drop(ctx)
}

// follow opens a tailable cursor. It also returns the hints that are in the collection already,
// which may be for this Locker if it has followed them before: they wake without a reason.
func (h *hints) follow(ctx context.Context) (*mongo.Cursor, error) {
	return h.coll.Find(ctx, docOf(hintTo, h.me), options.Find().
		SetCursorType(options.TailableAwait).SetMaxAwaitTime(hintAwaitOnly))
}

// maxLag is by how much the operations of a member may be behind the time of the cluster. Every
// primary writes something every 10 s.
const maxLag = 30 // seconds

// errBehind ends a cursor on a member that does not follow the primary, as one that has stepped down
// and is cut off. The next cursor is opened on the present primary.
var errBehind = errors.New("the member with the cursor is behind")

// hintCursor is a cursor that asks for hints when there is a connection for it.
type hintCursor struct {
	*mongo.Cursor
	session *mongo.Session // of this cursor alone, not causally consistent: it has the times of its replies
	hints   *hints
	err     error // of the latest request, besides the cursor's own
}

func (c *hintCursor) event() bson.Raw { return c.Current }

// TryNext asks for the next hint, unless one is there already.
func (c *hintCursor) TryNext(ctx context.Context, limit time.Duration) bool {
	await, end, err := c.hints.connections.begin(ctx)
	if c.err = err; err != nil {
		return false
	}
	defer end()
	c.SetMaxAwaitTime(await)
	ctx, cancel := context.WithTimeout(ctx, await+limit)
	defer cancel()
	if c.Cursor.TryNext(ctx) {
		return true
	}
	if c.behind() {
		c.err = errBehind
	}
	return false
}

// behind reports whether the member that has replied is behind. Its reply has the time of its latest
// operation, and the latest time that it, or this client, knows of the whole cluster.
func (c *hintCursor) behind() bool {
	latest, _, known := c.session.ClusterTime().Lookup("$clusterTime", "clusterTime").TimestampOK()
	at := c.session.OperationTime()
	return known && at != nil && int64(latest)-int64(at.T) > c.hints.maxLag
}

func (c *hintCursor) Err() error { return cmp.Or(c.err, c.Cursor.Err()) }

func (c *hintCursor) Close(ctx context.Context) error {
	defer c.session.EndSession(ctx)
	return c.Cursor.Close(ctx)
}
