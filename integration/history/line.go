// Package history records what the clients of a lock did, and checks whether they
// were allowed to.
//
// Each process writes its own file of JSON lines through a [Recorder]: a line before
// an operation is sent, a line after its answer has come, and now and then a line
// that says that the context of its hold was live. A line is in the system's hands
// before the next thing happens, so that a kill -9 loses at most the last. Who runs
// the processes notes in a file of its own whom it stops, kills and cuts off.
//
// [Load] merges the files into a [History]. [Check] holds it against what is
// promised, in two ways that have nothing in common:
//
//   - Registers that refuse writes with a lower token than one they have seen are
//     checked for linearizability by porcupine, a checker that others wrote. An
//     operation whose outcome is unknown may take effect at any time after its
//     start, or never.
//   - The intervals in which contexts were live must not overlap, tokens must rise
//     from grant to grant, no stale write may be accepted, and no update of a counter
//     that only the lock protects may be lost.
//
// What a holder did that was paused, or judged by a clock that was moved, is excused
// where the promise leaves it out, and counted apart.
package history

import "time"

// Kind says what a [Line] tells.
type Kind string

// What clients tell.
const (
	// Ask: the client begins to wait for the lock; ID names the hold to be.
	Ask Kind = "ask"
	// Live: at the time At the context of the hold ID was live. At must be read
	// before the context is looked at, so that no pause can make it wrong. Sure is
	// the latest such time at which Hold.Err was nil, too.
	Live Kind = "live"
	// Call and Return are the two ends of an operation, named by ID.
	Call   Kind = "call"
	Return Kind = "return"
	// Stall: from At up to Until the process did not get to run, as if it were paused.
	Stall Kind = "stall"
	// Exit: the process ends in order; Value is how many goroutines are left over.
	Exit Kind = "exit"
)

// What is told by those who run the clients, and by the counter's store.
const (
	// Set: the counter was set to Value by a client that had read Base, while it was
	// Found.
	Set Kind = "set"
	// Pause and Resume: the process was stopped between them.
	Pause  Kind = "pause"
	Resume Kind = "resume"
	// Skew and Unskew: between them a clock that judges expiry was off by more than
	// the grace.
	Skew   Kind = "skew"
	Unskew Kind = "unskew"
	// Fault: from At up to Until something else was done to the system; Note says what.
	Fault Kind = "fault"
)

// Op is an operation of a [Call].
type Op string

const (
	// Write sets a fenced register to Value under Token.
	Write Op = "write"
	// Read returns a fenced register's Value and the Token it was written with.
	Read Op = "read"
)

// Outcome is how an operation ended.
type Outcome string

const (
	// OK: it took effect.
	OK Outcome = "ok"
	// Refused: its token was too low, and it had no effect.
	Refused Outcome = "refused"
	// Failed: it certainly had no effect, for a reason that says nothing of tokens.
	Failed Outcome = "failed"
	// Unknown: it may have had its effect, may have it later, or never. An
	// operation without a Return is such a one.
	Unknown Outcome = "unknown"
)

// Line is one line of a history. Which fields mean something depends on its Kind.
type Line struct {
	// At is a reading of [Now].
	At time.Duration `json:"at"`
	// Process is a number that whoever starts processes gives to each, from 1; 0
	// stands for all. Client is the client whose process it is: one that is
	// restarted has a new process.
	Client  int  `json:"client"`
	Process int  `json:"process"`
	Kind    Kind `json:"kind"`
	// ID pairs lines of one process.
	ID      uint64        `json:"id,omitempty"`
	Op      Op            `json:"op,omitempty"`
	Key     string        `json:"key,omitempty"` // the register
	Token   uint64        `json:"token,omitempty"`
	Value   int64         `json:"value,omitempty"`
	Base    int64         `json:"base,omitempty"`
	Found   int64         `json:"found,omitempty"`
	Outcome Outcome       `json:"outcome,omitempty"`
	Sure    time.Duration `json:"sure,omitempty"`
	Until   time.Duration `json:"until,omitempty"`
	Note    string        `json:"note,omitempty"`
}
