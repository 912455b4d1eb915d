package driver

import "unique"

// LeaseID proves that a request comes from the holder of a lease: any process that knows
// the ID can renew and release the lease. It is a secret, and nothing prints it, in
// whatever struct and field it is, also an unexported one. Packages fmt, log/slog and
// encoding/json get at most an address, and encoding/gob refuses it. Only
// [LeaseID.Reveal] returns the text.
//
// IDs of the same text are equal. The zero value is the ID of the empty text.
type LeaseID struct{ text hidden }

// NewLeaseID makes an ID from its text, such as one that another process revealed.
func NewLeaseID(text string) LeaseID { return LeaseID{hide(text)} }

// Reveal returns the text. It is for drivers, and for a program that passes its lease to
// another process. Keep the text out of logs and errors.
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

// hidden is a text behind a pointer. Code that prints the fields of a struct by reflection,
// without calling the methods of their types, shows only an address. Equal texts have equal
// pointers. The zero value is the empty text.
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
