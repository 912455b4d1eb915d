package engine_test

import (
	"context"
	"log/slog"
)

type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (panicking) Handle(context.Context, slog.Record) error { panic("handler") }
