package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// store is a [cas.Store].
type store struct {
	settings
	link *link
}

func (s *store) stream() string { return "KV_" + s.bucket }

// subject is that of a key. Buckets have keys without % and ~, and no part of a subject is empty.
func (s *store) subject(key string) string {
	b := make([]byte, 0, len(key)+8)
	for i := range len(key) {
		switch c := key[i]; {
		case c == '%':
			b = append(b, '=')
		case c == '~':
			b = append(b, '/')
		case c == '.' && (i+1 == len(key) || key[i+1] == '.'):
			b = append(b, "=2e"...)
		default:
			b = append(b, c)
		}
	}
	return "$KV." + s.bucket + "." + string(b)
}

// keyOf is the key of a subject. It reports false for one that no key has.
func (s *store) keyOf(subject string) (key string, ok bool) {
	text, ok := strings.CutPrefix(subject, "$KV."+s.bucket+".")
	if !ok || text == "" {
		return "", false
	}
	key = strings.NewReplacer("=", "%", "/", "~").Replace(text)
	key = key[:1] + strings.ReplaceAll(key[1:], "%2e", ".") // a dot is escaped as the first byte alone
	return key, s.subject(key) == subject
}

// api makes a request to JetStream. Its answer is JSON.
func (s *store) api(ctx context.Context, verb string, body, into any) error {
	m := natsgo.NewMsg("$JS.API." + verb + "." + s.stream())
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		m.Data = text
	}
	answer, err := s.link.request(ctx, m)
	if err != nil {
		return err
	}
	var refusal struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(answer.Data, &refusal) != nil || json.Unmarshal(answer.Data, into) != nil {
		return errAnswer
	}
	if refusal.Error != nil {
		return refusal.Error.classify()
	}
	return nil
}

var errAnswer = errors.New("the answer is not that of JetStream")

// streamInfo is what a stream says of itself.
type streamInfo struct {
	Config  streamConfig `json:"config"`
	Cluster *clusterInfo `json:"cluster"`
	State   struct {
		Messages uint64         `json:"messages"`
		Bytes    uint64         `json:"bytes"`
		Subjects map[string]int `json:"subjects"`
	} `json:"state"`
	Total int       `json:"total"` // how many subjects there are, if they were asked for
	Time  time.Time `json:"ts"`    // the clock of the server that leads the stream
}

func (s *store) streamInfo(ctx context.Context, body any) (info streamInfo, err error) {
	err = s.api(ctx, "STREAM.INFO", body, &info)
	if err == nil && info.Time.IsZero() {
		err = driver.Denied(errors.New("the server's answer has no time: NATS 2.10 or later is needed"))
	}
	return info, err
}

// timed makes a request, and at the same time asks for the server's time, which is a moment during the call then. No answer about a
// message has the time. untimed is why it is not known.
func (s *store) timed(ctx context.Context, request func() error) (now time.Time, untimed, err error) {
	var info streamInfo
	var work sync.WaitGroup
	work.Go(func() { info, untimed = s.streamInfo(ctx, nil) })
	err = request()
	work.Wait()
	return info.Time, untimed, err
}

// message is a stored message.
type message struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
}

// removed reports whether it marks a key that somebody has removed.
func (m message) removed() bool {
	for _, name := range []string{"KV-Operation:", "Nats-Marker-Reason:"} {
		if strings.Contains(string(m.Header), "\r\n"+name) {
			return true
		}
	}
	return false
}

func (m message) value() cas.Value {
	if m.Sequence == 0 || m.removed() {
		return cas.Value{}
	}
	return cas.Value{Data: m.Data, Version: strconv.FormatUint(m.Sequence, 10)}
}

// last reads the latest message of a key from the leader of the stream. One without a sequence says that there is none. (A direct read
// may come from a server that lags behind.)
func (s *store) last(ctx context.Context, key string) (message, error) {
	var a struct {
		Message message `json:"message"`
	}
	err := s.api(ctx, "STREAM.MSG.GET", map[string]string{"last_by_subj": s.subject(key)}, &a)
	switch {
	case hasCode(err, codeNoMessage):
		return message{}, nil
	case err == nil && (a.Message.Subject != s.subject(key) || a.Message.Sequence == 0):
		return message{}, errAnswer
	}
	return a.Message, err
}

// Get implements [cas.Store].
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	values, err := s.GetBatch(ctx, []string{key})
	if err != nil {
		return cas.Value{}, err
	}
	return values[0], nil
}

// atOnce is how many values are asked for at a time.
const atOnce = 64

// GetBatch implements [cas.BatchGetter]: all values share one request for the time.
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	messages, errs := make([]message, len(keys)), make([]error, len(keys))
	now, untimed, err := s.timed(ctx, func() error {
		var work sync.WaitGroup
		for first := range min(atOnce, len(keys)) {
			work.Go(func() {
				for i := first; i < len(keys); i += atOnce {
					if messages[i], errs[i] = s.last(ctx, keys[i]); errs[i] != nil {
						return
					}
				}
			})
		}
		work.Wait()
		return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
	})
	err = cmp.Or(err, untimed)
	if hasCode(err, codeNoStream) && s.rounds < 0 { // there are no locks so far
		return slices.Repeat([]cas.Value{{Now: time.Now()}}, len(keys)), nil
	}
	if err != nil {
		return nil, s.explain(err)
	}
	values := make([]cas.Value, len(keys))
	for i, m := range messages {
		values[i] = m.value()
		values[i].Now = now
	}
	return values, nil
}

// explain says what is wrong if the bucket was deleted.
func (s *store) explain(err error) error {
	if hasCode(err, codeNoStream) {
		return driver.Denied(fmt.Errorf("the bucket %s does not exist any more: start a program again, which makes it", s.bucket))
	}
	return err
}

// Put implements [cas.Store].
//
// Promise 1: the server that leads the stream compares and writes in one step.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	var before uint64
	if version != "" {
		var err error
		if before, err = strconv.ParseUint(version, 10, 64); err != nil || before == 0 {
			return cas.Written{}, cas.ErrConflict // no value has such a version
		}
	}
	var done uint64
	now, _, err := s.timed(ctx, func() (err error) { // if there is no time, the next renewal reads it
		done, err = s.publish(ctx, key, data, before)
		if version != "" || !hasCode(err, codeWrongSequence) {
			return err
		}
		// What was removed has left a mark, which counts as no value.
		m, readErr := s.last(ctx, key)
		if readErr != nil || m.Sequence == 0 || !m.removed() {
			return err
		}
		done, err = s.publish(ctx, key, data, m.Sequence)
		return err
	})
	switch {
	case hasCode(err, codeWrongSequence, codeWriteUnderWay):
		return cas.Written{}, cas.ErrConflict
	case err != nil:
		return cas.Written{}, err
	}
	return cas.Written{Version: strconv.FormatUint(done, 10), Now: now}, nil
}

// publish writes a message if the latest one of its subject has a sequence, or if there is none, with 0.
func (s *store) publish(ctx context.Context, key string, data []byte, before uint64) (done uint64, err error) {
	m := natsgo.NewMsg(s.subject(key))
	m.Data = data
	m.Header.Set("Nats-Expected-Stream", s.stream())
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(before, 10))
	answer, err := s.link.request(ctx, m)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Stream   string    `json:"stream"`
		Sequence uint64    `json:"seq"`
		Error    *apiError `json:"error"`
	}
	switch {
	case json.Unmarshal(answer.Data, &ack) != nil:
		return 0, errAnswer
	case ack.Error != nil:
		return 0, ack.Error.classify()
	case ack.Stream != s.stream() || ack.Sequence <= before:
		return 0, errAnswer
	}
	return ack.Sequence, nil
}

// pageSize is how many keys a page has.
const pageSize = 1000

// List implements [cas.Store]. The names of all keys come with one request or a few. A page is what is left of them.
func (s *store) List(ctx context.Context, prefix, page string) (items []cas.Item, next string, err error) {
	if page == "" {
		keys, err := s.keys(ctx, prefix)
		if err != nil || len(keys) == 0 {
			return nil, "", err
		}
		page = strings.Join(keys, " ")
	}
	for range pageSize {
		var key string
		if key, page, _ = strings.Cut(page, " "); key != "" {
			items = append(items, cas.Item{Key: key})
		}
	}
	return items, page, nil
}

// keys returns all keys with a prefix. The server sorts them, and a key that is added meanwhile moves others to later pages alone.
func (s *store) keys(ctx context.Context, prefix string) (keys []string, err error) {
	for seen := 0; ; {
		info, err := s.streamInfo(ctx, map[string]any{"subjects_filter": "$KV." + s.bucket + ".>", "offset": seen})
		if hasCode(err, codeNoStream) && s.rounds < 0 {
			return nil, nil
		}
		if err != nil {
			return nil, s.explain(err)
		}
		for subject := range info.State.Subjects {
			if key, ok := s.keyOf(subject); ok && strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		if seen += len(info.State.Subjects); len(info.State.Subjects) == 0 || seen >= info.Total {
			return keys, nil
		}
	}
}

var _ interface {
	cas.Store
	cas.BatchGetter
} = (*store)(nil)
