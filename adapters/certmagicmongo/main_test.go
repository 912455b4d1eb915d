package certmagicmongo

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }
