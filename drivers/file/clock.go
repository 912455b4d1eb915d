package file

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// clock is what judges expiry, and how records are told apart by origin.
type clock struct {
	now     func() (lockstate.Moment, error)
	boot    string // of what now counts from; readings of two boots are not comparable
	machine string
}

// machineDigest shows which machine it is without giving its ID away, which
// machine-id(5) asks for.
func machineDigest(id string) string {
	sum := sha256.Sum256([]byte("holdfast " + strings.TrimSpace(id)))
	return hex.EncodeToString(sum[:8])
}
