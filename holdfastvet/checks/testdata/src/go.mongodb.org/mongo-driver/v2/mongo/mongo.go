package mongo

import "context"

type (
	Database     struct{}
	Collection   struct{}
	Session      struct{}
	UpdateResult struct{ MatchedCount int64 }
)

func (c *Collection) InsertOne(ctx context.Context, document any, opts ...any) (any, error) {
	return nil, nil
}
func (c *Collection) UpdateOne(ctx context.Context, filter, update any, opts ...any) (*UpdateResult, error) {
	return nil, nil
}
func (c *Collection) DeleteOne(ctx context.Context, filter any, opts ...any) (any, error) {
	return nil, nil
}
func (c *Collection) FindOne(ctx context.Context, filter any, opts ...any) any { return nil }

func (s *Session) WithTransaction(ctx context.Context, fn func(ctx context.Context) (any, error), opts ...any) (any, error) {
	return nil, nil
}
