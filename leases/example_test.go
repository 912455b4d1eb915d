package leases_test

import (
	"context"
	"fmt"
	"log"
	"strconv"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/leases"
)

// A program that keeps what it can get of many names: for each there is one owner.
func ExampleLeaseManager() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	acquired := make(chan string)
	manager, err := leases.New(client, holdfast.WithObserver(func(e holdfast.Event) {
		switch e.Type {
		case holdfast.EventAcquired:
			acquired <- e.Name // begin the work, under the context of manager.Hold(e.Name)
		case holdfast.EventLost, holdfast.EventReleased:
			// that context has ended: the work stops
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.Add("north", "south"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		name := <-acquired
		hold, ok := manager.Hold(name)
		if !ok {
			continue // it was lost a moment ago
		}
		err := hold.UpdateData(ctx, func(old []byte) ([]byte, error) {
			n, _ := strconv.Atoi(string(old)) // 0 at first
			return []byte(strconv.Itoa(n + 1)), nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for _, lease := range manager.Leases() {
		hold, ok := manager.Hold(lease.Name)
		if !ok {
			continue
		}
		data, err := hold.Data(ctx)
		fmt.Println(lease.Name, "has had", string(data), "owner", err)
	}
	if err := manager.Remove(ctx, "south"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", len(manager.Leases()))
	if err := client.Shutdown(ctx); err != nil { // closes the manager, too
		log.Fatal(err)
	}
	fmt.Println("held:", len(manager.Leases()))
	// Output:
	// north has had 1 owner <nil>
	// south has had 1 owner <nil>
	// held: 1
	// held: 0
}
