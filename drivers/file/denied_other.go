//go:build !unix && !windows

package file

// isDenied is always false: which refusals last is not known of this system.
func isDenied(error) bool { return false }

func withAdvice(err error) error { return err }
