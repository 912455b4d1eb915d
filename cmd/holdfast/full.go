//go:build full

package main

import (
	"context"

	goredis "github.com/redis/go-redis/v9"
	"k8s.io/klog/v2"

	_ "github.com/holdfast-go/holdfast/drivers/aws/dynamodb"
	_ "github.com/holdfast-go/holdfast/drivers/aws/s3"
	_ "github.com/holdfast-go/holdfast/drivers/kubernetes"
	_ "github.com/holdfast-go/holdfast/drivers/mysql"
	_ "github.com/holdfast-go/holdfast/drivers/nats"
	_ "github.com/holdfast-go/holdfast/drivers/redis"
)

// The full build has more drivers; package backends lists them. It is a tag and no module, since package main would have to move out of
// the one that "go install" names. The command reports itself what a client library would log.
func init() {
	goredis.SetLogger(silent{})
	klog.SetLogger(klog.Logger{}) // which discards everything
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
