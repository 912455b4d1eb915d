package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/holdfast-go/holdfast"
	holdmongo "github.com/holdfast-go/holdfast/drivers/mongo"
)

const database = "holdfast_operator"

// workload is a document of the desired and of the actual state.
type workload struct {
	Name   string `bson:"_id"`
	Copies int    `bson:"copies"`
}

type reconciler struct {
	out             io.Writer
	desired, actual *mongo.Collection
}

var errStale = errors.New("refused: a later leader has written")

// reconcile starts or stops one copy of each workload whose actual state is not the desired one.
func (r *reconciler) reconcile(ctx context.Context) error {
	cursor, err := r.desired.Find(ctx, bson.D{})
	if err != nil {
		return err
	}
	var all []workload
	if err := cursor.All(ctx, &all); err != nil {
		return err
	}
	for _, want := range all {
		var is workload
		err := r.actual.FindOne(ctx, bson.D{{Key: "_id", Value: want.Name}}).Decode(&is)
		if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		step := max(-1, min(1, want.Copies-is.Copies))
		if step == 0 {
			continue
		}
		if err := r.write(ctx, workload{want.Name, is.Copies + step}); err != nil {
			return err
		}
	}
	return nil
}

// write stores the actual state unless a later leader has written it.
func (r *reconciler) write(ctx context.Context, w workload) error {
	token, _ := holdfast.TokenFromContext(ctx)
	fence := holdmongo.Fence(token)
	_, err := r.actual.UpdateOne(ctx,
		fence.Filter(bson.D{{Key: "_id", Value: w.Name}}),
		bson.D{{Key: "$set", Value: bson.D{{Key: "copies", Value: w.Copies}, fence.Mark()}}},
		options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return errStale
	}
	if err == nil {
		fmt.Fprintf(r.out, "%s now has %d copies, by the leader with token %d\n", w.Name, w.Copies, token)
	}
	return err
}

// setDesired changes the desired state, as a user's kubectl would.
func setDesired(ctx context.Context, uri, text string) (err error) {
	name, number, _ := strings.Cut(text, "=")
	copies, err := strconv.Atoi(number)
	if name == "" || err != nil || copies < 0 {
		return fmt.Errorf("-set %q: want NAME=COPIES, such as web=3", text)
	}
	db, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, withTimeLimit(db.Disconnect)) }()
	_, err = db.Database(database).Collection("desired").ReplaceOne(ctx, bson.D{{Key: "_id", Value: name}},
		workload{name, copies}, options.Replace().SetUpsert(true))
	return err
}
