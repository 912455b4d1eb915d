package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
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
		err = exitcode.With(exitcode.Output, fmt.Errorf("cannot write the output: %w", err))
		if s.err == nil {
			s.err = err
		}
	}
	return n, err
}

// writeJSON writes one value on one line.
func writeJSON(w io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}
