package mongo

import (
	"context"

	"github.com/holdfast-go/holdfast"
)

// Break implements [holdfast.Breaker]: the filter of a renewal refuses a broken
// record.
func (l *Locker) Break(ctx context.Context, name string) error {
	return l.breakWith(ctx, name, counted(field("$set", is(fieldBroken, true))))
}

// BreakNow implements [holdfast.Breaker].
func (l *Locker) BreakNow(ctx context.Context, name string) error {
	return l.breakWith(ctx, name, liberation)
}

func (l *Locker) breakWith(ctx context.Context, name string, change any) error {
	o := op{verb: "break", name: name, invalid: holdfast.ValidateName(name, limits)}
	return l.do(ctx, o, func(ctx context.Context) error {
		held := field(fieldKid, doc{{Key: "$type", Value: "string"}, {Key: "$gt", Value: ""}})
		matched, err := l.update(ctx, proper(name, held), change)
		if matched || err != nil {
			return err
		}
		_, err = read(ctx, l.exact, name, facts) // free, or damaged
		return err
	})
}
