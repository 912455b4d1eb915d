// Package certmagicmongo stores the certificates of github.com/caddyserver/certmagic, and with it
// Caddy's, in MongoDB, beside the locks. The instances of a cluster then share nothing but the
// database. It does not require certmagic: the interfaces are met structurally.
//
//	storage, client, err := certmagicmongo.Open[certmagic.KeyInfo](ctx, "mongodb://db1,db2,db3/caddy?replicaSet=rs0")
//	certmagic.Default.Storage = storage
//	…
//	err = client.Shutdown(ctx) // after certmagic was stopped
//
// # What is stored
//
// Each key is one document: {_id: key, value, size, modified}. A document has at most 16 MB; see
// [MaxValue]. Writes are acknowledged by a majority, and reads see what a majority has, so
// that what Store has returned for is there after a fail-over. Private keys are stored as
// certmagic gives them, so give no one else access to the collection.
//
// Keys have the meaning that they have in certmagic.FileStorage, with two differences. A
// directory exists only as long as a key is below it. A key that is a prefix of others may have
// a value itself: it is then listed once, and deleted together with them.
//
// What an instance stores after it has lost its lock is not fenced; see package certmagiclock.
package certmagicmongo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/adapters/internal/filekeys"
	"github.com/holdfast-go/holdfast/driver"
	mongolocks "github.com/holdfast-go/holdfast/drivers/mongo"
)

const (
	// Collection is the collection in which [Open] stores the values.
	Collection = "holdfast_certificates"
	// MaxValue is the longest value in bytes. A document of MongoDB has at most 16 MiB, key and
	// field names included.
	MaxValue = filekeys.MaxValue

	backend = "mongodb"
	// One key's command is limited to keyTimeout, a command about many keys to listTimeout: a
	// frozen server would block them forever.
	keyTimeout, listTimeout = 20 * time.Second, time.Minute
)

// Names of the fields of a document.
const (
	fieldKey      = "_id"
	fieldValue    = "value"
	fieldSize     = "size"
	fieldModified = "modified"
)

// Open connects to MongoDB and returns a complete certmagic Storage. The URL is that of
// package drivers/mongo: the locks are in its collection, the values in [Collection] of the
// same database. The Client's Shutdown closes the connection; stop certmagic before it.
func Open[Info certmagiclock.KeyInfo](ctx context.Context, url string, opts ...holdfast.ClientOption) (*certmagiclock.Storage[Info],
	*holdfast.Client, error) {
	locker, err := mongolocks.Open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	client, err := holdfast.New(locker, opts...)
	if err != nil {
		return nil, nil, errors.Join(err, locker.Close(ctx))
	}
	storage, err := NewStorage[Info](locker.Database().Collection(Collection), client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Shutdown(ctx))
	}
	return storage, client, nil
}

// NewStorage makes a complete certmagic Storage. The values are in a collection of the program's
// own MongoDB client, and the locks are those of client, which may have another backend. It
// sends nothing.
func NewStorage[Info certmagiclock.KeyInfo](collection *mongo.Collection, client *holdfast.Client,
	opts ...holdfast.Option) (*certmagiclock.Storage[Info], error) {
	files, err := NewFiles[Info](collection)
	if err != nil {
		return nil, err
	}
	locker, err := certmagiclock.NewLocker(client, opts...)
	if err != nil {
		return nil, err
	}
	return certmagiclock.NewStorage(files, locker)
}

// Files stores values. All methods are safe for concurrent use.
type Files[Info certmagiclock.KeyInfo] struct{ collection *mongo.Collection }

// NewFiles makes Files in a collection, which needs no index and must have no collation: two
// keys could compare as equal. It sends nothing.
func NewFiles[Info certmagiclock.KeyInfo](collection *mongo.Collection) (*Files[Info], error) {
	if collection == nil {
		return nil, driver.Invalid("collection", "nil", "a *mongo.Collection")
	}
	return &Files[Info]{collection.Clone(options.Collection().
		SetRegistry(bson.NewRegistry()).SetBSONOptions(&options.BSONOptions{}).
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))}, nil
}

// String names the collection, for certmagic's log.
func (f *Files[Info]) String() string {
	return "MongoDB collection " + f.collection.Database().Name() + "." + f.collection.Name()
}

// Store sets the value of a key. The error is an *[holdfast.InvalidError] if the value is longer
// than [MaxValue].
func (f *Files[Info]) Store(ctx context.Context, key string, value []byte) error {
	key, invalid := filekeys.CleanFile(key)
	if invalid == nil {
		invalid = filekeys.CheckValue(value)
	}
	return f.do(ctx, "store", key, invalid, keyTimeout, func(ctx context.Context) error {
		change := bson.D{
			{Key: "$set", Value: bson.D{{Key: fieldValue, Value: bson.Binary{Data: value}}, {Key: fieldSize, Value: int64(len(value))}}},
			{Key: "$currentDate", Value: bson.D{{Key: fieldModified, Value: true}}},
		}
		store := func() error {
			_, err := f.collection.UpdateByID(ctx, key, change, options.UpdateOne().SetUpsert(true))
			return err
		}
		err := store()
		if mongo.IsDuplicateKeyError(err) { // another process created the document at the same time
			err = store()
		}
		return err
	})
}

// Load returns the value of a key. The error matches [fs.ErrNotExist] if the key has none.
func (f *Files[Info]) Load(ctx context.Context, key string) ([]byte, error) {
	var found struct{ Value []byte }
	key, invalid := filekeys.Clean(key)
	err := f.do(ctx, "load", key, invalid, keyTimeout, func(ctx context.Context) error {
		return f.collection.FindOne(ctx, bson.D{{Key: fieldKey, Value: key}}, options.FindOne().SetProjection(only(fieldValue))).Decode(&found)
	})
	if err != nil {
		return nil, err
	}
	return append([]byte{}, found.Value...), nil
}

// Delete deletes a key and all keys below it. A key that does not exist is no error.
func (f *Files[Info]) Delete(ctx context.Context, key string) error {
	key, invalid := filekeys.Clean(key)
	return f.do(ctx, "delete", key, invalid, listTimeout, func(ctx context.Context) error {
		_, err := f.collection.DeleteMany(ctx, either(key))
		return err
	})
}

// Exists reports whether a key has a value or is a directory; false also if that cannot be
// found out.
func (f *Files[Info]) Exists(ctx context.Context, key string) bool {
	_, err := f.Stat(ctx, key)
	return err == nil
}

// Stat describes a key. The error matches [fs.ErrNotExist] if the key does not exist. Size and
// time of a directory are zero.
func (f *Files[Info]) Stat(ctx context.Context, key string) (Info, error) {
	clean, invalid := filekeys.Clean(key)
	var first struct {
		Key      string `bson:"_id"`
		Size     int64
		Modified time.Time
	}
	err := f.do(ctx, "stat", clean, invalid, keyTimeout, func(ctx context.Context) error {
		// The key itself, if it is there, is ordered before all keys below it.
		return f.collection.FindOne(ctx, either(clean), options.FindOne().
			SetSort(only(fieldKey)).SetProjection(only(fieldSize, fieldModified))).Decode(&first)
	})
	switch {
	case err != nil:
		return Info{}, err
	case first.Key != clean:
		return Info{Key: key}, nil
	}
	return Info{Key: key, Modified: first.Modified, Size: first.Size, IsTerminal: true}, nil
}

// List returns the keys directly below a directory, or with recursive all below it, directories
// included, in the order of certmagic.FileStorage. The list of a file is empty. The error
// matches [fs.ErrNotExist] if the path does not exist.
func (f *Files[Info]) List(ctx context.Context, path string, recursive bool) ([]string, error) {
	dir, invalid := filekeys.Clean(path)
	var files []string
	err := f.do(ctx, "list", dir, invalid, listTimeout, func(ctx context.Context) error {
		var err error
		if files, err = f.below(ctx, dir, recursive); err != nil || len(files) > 0 {
			return err
		}
		return f.collection.FindOne(ctx, either(dir), options.FindOne().SetProjection(only(fieldKey))).Err()
	})
	return filekeys.List(dir, files, recursive), err
}

// below returns the keys below a directory; without recursive the server returns each
// directory in it once, with a slash at its end.
func (f *Files[Info]) below(ctx context.Context, dir string, recursive bool) ([]string, error) {
	steps := bson.A{bson.D{{Key: "$match", Value: below(dir)}}, bson.D{{Key: "$project", Value: only(fieldKey)}}}
	if !recursive {
		rest := bson.D{{Key: "$substrBytes", Value: bson.A{"$" + fieldKey, len(filekeys.Below(dir)), filekeys.MaxKey}}}
		first := bson.D{{Key: "$arrayElemAt", Value: bson.A{bson.D{{Key: "$split", Value: bson.A{rest, "/"}}}, 0}}}
		steps = append(steps, bson.D{{Key: "$group", Value: bson.D{{Key: fieldKey, Value: first}}}})
	}
	cursor, err := f.collection.Aggregate(ctx, steps)
	if err != nil {
		return nil, err
	}
	var found []struct {
		Key string `bson:"_id"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, err
	}
	keys := make([]string, len(found))
	for i, one := range found {
		if keys[i] = one.Key; !recursive {
			keys[i] = filekeys.Below(dir) + one.Key
		}
	}
	return keys, nil
}

// below matches all keys below a directory. '0' follows '/', so the index on _id serves it.
func below(dir string) bson.D {
	if dir == "" {
		return bson.D{}
	}
	return bson.D{{Key: fieldKey, Value: bson.D{{Key: "$gte", Value: dir + "/"}, {Key: "$lt", Value: dir + "0"}}}}
}

// either matches a key and all keys below it.
func either(key string) bson.D {
	if key == "" {
		return bson.D{}
	}
	return bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: fieldKey, Value: key}}, below(key)}}}
}

// only is a projection to, or an ascending order by, some fields.
func only(fields ...string) bson.D {
	var d bson.D
	for _, field := range fields {
		d = append(d, bson.E{Key: field, Value: 1})
	}
	return d
}

// do runs the commands of one call within a time limit, and wraps their error.
func (f *Files[Info]) do(ctx context.Context, verb, key string, invalid error, limit time.Duration,
	commands func(context.Context) error) error {
	err := invalid
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err = withoutDetails(commands(ctx))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mongo.ErrNoDocuments):
		err = fs.ErrNotExist
	case mongo.IsTimeout(err) && !errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return &driver.OpError{Op: verb, Backend: backend, Name: key, Err: err}
}

// withoutDetails drops the server's details of a document that failed the validation that
// somebody has set for the collection. They quote the value, which may be a private key.
func withoutDetails(err error) error {
	var failed mongo.WriteException
	if !errors.As(err, &failed) {
		return err
	}
	failed.Raw = nil
	failed.WriteErrors = slices.Clone(failed.WriteErrors)
	for i := range failed.WriteErrors {
		failed.WriteErrors[i].Details, failed.WriteErrors[i].Raw = nil, nil
	}
	return failed
}
