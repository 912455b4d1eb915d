package certmagicazblob

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/azuritetest"
)

func TestMain(m *testing.M) { azuritetest.Main(m) }
