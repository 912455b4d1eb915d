package postgres

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) {
	code := serverprocess.Run(m)
	// A pool looks at its connections half a second after one was closed, also if it is closed itself meanwhile.
	pool := goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).triggerHealthCheck.func1")
	if err := goleak.Find(pool); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
