package cronlock

import "context"

type Jobs struct{}

func (j *Jobs) Func(name string, fn func(ctx context.Context)) (func(), error) { return nil, nil }
