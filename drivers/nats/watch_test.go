package nats

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// What a consumer sends is read; what is missing between two of its messages, and its end, end the watch.
func TestReported(t *testing.T) {
	s := &store{settings: settings{bucket: "b"}}
	message := func(number, sequence int, header ...string) *natsgo.Msg {
		m := natsgo.NewMsg("inbox")
		m.Sub, m.Data = &natsgo.Subscription{}, []byte("value")
		m.Reply = fmt.Sprintf("$JS.ACK.KV_b.c.1.%d.%d.1.0", sequence, number)
		for i := 0; i < len(header); i += 2 {
			m.Header.Set(header[i], header[i+1])
		}
		return m
	}
	status := func(code, last string) *natsgo.Msg {
		m := natsgo.NewMsg("inbox")
		m.Header = natsgo.Header{"Status": {code}, "Description": {"why"}, "Nats-Last-Consumer": {last}}
		return m
	}
	other := message(3, 7)
	other.Reply = "x"
	for what, c := range map[string]struct {
		m       *natsgo.Msg
		version string
		number  uint64
		err     error
	}{
		"next":                {message(3, 7), "7", 3, nil},
		"a removal":           {message(3, 7, "KV-Operation", "DEL"), "", 3, nil},
		"the server's mark":   {message(3, 7, "Nats-Marker-Reason", "Remove"), "", 3, nil},
		"one is missing":      {message(4, 7), "", 0, errDropped},
		"the same again":      {message(2, 7), "", 0, errDropped},
		"it goes on":          {status("100", "2"), "", 2, nil},
		"the last is missing": {status("100", "3"), "", 0, errDropped},
		"no consumer's":       {other, "", 0, errAnswer},
	} {
		v, number, err := s.reported(c.m, 2)
		if v.Version != c.version || number != c.number || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %+v, %d, %v", what, v, number, err)
		}
	}
	if _, _, err := s.reported(status("409", "2"), 2); err == nil || !strings.Contains(err.Error(), "409 why") {
		t.Errorf("the end of the consumer: %v", err)
	}
}
