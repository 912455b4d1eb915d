// Package workload is a program that works under a lock, in processes that are there
// to be killed, stopped and cut off from the backend.
//
// Each process takes the lock, again and again, for a random short while. In it, it
// adds to a counter that nothing but the lock protects, in two steps, and writes to
// registers that refuse a lower token than one they have seen: one in the [Store] of
// whoever runs the processes, and one in the backend itself, behind the driver's own
// fence. Now and then it goes on with a write when its hold is over, as a process
// does that is paused in the middle of it. It records all that with package history.
//
// The processes are the test binary, run again:
//
//	func TestMain(m *testing.M) {
//		workload.MainIfConfigured()
//		os.Exit(m.Run())
//	}
//
// [Start] starts one; its history tells who was stopped or killed, and when.
package workload
