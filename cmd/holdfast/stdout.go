package main

import (
	"fmt"
	"io"
)

// results is standard output. That it cannot be written is an error of its own: the
// backend is not to blame.
type results struct {
	w   io.Writer
	err error // the first
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if err != nil {
		err = &exitError{codeOutput, fmt.Errorf("cannot write the output: %w", err)}
		if r.err == nil {
			r.err = err
		}
	}
	return n, err
}
