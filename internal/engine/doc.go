// Package engine waits for locks, acquires them, keeps them renewed, releases them, and cleans up
// after requests in doubt. Its exported names are for the packages of this module; the public API
// is in package holdfast and in the packages leases and partitions.
//
// # States of a lock
//
// A caller that waits has an [Acquisition], in the states on the left. A grant makes it a [Hold].
//
//	QUEUED ──first──▶ ASKING ──granted──▶ HELD ──released──▶ RELEASING ──answered──▶ FREE
//	  │                │   ▲                │                   ▲   │
//	  │           refused due           not renewed             │   │
//	  │                ▼   │                ▼                   │   │
//	  ├────────────── WAITING             LOST ─────released────┘   │
//	  │                                     │                       │
//	given up                             expired                in doubt
//	  ▼                                     ▼                       ▼
//	ABANDONED ──in doubt──▶ CLEANED UP    OVERRUN               CLEANED UP
//
// What causes each arrow:
//
//   - first: the caller is the first of its process for the name, and the process itself does not hold the lock
//     ([Client.WaitAcquire], queue.go). [Client.TryOnce] begins with ASKING.
//   - granted: the backend has granted the request, and the answer came before the loss ([Acquisition.Try], [Client.NewHold]).
//     The lease counts from the moment before the request was sent.
//   - refused: another holds the lock, or the request has failed (request.go, noteOutcome). After a final error the caller
//     gives up (wait.go, isFinal).
//   - due: the Waiter says so. The holder's lease has expired or the holder is stuck, the backend's Waker has called, this
//     process has freed the lock, or the poll interval or a backoff has passed (waiter/plan.go, waiter/wake.go).
//   - given up: the caller's context has ended, or Shutdown has begun, in any of the three states ([Acquisition.Abandon]). The
//     process leaves the backend's queue when none of its callers waits any more (positions.go).
//   - not renewed: a renewal that failed was retried until the deadline, or the backend says that the lease is lost. The context
//     ends ([Hold.Lost]).
//   - expired: another may be granted the lock, and the work still runs ([Hold.Overran]). It is released like a lost hold.
//   - released: the program calls [Hold.Release], the function has returned, or Shutdown releases the hold. The context ends and
//     the renewal stops ([Hold.BeginRelease]).
//   - answered: the backend has freed the lock, or it was another's already ([Hold.EndRelease]).
//   - in doubt: the outcome of a request is unknown. A release is retried until it is answered, the lease has expired or the
//     caller's context has ended. Then, as for an acquisition that was abandoned, releases with its ID are repeated until the
//     request can no longer take the lock ([Client.CleanUp]).
package engine
