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

// A program that keeps what it can get of many names: for each there is one owner, which works on it.
func ExampleLeaseManager() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:") // mongodb://… or azblob://… in production
	if err != nil {
		log.Fatal(err)
	}
	working := make(chan string, 2)
	manager, err := leases.New(client, leases.WithFunc(func(ctx context.Context, name string) error {
		hold, _ := holdfast.HoldFromContext(ctx)
		err := hold.UpdateData(ctx, func(old []byte) ([]byte, error) {
			n, _ := strconv.Atoi(string(old)) // 0 at first
			return []byte(strconv.Itoa(n + 1)), nil
		})
		if err != nil {
			return err // the function is called again after a backoff
		}
		working <- name
		<-ctx.Done() // the work, until the lease is lost or the name is removed
		return nil   // only now the lease is released
	}))
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.Add("north", "south"); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		<-working
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
