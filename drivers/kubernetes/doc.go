// Package kubernetes keeps locks in Lease objects (coordination.k8s.io/v1) of a Kubernetes cluster. A Lease is a lock.
//
//	l, err := kubernetes.Open(ctx, "kubernetes://NAMESPACE")
//
// Most programs import the package for its side effect and call holdfast.Open with such a URL. In a pod that is all: the pod's
// service account is used. Elsewhere it is the kubeconfig that kubectl uses. [New] takes the program's own rest.Config.
//
// # Lease objects
//
// The Lease of a lock has the lock's name, if that is one of Kubernetes; other characters are escaped. Its fields are those of
// client-go's leader elector: holderIdentity, leaseDurationSeconds, acquireTime, renewTime and leaseTransitions. So kubectl shows
// the holder of a lock, and electors of client-go respect it. The whole record is in the annotation [Annotation]. Leases are never
// deleted, so that tokens rise.
//
// If the fields differ from the record, another program has changed them: an elector that has been elected, renews or has released.
// It counts as the holder, and an elector's Lease is taken over as another elector would.
//
// # Clock
//
// The API server's clock judges leases: the header Date of each answer, and the stamps in metadata.managedFields. The clocks of
// several API servers must agree within the grace. If the stamps show that they do not, or an elector's Lease has no stamp, a
// Lease is taken over when this process has seen no renewal for its whole duration.
//
// # Requests
//
// A renewal, a release and a write of data is one patch with the resourceVersion as its condition. Acquiring also needs a get.
// Requests use HTTP/1.1: on a connection of HTTP/2 that has died silently all of them would hang together, for longer than a
// lease lasts. A watch wakes waiters.
package kubernetes
