package driver

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"sync"
	"unique"
)

// LeaseID proves that a request comes from the holder of a lease: any process that knows
// the ID can renew and release the lease. It is a secret, and nothing prints it, in
// whatever struct and field it is, also an unexported one. Packages fmt, log/slog and
// encoding/json get at most an address, or the ID encrypted with a key that only this
// process has, and encoding/gob refuses it. Only [LeaseID.Reveal] returns the text.
//
// IDs of the same text are equal. The zero value is the ID of the empty text.
type LeaseID struct {
	uuid  [16]byte // an encrypted UUID, or zero; this needs a tenth of the memory of a handle
	other hidden   // any other text
}

// NewLeaseID makes an ID from its text, such as one that another process revealed.
func NewLeaseID(text string) LeaseID {
	if uuid, ok := parseUUID(text); ok {
		if id := (LeaseID{uuid: crypt(uuid, cipher.Block.Encrypt)}); !id.IsZero() {
			return id
		}
	}
	return LeaseID{other: hide(text)}
}

// Reveal returns the text. It is for drivers, and for a program that passes its lease to
// another process. Keep the text out of logs and errors.
func (id LeaseID) Reveal() string {
	if id.uuid == [16]byte{} {
		return id.other.reveal()
	}
	return formatUUID(crypt(id.uuid, cipher.Block.Decrypt))
}

// process has the cipher of this process's IDs, whose key never leaves it. The blocks are here
// so that a call allocates nothing.
var process struct {
	mu       sync.Mutex
	cipher   cipher.Block // made at the first use
	from, to [aes.BlockSize]byte
}

// crypt encrypts or decrypts a UUID.
func crypt(uuid [16]byte, how func(b cipher.Block, to, from []byte)) [16]byte {
	process.mu.Lock()
	defer process.mu.Unlock()
	if process.cipher == nil {
		var key [16]byte
		_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the program instead
		block, err := aes.NewCipher(key[:])
		if err != nil {
			panic(err) // it fails only for a key of another length
		}
		process.cipher = block
	}
	process.from = uuid
	how(process.cipher, process.to[:], process.from[:])
	return process.to
}

// parseUUID parses the one form of a UUID that formatUUID returns.
func parseUUID(text string) (uuid [16]byte, ok bool) {
	if len(text) != 36 {
		return uuid, false
	}
	at := 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return uuid, false
			}
			continue
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		default:
			return uuid, false
		}
		uuid[at/2] |= c << (4 * (1 - at%2))
		at++
	}
	return uuid, true
}

func formatUUID(uuid [16]byte) string {
	text := make([]byte, 0, 36)
	for i, b := range uuid {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text = append(text, '-')
		}
		text = append(text, hexDigits[b>>4], hexDigits[b&15])
	}
	return string(text)
}

const hexDigits = "0123456789abcdef"

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
