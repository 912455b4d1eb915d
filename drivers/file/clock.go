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
	// byHostName: machine comes from the host name, as on all systems but Linux. It changes with the network on some, such as macOS.
	byHostName bool
}

// machineDigest returns an ID for a machine that does not reveal the original ID, as
// machine-id(5) demands.
func machineDigest(id string) string {
	sum := sha256.Sum256([]byte("holdfast " + strings.TrimSpace(id)))
	return hex.EncodeToString(sum[:8])
}
