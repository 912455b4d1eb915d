// Package dynamodb keeps locks in a table of Amazon DynamoDB. An item is a lock.
//
//	l, err := dynamodb.Open(ctx, "dynamodb://TABLE?region=eu-central-1")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. Region and credentials are those that
// AWS's SDK finds: in the environment, in the files of the AWS CLI with SSO, on the machine or the pod. [New] takes the program's own
// aws.Config.
//
// # What is stored
//
// An item has three attributes: the key "name", which is made of the prefix and the lock's name; "record", in the format of package
// [github.com/holdfast-go/holdfast/driver/cas]; and "fencingToken", with which a program's own transaction refuses late writes
// ([TokenCheck]).
// A write demands that the whole record is the one that was read, so it never replaces one that a person has edited. No item is ever
// deleted, so that tokens rise.
//
// # Who judges leases
//
// No clock of DynamoDB does. A condition knows no time, an item has no time of its last write, and the header Date of an answer is by
// the clock of one of many servers. So a process takes a dead holder's lock over when it has seen no renewal for the holder's whole TTL,
// by its own elapsed clock.
//
// # Tables
//
// Open makes the table if there is none and the URL names its region or an endpoint; New always does. Both refuse a table with another
// key, and a global table: there the last of two writes wins, so two regions could hold one lock.
//
// # Requests
//
// A renewal, a release and a write of data is one write. Acquiring also needs a read. Reads are strongly consistent. Nothing wakes
// waiters: they poll. Each request is made once, over HTTP/1.1.
package dynamodb

import "github.com/holdfast-go/holdfast/driver/cas"

var _ interface {
	cas.Store
	cas.BatchGetter
} = (*store)(nil)
