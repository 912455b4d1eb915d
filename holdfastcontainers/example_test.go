package holdfastcontainers_test

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/holdfastcontainers"
)

var (
	t    *testing.T // of your test
	bill = func(context.Context) error { return nil }
)

func ExampleMongo() {
	// func TestBilling(t *testing.T) {
	client := holdfastcontainers.Mongo(t).Client()
	if err := client.Do(t.Context(), "billing", bill); err != nil {
		t.Fatal(err)
	}
}

func ExamplePostgres() {
	// func TestBilling(t *testing.T) {
	client := holdfastcontainers.Postgres(t).Client()
	if err := client.Do(t.Context(), "billing", bill); err != nil {
		t.Fatal(err)
	}
}

func ExampleAzurite() {
	// func TestBilling(t *testing.T) {
	client := holdfastcontainers.Azurite(t).Client()
	if err := client.Do(t.Context(), "billing", bill); err != nil {
		t.Fatal(err)
	}
}

// Each example is a test of its own.
func TestExamples(outer *testing.T) {
	for name, example := range map[string]func(){"Mongo": ExampleMongo, "Postgres": ExamplePostgres, "Azurite": ExampleAzurite} {
		outer.Run(name, func(sub *testing.T) {
			t = sub
			example()
		})
	}
}
