package readiness_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	"github.com/holdfast-go/holdfast/readiness"
)

// A load balancer that uses this probe sends requests to the leader only.
func ExampleHandler() {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	runner, err := holdfast.NewLeaderAwareRunner(client, "billing")
	if err != nil {
		log.Fatal(err)
	}
	probe := func() {
		w := httptest.NewRecorder()
		readiness.Handler(runner).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", http.NoBody))
		fmt.Println(w.Code)
	}
	probe()
	err = runner.Run(ctx, func(context.Context) error { probe(); return nil })
	fmt.Println(err)
	if err := client.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 503
	// 200
	// <nil>
}
