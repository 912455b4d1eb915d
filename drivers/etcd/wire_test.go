package etcd

import (
	"bytes"
	"errors"
	"testing"
)

// The bytes of messages are those that protobuf has for them.
func TestEncoding(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		message message
		want    string
	}{
		"nothing": {nothing{}, ""},
		"a range": {rangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 300, Revision: 1, CountOnly: true},
			"\n\x01k\x12\x01l\x18\xac\x02 \x01H\x01"},
		"a key":             {rangeRequest{Key: []byte("k")}, "\n\x01k"}, // with an empty end it would be all keys from it on
		"a put":             {putRequest{Key: []byte("k"), Value: []byte("v"), PrevKV: true}, "\n\x01k\x12\x01v \x01"},
		"no revision":       {compare{Key: []byte("k"), Target: targetMod}, "\x10\x02\x1a\x01k0\x00"}, // of a choice, so it must be there
		"a revision":        {compare{Key: []byte("k"), Target: targetMod, ModRevision: 5}, "\x10\x02\x1a\x01k0\x05"},
		"a negative number": {compare{Target: targetMod, ModRevision: -1}, "\x10\x020\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		"an empty value":    {compare{Target: targetValue}, "\x10\x03:\x00"},
		"a value":           {compare{Key: []byte("k"), Target: targetValue, Value: []byte("v")}, "\x10\x03\x1a\x01k:\x01v"},
		"a watch":           {watchRequest{rangeRequest{Key: []byte("k")}}, "\n\x03\n\x01k"},
		"credentials":       {credentials{"u", "p"}, "\n\x01u\x12\x01p"},
		"a transaction": {txnRequest{
			Compare: []compare{{Key: []byte("k"), Target: targetMod}},
			Success: []operation{{Put: &putRequest{Key: []byte("k")}}},
			Failure: []operation{{Range: &rangeRequest{Key: []byte("k")}}},
		}, "\n\x07\x10\x02\x1a\x01k0\x00\x12\x05\x12\x03\n\x01k\x1a\x05\n\x03\n\x01k"},
	} {
		if got := c.message.append(nil); string(got) != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// Each field of an answer is in its place, and those that nobody asks for are skipped, whatever their kind.
func TestDecoding(t *testing.T) {
	t.Parallel()
	unknown := append(append(appendSet(appendBytes(nil, 50, []byte("?")), 1<<28, -1), 0xa1, 6), "8 bytes."...)
	unknown = append(append(unknown, 0xa5, 6), "four"...)
	with := func(message []byte) []byte { return append(append(bytes.Clone(unknown), message...), unknown...) }
	var s status
	message := appendNumber(appendNumber(appendNumber(appendBytes(with(from(7)), 2, []byte("3.6.1")), 3, 100), 4, 8), 9, 50)
	if err := decode(appendNumber(appendFlag(message, 10, true), 12, 200), &s); err != nil || s.Header != (header{7, 8, 9}) ||
		s.Version != "3.6.1" || s.DBSize != 100 || s.Leader != 8 || s.DBSizeInUse != 50 || !s.IsLearner || s.DBSizeQuota != 200 {
		t.Errorf("%+v, %v", s, err)
	}
	var l memberList
	member := appendFlag(appendBytes(appendNumber(nil, 1, 8), 2, []byte("m0")), 5, true)
	if err := decode(appendBytes(appendBytes(from(7), 2, with(member)), 2, appendNumber(nil, 1, 9)), &l); err != nil || len(l.Members) != 2 ||
		l.Members[0] != (listed{8, "m0", true}) || l.Members[1] != (listed{ID: 9}) {
		t.Errorf("%+v, %v", l, err)
	}
	var a alarmList
	if err := decode(appendBytes(appendBytes(nil, 2, appendNumber(nil, 2, 2)), 2, appendNumber(nil, 2, 3)), &a); err != nil ||
		len(a.Alarms) != 2 || a.Alarms[0].String() != "CORRUPT" || a.Alarms[1].String() != "3" {
		t.Errorf("%+v, %v", a, err)
	}
	var w watchAnswer
	event := appendBytes(appendNumber(nil, 1, 1), 2, keyOf("v", 5))
	if err := decode(appendBytes(appendBytes(from(7), 11, with(event)), 6, []byte("why")), &w); err != nil || len(w.Events) != 1 ||
		!w.Events[0].Deleted || w.Events[0].KV.ModRevision != 5 || w.CancelReason != "why" || w.Created || w.Canceled {
		t.Errorf("%+v, %v", w, err)
	}
	for what, message := range map[string]string{
		"a number without its end": "\x08\x80", "a number of 11 bytes": "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "no number": "\x08",
		"a long field": "\n\x02k", "a field without a length": "\n", "a great length": "\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a group": "\x0b\x0c", "kind 6": "\x0e", "field 0": "\x00\x00", "half a fixed number": "\x0d123", "a broken header": "\n\x01\x08",
	} {
		if err := decode([]byte(message), &headed{}); !errors.Is(err, errNoEtcd) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// encoded is a message that is encoded again while it is decoded.
type encoded struct{ fields []byte }

func (e *encoded) take(f field) error {
	if f.bytes != nil {
		e.fields = appendSetBytes(e.fields, int(f.id), f.bytes)
	} else {
		e.fields = appendSet(e.fields, int(f.id), int64(f.number))
	}
	return nil
}

// Whatever comes is decoded or refused, and what was decoded has the same fields when it is encoded.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(done(7))
	f.Add(appendBytes(from(7), 2, keyOf("v", 5)))
	f.Add(txnRequest{Compare: []compare{{Key: []byte("k"), Target: targetMod}}}.append(nil))
	f.Add(appendBytes(from(7), 11, appendBytes(appendNumber(nil, 1, 1), 2, keyOf("v", 5))))
	f.Add([]byte("\xa1\x068 bytes.\xa5\x06four"))
	f.Fuzz(func(t *testing.T, message []byte) {
		for _, into := range []answer{&headed{}, &rangeAnswer{}, &txnAnswer{}, &watchAnswer{}, &tokenAnswer{}, &authStatus{}, &status{},
			&memberList{}, &alarmList{}} {
			if err := decode(message, into); err != nil && !errors.Is(err, errNoEtcd) {
				t.Errorf("%T: %v", into, err)
			}
		}
		var first, second encoded
		if decode(message, &first) != nil {
			return
		}
		if err := decode(first.fields, &second); err != nil || !bytes.Equal(first.fields, second.fields) {
			t.Errorf("%q is encoded as %q, and that as %q, %v", message, first.fields, second.fields, err)
		}
	})
}
