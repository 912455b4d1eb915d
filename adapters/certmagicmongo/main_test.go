package certmagicmongo

import (
	"testing"

	"github.com/holdfast-go/holdfast/test/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }
