package event

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Result is how a function of the program ended.
type Result struct {
	// Err is what the function returned, or says that it panicked, with the stack, or ended its goroutine.
	Err    error
	Panic  any  // the value of the panic, or nil
	Goexit bool // it ended its goroutine: what has to go on needs another one
}

// Failed reports whether the function did not return.
func (r Result) Failed() bool { return r.Panic != nil || r.Goexit }

var errGoexit = errors.New("the function ended its goroutine (runtime.Goexit, which a test's FailNow calls)")

// CallUser calls a function of the program and then ended, whichever of the three ways the function has ended in. A
// panic ends there, unless ended panics again; the function's frames are still on the stack then. After Goexit the
// goroutine ends when ended has returned.
func CallUser(fn func() error, ended func(Result)) {
	r := Result{Err: errGoexit, Goexit: true}
	defer func() {
		if p := recover(); p != nil {
			r = Result{Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack()), Panic: p}
		}
		ended(r)
	}()
	r = Result{Err: fn()}
}
