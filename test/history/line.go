// Package history records what the clients of a lock do, and checks whether the lock's promises
// held.
//
// Each process writes JSON lines to a file of its own through a [Recorder]: a line before an
// operation is sent, a line after its answer has come, and now and then a line that says that the
// context of its hold was live. Each line is handed to the system before the process continues,
// so that a SIGKILL loses at most the last one. The program that runs the processes records in a
// file of its own which of them it stops, kills and cuts off.
//
// [Load] merges the files into a [History]. [Check] checks that the intervals in which contexts were
// live do not overlap, that tokens rise from grant to grant, that no stale write was accepted, and
// that no update of a counter that only the lock protects was lost. Package registers of the
// integration module also checks the fenced registers for linearizability.
//
// The simulator, which runs all processes and the backend in one program, makes its lines without
// files.
//
// Holders that were paused, or judged by a clock that was moved, are excused where the promises
// exclude them. Reports count these cases separately.
package history

import "time"

// Kind is what a [Line] records.
type Kind string

// Lines that clients write.
const (
	// Ask: the client begins to wait for the lock. ID identifies the hold that it will get.
	// If Queued is set, the order of such lines is certainly the order in which the waiters of the
	// process joined the queue.
	Ask Kind = "ask"
	// Quit: the client waits no longer for the hold ID.
	Quit Kind = "quit"
	// Live: the context of the hold ID was live at the time At. The client reads At before it
	// checks the context, so that no pause can make the line wrong. ErrNil is the latest such
	// time at which Hold.Err was nil, too.
	Live Kind = "live"
	// Call and Return are the two ends of an operation. Both have its ID.
	Call   Kind = "call"
	Return Kind = "return"
	// Stall: the process did not get to run from At to Until, as if it were paused.
	Stall Kind = "stall"
	// Exit: the process ends normally. Value is the number of goroutines that are left.
	Exit Kind = "exit"
)

// Lines that are written by the program that runs the clients, and by what it runs itself: the store
// of the counter, a simulated backend.
const (
	// Grant: the backend granted the lock, with Token. A repeated request is no grant.
	Grant Kind = "grant"
	// Set: a client set the counter to Value, computed from Base, the value that it had read.
	// Found is the value that it replaced.
	Set Kind = "set"
	// Pause and Resume: the process was stopped between them.
	Pause  Kind = "pause"
	Resume Kind = "resume"
	// Skew and Unskew: between them, a clock that judges expiry was off by more than the grace.
	Skew   Kind = "skew"
	Unskew Kind = "unskew"
	// Fault: another fault lasted from At to Until. Note names it.
	Fault Kind = "fault"
)

// Op is the operation of a [Call].
type Op string

const (
	// Write sets a fenced register to Value under Token.
	Write Op = "write"
	// Read returns the Value of a fenced register and the Token that it was written with.
	Read Op = "read"
)

// Outcome is how an operation ended.
type Outcome string

const (
	// OK: the operation took effect.
	OK Outcome = "ok"
	// Refused: the token was too low, and the operation had no effect.
	Refused Outcome = "refused"
	// Failed: the operation certainly had no effect, for a reason other than its token.
	Failed Outcome = "failed"
	// Unknown: the operation may have taken effect, may take effect later, or never. An operation
	// without a Return has this outcome.
	Unknown Outcome = "unknown"
)

// Line is one line of a history. Kind says which fields have a meaning.
type Line struct {
	// At is a reading of [Now].
	At time.Duration `json:"at"`
	// Process is the number of the process, from 1; 0 means all. Client is the client that the
	// process runs: a restarted client has a new process.
	Client  int  `json:"client"`
	Process int  `json:"process"`
	Kind    Kind `json:"kind"`
	// ID connects lines of one process.
	ID      uint64        `json:"id,omitempty"`
	Op      Op            `json:"op,omitempty"`
	Key     string        `json:"key,omitempty"` // the register
	Token   uint64        `json:"token,omitempty"`
	Shared  bool          `json:"shared,omitempty"` // of Live and Grant: with other readers
	Value   int64         `json:"value,omitempty"`
	Base    int64         `json:"base,omitempty"`
	Found   int64         `json:"found,omitempty"`
	Outcome Outcome       `json:"outcome,omitempty"`
	ErrNil  time.Duration `json:"errNil,omitempty"`
	Queued  bool          `json:"queued,omitempty"`
	Until   time.Duration `json:"until,omitempty"`
	Note    string        `json:"note,omitempty"`
}
