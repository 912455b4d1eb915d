// Package workload is a program that works under a lock, in processes that a test can kill, stop
// and cut off from the backend.
//
// Each process repeatedly holds the lock for a short random time. Under the lock it increments,
// in two steps, a counter that only the lock protects, and writes to registers that refuse a
// lower token than one they have seen. One register is in the [Store] of the test, and one in the
// backend itself, behind the driver's own fence. Sometimes a process writes after its hold has
// ended, like a process that was paused in the middle of a write. Package history records all of
// that.
//
// The processes run the test binary:
//
//	func TestMain(m *testing.M) {
//		workload.MainIfConfigured()
//		os.Exit(m.Run())
//	}
//
// [Start] starts a process. The history of the test says which processes were stopped, and when.
package workload
