package driver

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxTTL bounds every TTL, and every duration that a program sets. Sums of a few such
// durations do not overflow.
const MaxTTL = 36 * 365 * 24 * time.Hour

// maxID is the longest lease ID, in bytes. A UUID has 36.
const maxID = 64

// Validate checks the request against what a backend accepts. The error is an *[InvalidError].
// A client validates before it calls a driver. A driver validates again, since programs can
// call it directly.
func (r Request) Validate(info Info) error {
	l := info.Limits
	if err := ValidateName(r.Name, l); err != nil {
		return err
	}
	if err := validateID(r.ID); err != nil {
		return err
	}
	if !utf8.ValidString(r.Owner) || l.MaxOwner > 0 && len(r.Owner) > l.MaxOwner {
		return Invalid("Owner", Quote(r.Owner), "valid UTF-8 of "+ByteRange(0, l.MaxOwner))
	}
	if err := ValidateData(r.Data, l); err != nil {
		return err
	}
	if !info.Modes.Has(r.Mode) {
		return Invalid("Mode", r.Mode.String(), info.Modes.String()+" on this backend")
	}
	if r.Mode == Shared {
		if err := validateShared(r); err != nil {
			return err
		}
	}
	if err := ValidateWaiter(r.Waiter); err != nil {
		return err
	}
	if r.QueueFor < 0 {
		return Invalid("QueueFor", FormatDuration(r.QueueFor), "0, or how long a position lasts")
	}
	if r.QueueFor > 0 && r.Waiter == "" {
		return Invalid("Waiter", Quote(""), "an ID, because QueueFor is set")
	}
	return ValidateTTL(r.TTL, l)
}

// validateShared checks what a holder may not bring that shares the lock.
func validateShared(r Request) error {
	if len(r.Owner) > MaxSharedOwner {
		return Invalid("Owner", Quote(r.Owner), "of "+ByteRange(0, MaxSharedOwner)+" for a shared lock")
	}
	if r.Data != nil {
		return Invalid("Data", fmt.Sprintf("of %d bytes", len(r.Data)), "none for a shared lock: only an exclusive holder changes the data")
	}
	return nil
}

// ValidateLeave checks the arguments of [Queue]. The error is an *[InvalidError].
func ValidateLeave(waiter WaiterID, names []string, l Limits) error {
	for _, name := range names {
		if err := ValidateName(name, l); err != nil {
			return err
		}
	}
	return ValidateWaiter(waiter)
}

// ValidateWaiter checks the ID of a waiter, which may be empty. The error is an *[InvalidError].
func ValidateWaiter(id WaiterID) error {
	if !utf8.ValidString(string(id)) || len(id) > MaxWaiterID || strings.ContainsRune(string(id), 0) {
		return Invalid("Waiter", Quote(string(id)), "valid UTF-8 of "+ByteRange(0, MaxWaiterID)+" without a zero byte")
	}
	return nil
}

// validateID checks the ID of a lease. The error does not show it, since it is a secret.
func validateID(leaseID LeaseID) error {
	id := leaseID.Reveal()
	if id == "" || len(id) > maxID || !utf8.ValidString(id) {
		return Invalid("ID", fmt.Sprintf("of %d bytes", len(id)), fmt.Sprintf("valid UTF-8 of 1 to %d bytes, such as a UUID", maxID))
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

// ValidateRenew checks the lease of a renewal. The error is an *[InvalidError].
func ValidateRenew(lease Lease, l Limits) error {
	return cmp.Or(ValidateName(lease.Name, l), ValidateTTL(lease.TTL, l))
}

// ValidateWriteData checks the arguments of [DataStore].WriteData. The error is an *[InvalidError].
func ValidateWriteData(lease Lease, data []byte, l Limits) error {
	return cmp.Or(ValidateName(lease.Name, l), ValidateData(data, l))
}

// ValidateData checks the size of a lock's data against a backend's limits.
func ValidateData(data []byte, l Limits) error {
	if l.MaxData > 0 && len(data) > l.MaxData {
		return Invalid("Data", fmt.Sprintf("of %d bytes", len(data)), fmt.Sprintf("at most %d bytes on this backend", l.MaxData))
	}
	return nil
}
