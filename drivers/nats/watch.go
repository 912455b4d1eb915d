package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver/cas"
)

const (
	// heartbeat is how often a server says that a watch goes on, and patience how long it may be silent.
	heartbeat = 5 * time.Second
	patience  = 15 * time.Second
	// buffered is how many changes of a key may wait to be reported. More are dropped, and the watch begins anew.
	buffered = 64
)

var (
	errSilent  = errors.New("the server does not say any more that the watch goes on")
	errDropped = errors.New("a report of the watch was lost")
)

type consumerConfig struct {
	Deliver   string        `json:"deliver_subject"`
	Policy    string        `json:"deliver_policy"`
	Ack       string        `json:"ack_policy"`
	Replay    string        `json:"replay_policy"`
	Filter    string        `json:"filter_subject"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
	Replicas  int           `json:"num_replicas"`
	Memory    bool          `json:"mem_storage"`
}

// watch is that of the [cas.Config]: a consumer of the stream, which the server removes when nobody listens any more. A subscription to the
// subject of the key itself would report writes before they are stored, and those that are refused.
func (s *store) watch(ctx context.Context, key string, changed func(cas.Value)) error {
	c, err := s.link.use(ctx)
	if err != nil {
		return err
	}
	messages, refused, inbox := make(chan *natsgo.Msg, buffered), make(chan error, 1), c.nc.NewInbox()
	defer c.listen(inbox, refused)()
	sub, err := c.nc.ChanSubscribe(inbox, messages)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	var created struct {
		Name string `json:"name"`
	}
	if err := s.api(ctx, c, "CONSUMER.CREATE", map[string]any{"stream_name": s.stream(), "config": consumerConfig{
		Deliver: inbox, Policy: "new", Ack: "none", Replay: "instant", Filter: s.subject(key), Heartbeat: heartbeat, Replicas: 1, Memory: true,
	}}, &created); err != nil {
		return s.explain(err)
	}
	select {
	case err := <-refused: // it came before the answer
		return err
	default:
	}
	changed(cas.Value{})
	silent := time.NewTimer(patience)
	defer silent.Stop()
	for last := uint64(0); ; silent.Reset(patience) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return errEnded
		case err := <-refused:
			return err
		case <-silent.C:
			return errSilent
		case m := <-messages:
			v, number, err := s.reported(m, last)
			if err != nil {
				return err
			}
			if number > last {
				last = number
				changed(v)
			}
		}
	}
}

// reported reads what a consumer sends: a change, with its number, or a sign that it goes on, with the number of the last change.
func (s *store) reported(m *natsgo.Msg, last uint64) (v cas.Value, number uint64, err error) {
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		switch {
		case status != "100":
			return v, 0, fmt.Errorf("the server has ended the watch: %s %s", status, m.Header.Get("Description"))
		case m.Header.Get("Nats-Last-Consumer") != fmt.Sprint(last):
			return v, 0, errDropped
		}
		return v, last, nil
	}
	about, err := m.Metadata()
	if err != nil {
		return v, 0, errAnswer
	}
	if about.Sequence.Consumer != last+1 {
		return v, 0, errDropped
	}
	if m.Header.Get("KV-Operation") == "" && m.Header.Get("Nats-Marker-Reason") == "" {
		v = cas.Value{Data: m.Data, Version: fmt.Sprint(about.Sequence.Stream)}
	}
	return v, last + 1, nil
}
