package driverutil

import "github.com/holdfast-go/holdfast/driver"

// Unsent marks the error of a request that certainly never left the process; see [driver.NotSent]. OpError passes the mark on if
// nothing was wrapped around it, so an error on the way that says more leaves the outcome unknown.
func Unsent(err error) error {
	if _, is := err.(*unsentError); is || err == nil { //nolint:errorlint // as in OpError
		return err
	}
	return &unsentError{err}
}

type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// OpError is the error of a call, or nil. It takes the mark of Unsent from err: the error of this call may become the cause of the
// end of another call's context.
func OpError(op, backend, name string, err error) error {
	if err == nil {
		return nil
	}
	unsent, is := err.(*unsentError) //nolint:errorlint // a mark within err is that of another call
	if is {
		err = unsent.error
	}
	return &driver.OpError{Op: op, Backend: backend, Name: name, Err: err, NotSent: is && !driver.OutcomeKnown(err)}
}
