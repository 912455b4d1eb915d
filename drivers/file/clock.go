package file

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/holdfast-go/holdfast/driver/lockstate"
)

// clock judges expiry. Its IDs say where and when a record was written.
type clock struct {
	now     func() (lockstate.Moment, error)
	boot    string // ID of the boot; the readings of two boots cannot be compared
	machine string // ID of the machine
	// byHostName: this system knows its machine by the host name alone, which may change with the network, as on macOS.
	byHostName bool
}

// machineDigest returns an ID for a machine that does not reveal the original ID, as
// machine-id(5) demands.
func machineDigest(id string) string {
	sum := sha256.Sum256([]byte("holdfast " + strings.TrimSpace(id)))
	return hex.EncodeToString(sum[:8])
}
