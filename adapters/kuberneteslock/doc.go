// Package kuberneteslock lets Kubernetes operators and controllers elect their leader on a
// Holdfast backend, for example MongoDB or Azure Blob Storage, instead of a Lease object of the
// cluster. So replicas in several clusters, or outside of any, elect one leader. [Lock] is
// client-go's resourcelock.Interface, and controller-runtime's
// Options.LeaderElectionResourceLockInterface. Package drivers/kubernetes is the opposite: it keeps Holdfast's locks in
// Lease objects of a cluster.
//
//	locker, err := driver.Open(ctx, "mongodb://db1,db2,db3/app?replicaSet=rs0")
//	lock, err := kuberneteslock.New(locker, "my-operator", hostname+"_"+uuid.NewString())
//	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
//		Lock:          lock,
//		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		…
//	})
//
// # How a record becomes a lease
//
// The leader has a lease of the backend, with the elector's LeaseDuration as its TTL. The TTL is in
// whole seconds: client-go cuts off fractions. Each Update of the leader is one renewal. Get shows
// the backend's record, and says that nobody leads as soon as the lease has ended on the backend's
// clock.
//
// # Who judges expiry
//
// The backend does, in the same step in which it grants the lease to another. With client-go's
// own locks each candidate judges by what it has observed; here one that is too early is
// refused, and one that was just started need not observe first. Observation is the fallback,
// as everywhere in Holdfast: if the backend's clock steps back, a holder that was not renewed
// for its whole LeaseDuration is replaced by compare-and-set.
//
// # What is promised
//
//   - At most one elector leads, if RetryPeriod + RenewDeadline + LeaseDuration/6 is at most
//     LeaseDuration in whole seconds, as with client-go's defaults. An elector stops leading at most
//     RetryPeriod + RenewDeadline after the answer to its last renewal, and a Lock takes an answer
//     that comes later than LeaseDuration/6 for a failure.
//   - A loss ends the leadership: after the backend's answer that the lease is lost, the Lock
//     refuses to lead again until the elector must have stopped.
//   - [Lock.Token] is the fencing token, greater than that of every earlier leader. A process that
//     was paused can act after its lease; a resource that refuses lower tokens is safe from that.
//   - A release (ReleaseOnCancel) makes the way free at once. After a crash, or if the leader could
//     not renew, the next leader begins when the lease has ended, plus at most one RetryPeriod with
//     its jitter: a leader that could not renew does not release, because client-go would do so
//     while the leader's work still runs.
//
// # Costs
//
// client-go renews every RetryPeriod. With the default, 2 s, these are 1.3 million requests a
// month, and as many reads by each candidate, two requests each on Azure. A RetryPeriod of
// 5 s with a LeaseDuration of 30 s and a RenewDeadline of 20 s needs less than half of them.
package kuberneteslock
