//go:build unix

package serverprocess

import (
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	t.Parallel()
	s := startOne(t)
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if answers(s.Addr(), 200*time.Millisecond) {
		t.Error("a paused server answers")
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if !answers(s.Addr(), 10*time.Second) {
		t.Error("a resumed server does not answer")
	}
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Errorf("kill a paused server: %v", err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	s := startOne(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if !s.stoppedInOrder() || answers(s.Addr(), time.Second) {
		t.Error("the server did not end in good order")
	}
}
