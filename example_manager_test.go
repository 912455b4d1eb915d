package holdfast_test

import (
	"context"
	"fmt"
	"log"
	"strconv"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
)

// A program that keeps what it can get of many names: for each there is one owner.
func ExampleLeaseManager() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	acquired := make(chan string)
	manager, err := holdfast.NewLeaseManager(client, holdfast.WithObserver(func(e holdfast.Event) {
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
	if err := manager.Manage("north", "south"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		name := <-acquired
		err := manager.UpdateData(ctx, name, func(old []byte) ([]byte, error) {
			n, _ := strconv.Atoi(string(old)) // 0 at first
			return []byte(strconv.Itoa(n + 1)), nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for _, lease := range manager.Leases() {
		data, err := manager.ReadData(ctx, lease.Name)
		fmt.Println(lease.Name, "has had", string(data), "owner", err)
	}
	if err := manager.Unmanage(ctx, "south"); err != nil {
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
