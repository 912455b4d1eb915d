//go:build full

package main

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	_ "github.com/holdfast-go/holdfast/drivers/redis"
)

// The full build has more drivers; package backends lists them. The command reports a failed connection itself.
func init() { goredis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
