package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/cronlock"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/test/locktest"
)

func ExampleJobs_Func() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	jobs, err := cronlock.New(client, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	report, err := jobs.Func("report", func(ctx context.Context) { // for cron.AddFunc
		token, _ := holdfast.TokenFromContext(ctx)
		fmt.Println("the report runs under a fencing token:", token > 0)
	})
	if err != nil {
		log.Fatal(err)
	}
	report() // what cron does at the time of the job
	report() // skipped: the minimum hold is not over
	_ = client.Shutdown(ctx)
	// Output: the report runs under a fencing token: true
}

// Job stands for cron.Job, so that this example needs no other module.
type Job interface{ Run() }

type hello struct{}

func (hello) Run() { fmt.Println("hello") }

func ExampleWrapper() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	jobs, err := cronlock.New(client, time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	wrapper, err := cronlock.Wrapper[Job](jobs, "hello") // Wrapper[cron.Job], for cron.NewChain
	if err != nil {
		log.Fatal(err)
	}
	wrapper(hello{}).Run()
	_ = client.Shutdown(ctx)
	// Output: hello
}

func TestInvalidArguments(t *testing.T) {
	client := locktest.NewClient(t, memory.New())
	jobs, err := cronlock.New(client, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	type twoMethods interface {
		Job
		Stop()
	}
	long := strings.Repeat("x", 10_000)
	for what, err := range map[string]error{
		"nil client":      func() error { _, err := cronlock.New(nil, time.Second); return err }(),
		"no minimum hold": func() error { _, err := cronlock.New(client, 0); return err }(),
		"nil function":    func() error { _, err := jobs.Func("x", nil); return err }(),
		"long name":       func() error { _, err := jobs.Func(long, func(context.Context) {}); return err }(),
		"nil Jobs":        func() error { _, err := cronlock.Wrapper[Job](nil, "x"); return err }(),
		"another Job":     func() error { _, err := cronlock.Wrapper[twoMethods](jobs, "x"); return err }(),
		"wrapper's name":  func() error { _, err := cronlock.Wrapper[Job](jobs, ""); return err }(),
	} {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
