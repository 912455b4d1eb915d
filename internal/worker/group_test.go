package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/worker"
)

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g worker.Group
		if !g.Wait(t.Context()) {
			t.Error("waiting for an idle group did not end")
		}
		release := make(chan struct{})
		if !g.Go(func() { <-release }) {
			t.Error("an open group refused work")
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.Wait(brief) {
			t.Error("a busy group counts as idle")
		}
		g.Close()
		if g.Start() || g.Go(func() { t.Error("a closed group ran something") }) {
			t.Error("a closed group took work")
		}
		done := make(chan bool, 2)
		for range 2 { // any number may wait
			go func() { done <- g.Wait(t.Context()) }()
		}
		synctest.Wait()
		close(release)
		for range 2 {
			if !<-done {
				t.Error("waiting did not end with the work")
			}
		}
	})
}
