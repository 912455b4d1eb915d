package certmagicazblob

import (
	"testing"

	"github.com/holdfast-go/holdfast/test/azuritetest"
)

func TestMain(m *testing.M) { azuritetest.Main(m) }
