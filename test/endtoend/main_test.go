//go:build unix

package endtoend

import (
	"flag"
	"os"
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16") // the tests mostly wait
	os.Exit(serverprocess.Run(m))
}
