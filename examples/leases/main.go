// Leases keeps the leases of many names, as a program does that owns partitions or
// devices: it says when it acquires, loses and releases one, and keeps a note in the
// data that is stored with each.
//
// Start it in two terminals: the second waits for every name. End the first, and the
// second takes over all of them, and counts on from the first one's notes.
//
//	go run ./examples/leases north south west
//	go run ./examples/leases -backend 'mongodb://127.0.0.1:27017/app?replicaSet=rs0' north south west
//	go run ./examples/leases -backend azblob://emulator/locks north south west
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")), "where the locks are kept")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := manage(ctx, os.Stdout, *backend, time.Second, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// manage keeps the leases of all names that it can get until ctx ends, and then
// gives them back.
func manage(ctx context.Context, out io.Writer, backend string, every time.Duration, names []string) (err error) {
	client, err := holdfast.Open(ctx, backend, holdfast.WithTTL(15*time.Second),
		holdfast.WithObserver(func(e holdfast.Event) { fmt.Fprintln(out, e) }))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx))
	}()
	// Not every backend can store data with a lock.
	notes := client.Locker().Abilities().DataStore
	if notes == nil {
		return errors.New("this backend stores no data")
	}
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() {
			for ctx.Err() == nil { // after a loss, wait for the lock again
				hold, err := client.Lock(ctx, name)
				if err != nil {
					fmt.Fprintln(out, err)
					return
				}
				keepNotes(ctx, out, hold, notes, every)
				_ = hold.Release(ctx) // the observer is told
			}
		})
	}
	wg.Wait()
	return nil
}

// keepNotes counts in the lock's data until the hold or ctx ends. The storage itself
// refuses a count by anybody whose lease is over.
func keepNotes(ctx context.Context, out io.Writer, hold *holdfast.Hold, notes holdfast.DataStore, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		data, err := notes.ReadData(hold.Context(), hold.Name())
		if err == nil {
			n, _ := strconv.Atoi(string(data)) // 0 at first
			err = notes.WriteData(hold.Context(), hold.Lease(), []byte(strconv.Itoa(n+1)))
			fmt.Fprintf(out, "note %d of %q\n", n+1, hold.Name())
		}
		if err != nil && hold.Err() == nil {
			fmt.Fprintln(out, err) // it may pass: the lease is kept meanwhile
		}
		select {
		case <-ticker.C:
		case <-hold.Context().Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
