package mongo

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/waitqueue"
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

// hintAwait is how long the server holds a request for hints. It does not end the request when the collection is dropped, so
// hints for a cursor on that collection are lost until then.
const hintAwait = 30 * time.Second

// The fields of a hint. A hint has no lease ID.
const (
	hintName     = "name"     // of the lock
	hintTo       = "to"       // what stands for the waiter; see placeOf
	hintPosition = "position" // of the waiter
)

// hints are small documents in capped collections beside the locks, by which a process that
// releases a lock wakes the first waiters of its queue. Each process with waiters follows one
// collection with one tailable cursor, and the server filters out the hints for others. Such a cursor
// does not read the oplog, and it works on a standalone server.
//
// A hint promises nothing. It can be lost, doubled, late, or come before a majority has the
// release: then the waiter's own request, which a majority acknowledges, is later in the oplog
// than the release, and certain only together with it.
type hints struct {
	locks *mongo.Collection
	coll  *mongo.Collection // of the hints for this Locker
	me    string            // the ID of this Locker

	made sync.Map // the names of the collections that this Locker has found or made

	maxLag int64         // maxLag, shorter in tests
	await  time.Duration // hintAwait, shorter in tests
}

func newHints(locks *mongo.Collection, me string) *hints {
	h := &hints{locks: locks, me: me, maxLag: maxLag, await: hintAwait}
	h.coll = h.collectionOf(me)
	return h
}

// newLockerID returns the ID of a Locker, with which the IDs of its waiters in queues begin. Its first character chooses the collection of
// its hints, so each of them is as likely as any other.
func newLockerID() string {
	var b [1]byte
	_, _ = cryptorand.Read(b[:]) // it does not fail
	return string('A'+rune(b[0]%hintsCollections)) + cryptorand.Text()
}

// placeOf returns what stands for a waiter in a queue: the Locker, whose ID chooses where its hints are left, and the
// waiter of that Locker. Neither is a secret.
func placeOf(locker string, waiter driver.WaiterID) string {
	if waiter == "" {
		return ""
	}
	return locker + placeSeparator + string(waiter)
}

const (
	placeSeparator = "."
	placeEnd       = "/" // the character that follows it: the places of a Locker are between the two
)

// collectionOf returns the collection of the hints for a Locker.
func (h *hints) collectionOf(id string) *mongo.Collection {
	// A hint is worth nothing to a waiter that would have to wait for a majority.
	return h.locks.Database().Collection(h.nameOf(hintsNumber(id)),
		majorityOptions(), acknowledgedByPrimary().SetReadConcern(readconcern.Local()))
}

// hintsNumber is the number of the collection of the hints for a Locker.
func hintsNumber(id string) int64 {
	if id == "" {
		return 0
	}
	return int64(id[0]) % hintsCollections
}

func (h *hints) source() source { return source{await: h.await, open: h.open} }

// hint wakes a waiter.
type hint struct {
	name, to string // of the lock, and what stands for the waiter in its queue; see placeOf
	position int    // of the waiter
}

// hintsAtOnce is how many hints one insert leaves: far fewer than a collection has room for, so that
// they can be read before others replace them.
const hintsAtOnce = 100

// send leaves hints, one insert for those of a collection. It reports the hints of an insert that failed, and does not keep the
// other inserts from being sent.
func (h *hints) send(ctx context.Context, all []hint, failed func(left []hint, err error)) {
	for len(all) > 0 {
		first := all[0]
		var documents list
		var these, rest []hint
		for _, x := range all {
			if len(documents) < hintsAtOnce && hintsNumber(x.to) == hintsNumber(first.to) {
				documents = append(documents, doc{field(hintName, x.name), field(hintTo, x.to), field(hintPosition, x.position)})
				these = append(these, x)
			} else {
				rest = append(rest, x)
			}
		}
		if err := h.insert(ctx, h.collectionOf(first.to), documents); err != nil {
			failed(these, err)
		}
		all = rest
	}
}

func (h *hints) insert(ctx context.Context, coll *mongo.Collection, documents list) error {
	h.ensure(ctx, coll)
	_, err := sendOnce(ctx, coll, "insert", field("documents", documents))
	if worthRepeating(ctx, err) {
		_, err = coll.InsertMany(ctx, documents)
	}
	return err
}

// ensure has a collection made, unless this Locker knows it: its waiters may all be processes that read no hints, and an insert would
// make a collection without a bound. The waiter is kept waiting meanwhile, and a command that makes one takes longer than a hint, even if
// there is one. So it looks for all collections first, mostly once for all hints that the Locker ever sends.
func (h *hints) ensure(ctx context.Context, coll *mongo.Collection) {
	if _, made := h.made.Load(coll.Name()); made {
		return
	}
	h.find(ctx)
	if _, made := h.made.LoadOrStore(coll.Name(), true); !made {
		_ = createCapped(ctx, coll)
	}
}

// find notes the collections of hints that there are. After an error it notes none.
func (h *hints) find(ctx context.Context) {
	var names list
	for n := range hintsCollections {
		names = append(names, h.nameOf(int64(n)))
	}
	// Encoded here, since a database has the program's own encoders and read preference; see majorityOptions.
	command := mustMarshal(doc{field("listCollections", 1), field("filter", docOf("name", docOf("$in", names))), field("nameOnly", true)})
	reply, _ := h.locks.Database().RunCommand(ctx, command, options.RunCmd().SetReadPreference(readpref.Primary())).Raw()
	found, _ := reply.Lookup("cursor", "firstBatch").ArrayOK()
	values, _ := found.Values()
	for _, value := range values {
		collection, _ := value.DocumentOK()
		if name, ok := collection.Lookup("name").StringValueOK(); ok {
			h.made.Store(name, true)
		}
	}
}

func (h *hints) nameOf(number int64) string {
	return h.locks.Name() + hintsSuffix + strconv.FormatInt(number, hintsCollections)
}

// open opens a cursor, and first makes the collection if there is none. A cursor on an empty
// collection would die at once, so there is a first document.
func (h *hints) open(ctx context.Context) (eventCursor, error) {
	session, err := h.coll.Database().Client().StartSession(options.Session().SetCausalConsistency(false))
	if err != nil {
		return nil, err
	}
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
		case hasCode(err, codeBadValue) && strings.Contains(err.Error(), "non capped"): // the code alone has many reasons
			if err := h.dropUncapped(ctx, err); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case cursor.ID() != 0:
			return cursor, nil
		default:
			err = errCursorEnded
		}
		if err := h.create(ctx); err != nil {
			return nil, err
		}
	}
	return nil, err
}

// create makes the collection, unless there is one, with its first document.
func (h *hints) create(ctx context.Context) error {
	if err := createCapped(ctx, h.coll); err != nil {
		return err
	}
	_, err := h.coll.InsertOne(ctx, docOf(hintTo, ""))
	return err
}

// createCapped makes a collection for hints, unless there is one.
func createCapped(ctx context.Context, coll *mongo.Collection) error {
	err := coll.Database().CreateCollection(ctx, coll.Name(), options.CreateCollection().SetCapped(true).SetSizeInBytes(hintsSize))
	if hasCode(err, codeNamespaceExists) {
		return nil
	}
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
	return h.coll.Find(ctx, docOf(hintTo, doc{field("$gt", h.me+placeSeparator), field("$lt", h.me+placeEnd)}), options.Find().
		SetCursorType(options.TailableAwait).SetMaxAwaitTime(h.await))
}

// maxLag is by how much the operations of a member may be behind the time of the cluster. Every
// primary writes something every 10 s.
const maxLag = 30 // seconds

// errBehind ends a cursor on a member that does not follow the primary, as one that has stepped down
// and is cut off. The next cursor is opened on the present primary.
var errBehind = errors.New("the member with the cursor is behind")

// hintCursor is a cursor on the hints.
type hintCursor struct {
	*mongo.Cursor
	session *mongo.Session // of this cursor alone, not causally consistent: it has the times of its replies
	hints   *hints
	err     error // besides the cursor's own
}

// wakes implements [eventCursor].
func (c *hintCursor) wakes() (key waitqueue.Key, after time.Duration, ok bool) {
	position, _ := c.Current.Lookup(hintPosition).AsInt64OK()
	name, named := c.Current.Lookup(hintName).StringValueOK()
	to, _ := c.Current.Lookup(hintTo).StringValueOK()
	waiter, ours := strings.CutPrefix(to, c.hints.me+placeSeparator)
	after = driver.Turn(int(min(max(position, 0), driver.MaxWaiters)))
	return waitqueue.Key{Name: name, Waiter: driver.WaiterID(waiter)}, after, named && ours
}

// TryNext asks for the next hint, unless one is there already.
func (c *hintCursor) TryNext(ctx context.Context) bool {
	if c.Cursor.TryNext(ctx) {
		return true
	}
	switch {
	case c.behind():
		c.err = errBehind
	case c.Cursor.Err() == nil && c.ID() == 0:
		c.err = errCursorEnded
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
