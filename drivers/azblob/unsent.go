package azblob

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
)

// traceConnections returns a context for one request of the SDK. After an error, unsent reports whether the request certainly never
// left the process, with all repetitions of it by the SDK, the program's policies and Go's transport: that has looked for a
// connection, and has got none. A transport of the program that is not Go's reports nothing, so nothing is certain
// then. The requests of an identity count, too, which only makes the outcome unknown more often.
func traceConnections(ctx context.Context) (traced context.Context, unsent func(error) bool) {
	var looked, got atomic.Bool // a dial can go on after the request has failed
	traced = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { looked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { got.Store(true) },
	})
	return traced, func(err error) bool { return err != nil && looked.Load() && !got.Load() }
}

// noteUnsent says that the present operation has sent nothing, and ends.
func noteUnsent(ctx context.Context) {
	if sent, ok := ctx.Value(triesKey{}).(*tries); ok {
		sent.none.Store(true)
	}
}
