package driver

import (
	"unique"
)

// LeaseID proves that its bearer holds a lease: whoever has it can renew and release the
// lease. So nothing prints it, in whatever struct and field it is, also an unexported one:
// package fmt, log/slog and encoding/json get at most an address, and encoding/gob refuses
// it. [LeaseID.Reveal] is the only way to the text. IDs of the same text are equal; the
// zero value is that of no text.
type LeaseID struct{ text hidden }

// NewLeaseID makes the ID of a text, such as one that another process revealed.
func NewLeaseID(text string) LeaseID { return LeaseID{hide(text)} }

// Reveal returns the text, for drivers, and for a program that hands its lease to another
// process. Keep it out of logs and errors.
func (id LeaseID) Reveal() string { return id.text.reveal() }

// IsZero reports whether there is no ID.
func (id LeaseID) IsZero() bool { return id == LeaseID{} }

// String hides the text.
func (id LeaseID) String() string {
	if id.IsZero() {
		return "no lease ID"
	}
	return "lease ID"
}

// GoString hides the text.
func (id LeaseID) GoString() string { return "driver.LeaseID(" + id.String() + ")" }

// hidden is a text whose memory is a pointer: what prints the fields of a struct by
// reflection, without asking the methods of their types, shows an address. Equal texts have
// equal pointers. The zero value is the empty text.
type hidden struct{ handle unique.Handle[string] }

func hide(text string) (h hidden) {
	if text != "" {
		h.handle = unique.Make(text)
	}
	return h
}

func (h hidden) reveal() string {
	if h == (hidden{}) {
		return ""
	}
	return h.handle.Value()
}
