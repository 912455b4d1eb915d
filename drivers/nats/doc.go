// Package nats keeps locks in JetStream of NATS 2.10 or later, in a cluster 2.11: a key-value bucket has one key for each lock, which is
// written on the condition that it still has the sequence number that was read.
//
//	l, err := nats.Open(ctx, "nats://nats1,nats2,nats3/locks?creds=app.creds")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. [New] takes the program's own connection.
//
// By default a server acknowledges writes that are not on its disk (sync_interval), so a crash of machines can forget a grant: then two
// holders have one lock until the next renewal of either. "holdfast doctor" says what a bucket is good for.
//
// Several servers in a URL are those of one cluster; others are refused. A bucket that was deleted and made anew is refused by the programs
// that run, and so is a write that another JetStream domain has stored.
//
// # What is stored
//
// The bucket is the stream KV_BUCKET, and the record of lock "job" the latest message with the subject $KV.BUCKET.job; its format is that
// of package [github.com/holdfast-go/holdfast/driver/cas]. In the key, = stands for the % of an escape. The bucket is made if there is
// none. One whose settings would lose locks is refused, and never changed.
//
// # Who judges leases
//
// The clock of the server that leads the stream does. Each request for a record or a write goes with one for the time. The clocks of a
// cluster's servers must agree (NTP).
package nats
