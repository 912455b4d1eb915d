package etcd

import "encoding/binary"

// The messages of etcd are in protobuf's format: each field is a number, its kind, and what it has. This is as much of the format as
// they need.

// The kinds of fields.
const (
	kindNumber  = 0
	kindFixed64 = 1
	kindBytes   = 2 // also of texts and of messages
	kindFixed32 = 5
)

// message is one that is sent.
type message interface {
	// append adds the fields of the message.
	append(to []byte) []byte
}

// appendNumber adds a field with a number. Zero is left out, as it is what a missing field has.
func appendNumber(to []byte, id int, number int64) []byte {
	if number == 0 {
		return to
	}
	return appendSet(to, id, number)
}

// appendSet adds a field with a number, also with zero. A choice of several fields is made by the one that is there.
func appendSet(to []byte, id int, number int64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(to, uint64(id)<<3|kindNumber), uint64(number))
}

// appendFlag adds a field that is true or, left out, false.
func appendFlag(to []byte, id int, is bool) []byte {
	if is {
		return appendSet(to, id, 1)
	}
	return to
}

// appendBytes adds a field with bytes. None are left out: to etcd, an end of a range that is there and empty is the end of all keys.
func appendBytes(to []byte, id int, bytes []byte) []byte {
	if len(bytes) == 0 {
		return to
	}
	return appendSetBytes(to, id, bytes)
}

// appendSetBytes adds a field with bytes, also with none.
func appendSetBytes(to []byte, id int, bytes []byte) []byte {
	to = binary.AppendUvarint(to, uint64(id)<<3|kindBytes)
	return append(binary.AppendUvarint(to, uint64(len(bytes))), bytes...)
}

// appendMessage adds a field with a message.
func appendMessage(to []byte, id int, m message) []byte {
	return appendSetBytes(to, id, m.append(nil))
}

// field is one of a message that has come: a number or bytes. The bytes are a part of the message.
type field struct {
	id     uint64
	number uint64
	bytes  []byte
}

// answer is a message that comes.
type answer interface {
	// take takes in a field. It ignores those that it does not know.
	take(f field) error
}

// decode takes in the fields of a message.
func decode(message []byte, into answer) error {
	for len(message) > 0 {
		f, rest, err := nextField(message)
		if err == nil {
			err = into.take(f)
		}
		if err != nil {
			return err
		}
		message = rest
	}
	return nil
}

// nextField reads the first field of a message. One of a fixed size has neither a number nor bytes: no message here uses it.
func nextField(message []byte) (f field, rest []byte, err error) {
	key, rest, err := number(message)
	if f.id = key >> 3; err != nil || f.id == 0 {
		return field{}, nil, errNoEtcd
	}
	var size uint64
	switch key & 7 {
	case kindNumber:
		f.number, rest, err = number(rest)
		return f, rest, err
	case kindFixed64:
		size = 8
	case kindFixed32:
		size = 4
	case kindBytes:
		if size, rest, err = number(rest); err != nil {
			return field{}, nil, err
		}
	default: // groups, which nobody sends any more
		return field{}, nil, errNoEtcd
	}
	if size > uint64(len(rest)) {
		return field{}, nil, errNoEtcd
	}
	if key&7 == kindBytes {
		f.bytes = rest[:size]
	}
	return f, rest[size:], nil
}

// number reads a number, which has seven bits in each byte.
func number(from []byte) (n uint64, rest []byte, err error) {
	n, size := binary.Uvarint(from)
	if size <= 0 {
		return 0, nil, errNoEtcd
	}
	return n, from[size:], nil
}
