package driver

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// MaxTTL bounds every TTL, and every duration that a program sets. Sums of a few such
// durations do not overflow.
const MaxTTL = 36 * 365 * 24 * time.Hour

// maxID is the longest lease ID, in bytes. A UUID has 36.
const maxID = 64

// Validate checks the request against a backend's limits. The error is an *[InvalidError].
// A client validates before it calls a driver. A driver validates again, since programs can
// call it directly.
func (r Request) Validate(l Limits) error {
	if err := ValidateName(r.Name, l); err != nil {
		return err
	}
	if err := validateID("ID", r.ID); err != nil {
		return err
	}
	if !utf8.ValidString(r.Owner) || l.MaxOwner > 0 && len(r.Owner) > l.MaxOwner {
		return Invalid("Owner", Quote(r.Owner), "valid UTF-8 of "+ByteRange(0, l.MaxOwner))
	}
	if err := ValidateData(r.Data, l); err != nil {
		return err
	}
	return ValidateTTL(r.TTL, l)
}

// ValidateHandOver checks the arguments of [HandOverer] against a backend's limits: the
// request as Validate does, the name of the lease, which must be the request's, and the ID
// of the lease. The error is an *[InvalidError]. Its field is "from.Name" or "from.ID" if the
// lease is what is wrong.
func ValidateHandOver(from Lease, req Request, l Limits) error {
	if err := req.Validate(l); err != nil {
		return err
	}
	if from.Name != req.Name {
		return Invalid("from.Name", Quote(from.Name), "the request's name, "+Quote(req.Name))
	}
	return validateID("from.ID", from.ID)
}

// validateID checks the ID of a lease. The error does not show it, since it is a secret.
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
		return Invalid("Name", Quote(name), "valid UTF-8 of "+ByteRange(1, l.MaxName))
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
	rule := "from " + FormatDuration(l.MinTTL) + " to " + FormatDuration(l.MaxTTL)
	if l.TTLStep > time.Nanosecond {
		rule += " in steps of " + FormatDuration(l.TTLStep)
	}
	rule += " on this backend"
	if l.TTLNote != "" {
		rule += " (" + l.TTLNote + ")"
	}
	return Invalid("TTL", FormatDuration(ttl), rule)
}

// ValidateData checks the size of a lock's data against a backend's limits.
func ValidateData(data []byte, l Limits) error {
	if l.MaxData > 0 && len(data) > l.MaxData {
		return Invalid("Data", fmt.Sprintf("of %d bytes", len(data)), fmt.Sprintf("at most %d bytes on this backend", l.MaxData))
	}
	return nil
}
