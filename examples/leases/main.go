// Leases holds the leases of many names, as a program that owns partitions or devices does.
// It prints when it acquires, loses or releases a lease. For each lease a function runs, which counts in
// the data that is stored with the lease.
//
// Start it in two terminals. The second one waits for every name. When you stop the first,
// the second takes over all names and continues the first one's counts.
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
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/etcd"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
	"github.com/holdfast-go/holdfast/leases"
)

func main() {
	backend := flag.String("backend", "file:"+filepath.ToSlash(filepath.Join(os.TempDir(), "holdfast-examples")),
		"URL of the storage for the locks")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: leases [-backend URL] NAME...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := manage(ctx, os.Stdout, *backend, time.Second, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// manage acquires the leases of as many names as it can and holds them until ctx ends. Then
// it releases them.
func manage(ctx context.Context, out io.Writer, backend string, every time.Duration, names []string) (err error) {
	client, err := holdfast.Open(ctx, backend, holdfast.WithTTL(15*time.Second))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err = errors.Join(err, client.Shutdown(ctx)) // releases everything
	}()
	manager, err := leases.New(client,
		holdfast.WithObserver(func(e holdfast.Event) { fmt.Fprintln(out, e) }),
		leases.WithFunc(func(ctx context.Context, name string) error { return work(ctx, out, every, name) }))
	if err != nil {
		return err
	}
	if err := manager.Add(names...); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// work counts in the data of a lease until ctx ends, which it does with the lease. Then the lease is
// released.
func work(ctx context.Context, out io.Writer, every time.Duration, name string) error {
	hold, _ := holdfast.HoldFromContext(ctx)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// The storage itself refuses an update by a former holder.
		err := hold.UpdateData(ctx, func(old []byte) ([]byte, error) {
			n, _ := strconv.Atoi(string(old)) // 0 at first
			fmt.Fprintf(out, "note %d of %q\n", n+1, name)
			return []byte(strconv.Itoa(n + 1)), nil
		})
		if err != nil {
			return err // it is reported, and work is called again after a backoff
		}
	}
}
