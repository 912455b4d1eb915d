package main

import (
	"fmt"
	"io"
)

// stdoutWriter is standard output. Its errors have an exit code of their own, because the
// backend is not their cause.
type stdoutWriter struct {
	w   io.Writer
	err error // the first error
}

func (s *stdoutWriter) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		err = &exitError{codeOutput, fmt.Errorf("cannot write the output: %w", err)}
		if s.err == nil {
			s.err = err
		}
	}
	return n, err
}
