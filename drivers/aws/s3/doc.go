// Package s3 keeps locks in objects of a bucket of Amazon S3, or of a store that speaks S3's protocol with conditional writes. An object
// is a lock.
//
//	l, err := s3.Open(ctx, "s3://BUCKET/PREFIX?region=eu-central-1")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. Region and credentials are those that
// AWS's SDK finds: in the environment, in the files of the AWS CLI with SSO, on the machine or the pod. [New] takes the program's own
// aws.Config.
//
// # Objects
//
// A lock has one object: the prefix, and a key made of its name. If-None-Match and If-Match on PUT decide who writes it; the version is
// its ETag, whatever that is made of. No object is ever deleted, so that tokens rise. [cas.Open] tries the conditions first, because
// there are stores that accept and ignore them.
//
// # Clock
//
// The store's clock judges leases: the header Date of each answer, which may be two seconds old. The clocks of the store's servers must
// agree within the grace. If Last-Modified or the answers show that they do not, a lock is taken over when this process has seen no renewal
// for its whole TTL.
//
// # Requests
//
// A renewal, a release and a write of data is one PUT. Acquiring also needs a GET. Nothing wakes waiters: they poll. Each request is made
// once, over HTTP/1.1.
package s3

import "github.com/holdfast-go/holdfast/driver/cas"

var _ cas.Store = (*store)(nil)
