package driver

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver/text"
)

// MaxTTL is what a duration may be at most, so that sums of a few do not overflow.
const MaxTTL = 36 * 365 * 24 * time.Hour

// maxID bounds a lease ID; a UUID has 36 bytes.
const maxID = 64

// Validate checks the request against a backend's limits. The error is an
// *[InvalidError]. A Client does this before it calls a driver, and drivers do
// it again, since they can be used directly.
func (r Request) Validate(l Limits) error {
	if err := ValidateName(r.Name, l); err != nil {
		return err
	}
	if err := validateID("ID", r.ID); err != nil {
		return err
	}
	if !utf8.ValidString(r.Owner) || l.MaxOwner > 0 && len(r.Owner) > l.MaxOwner {
		return Invalid("Owner", text.Quote(r.Owner), "valid UTF-8 of "+text.ByteRange(0, l.MaxOwner))
	}
	if err := ValidateData(r.Data, l); err != nil {
		return err
	}
	return ValidateTTL(r.TTL, l)
}

// ValidateHandOver checks what [HandOverer] is given against a backend's limits: the
// request as Validate does, and of the lease the name, which must be the request's, and
// the ID. The error is an *[InvalidError], about "from.Name" or "from.ID" if it is the lease's.
func ValidateHandOver(from Lease, req Request, l Limits) error {
	if err := req.Validate(l); err != nil {
		return err
	}
	if from.Name != req.Name {
		return Invalid("from.Name", text.Quote(from.Name), "the request's name, "+text.Quote(req.Name))
	}
	return validateID("from.ID", from.ID)
}

// validateID checks the ID of a lease. It is a secret and is not shown.
func validateID(field string, leaseID LeaseID) error {
	id := leaseID.Reveal()
	if id == "" || len(id) > maxID || !utf8.ValidString(id) {
		return Invalid(field, fmt.Sprintf("of %d bytes", len(id)), fmt.Sprintf("valid UTF-8 of 1 to %d bytes, such as a UUID", maxID))
	}
	return nil
}

// ValidateName checks the name of a lock against a backend's limits.
func ValidateName(name string, l Limits) error {
	if name == "" || !utf8.ValidString(name) || l.MaxName > 0 && len(name) > l.MaxName {
		return Invalid("Name", text.Quote(name), "valid UTF-8 of "+text.ByteRange(1, l.MaxName))
	}
	return nil
}

// ValidateTTL checks a TTL against a backend's limits.
func ValidateTTL(ttl time.Duration, l Limits) error {
	if l.MaxTTL == 0 {
		l.MaxTTL = MaxTTL
	}
	if ttl >= l.MinTTL && ttl > 0 && ttl <= l.MaxTTL && (l.TTLStep == 0 || ttl%l.TTLStep == 0) {
		return nil
	}
	rule := "from " + text.Duration(l.MinTTL) + " to " + text.Duration(l.MaxTTL)
	if l.TTLStep > time.Nanosecond {
		rule += " in steps of " + text.Duration(l.TTLStep)
	}
	rule += " on this backend"
	if l.TTLNote != "" {
		rule += " (" + l.TTLNote + ")"
	}
	return Invalid("TTL", text.Duration(ttl), rule)
}

// ValidateData checks the size of a lock's data against a backend's limits.
func ValidateData(data []byte, l Limits) error {
	if l.MaxData > 0 && len(data) > l.MaxData {
		return Invalid("Data", fmt.Sprintf("of %d bytes", len(data)), fmt.Sprintf("at most %d bytes on this backend", l.MaxData))
	}
	return nil
}
