package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Recorder writes the lines of one process to a file of its own. Its methods are safe for
// concurrent use.
type Recorder struct {
	client, process int
	file            *os.File
	ids             atomic.Uint64
	err             atomic.Pointer[error] // the first failure to write
}

// NewRecorder creates the file of a process in dir. Process 0 is the program that runs the
// others; a history has at most one.
func NewRecorder(dir string, client, process int) (*Recorder, error) {
	path := filepath.Join(dir, fmt.Sprintf("process-%04d%s", process, Suffix))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Recorder{client: client, process: process, file: file}, nil
}

// Record writes a line with one system call, so that it survives a crash of the process. It fills
// in the time if it is missing, and the process of the recorder unless the line is about another
// one. Close returns the first failure to write.
func (r *Recorder) Record(l Line) {
	if l.At == 0 {
		l.At = Now()
	}
	if l.Process == 0 && r.process != 0 {
		l.Client, l.Process = r.client, r.process
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = r.file.Write(append(b, '\n'))
	}
	if err != nil {
		r.err.CompareAndSwap(nil, &err)
	}
}

// NewID returns a new number for [Line.ID].
func (r *Recorder) NewID() uint64 { return r.ids.Add(1) }

// Call records the start of an operation, before it is sent. The function that it returns records
// the end, with the outcome and, for a Read, the token and the value.
func (r *Recorder) Call(op Op, key string, token uint64, value int64) func(o Outcome, token uint64, value int64) {
	l := Line{Kind: Call, ID: r.NewID(), Op: op, Key: key, Token: token, Value: value}
	r.Record(l)
	return func(o Outcome, token uint64, value int64) {
		r.Record(Line{Kind: Return, ID: l.ID, Outcome: o, Token: token, Value: value})
	}
}

// Close closes the file and returns the first failure to write.
func (r *Recorder) Close() error {
	err := r.file.Close()
	if first := r.err.Load(); first != nil {
		err = errors.Join(*first, err)
	}
	return err
}
