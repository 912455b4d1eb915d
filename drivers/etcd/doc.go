// Package etcd keeps locks in etcd 3.4 or later: one key for each lock, which transactions write by compare-and-set.
//
//	l, err := etcd.Open(ctx, "etcds://app@etcd1,etcd2,etcd3/billing")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. [New] takes the addresses and the TLS of
// etcd's own client. The driver needs the standard library alone, with which it speaks gRPC; see docs/decisions/etcd-over-grpc.md.
//
// # What is stored
//
// The record of lock "job" is at the key holdfast/job; its format is that of package
// [github.com/holdfast-go/holdfast/driver/cas]. The key holdfast/job/.token has the token of the last grant: with it a program's own
// transaction refuses late writes ([TokenKey]). Keys have no etcd lease and are never deleted, because tokens must rise.
//
// # Who judges leases
//
// No clock of the cluster does: etcd has none that all members share. A process takes a dead holder's lock over when it has seen no renewal
// for the holder's whole TTL; see docs/decisions/etcd-without-its-leases.md. Clocks need not agree.
//
// # Members
//
// Requests go to one member, and to the next one when that does not answer or knows no leader. A write goes to another member only if
// the first one certainly has not got it. A member of another cluster than the first one that answered is refused.
//
// Requests to a member share a connection. When the member has been silent, the next ones have a new connection: the old one may be dead.
package etcd
