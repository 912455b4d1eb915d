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
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
)

// store is a [cas.Store].
type store struct {
	settings
	link     *link
	bucketIs atomic.Pointer[identity] // nil until the bucket was seen
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

// probeValue names the value at [cas.ProbeKey] as people find it.
func (s *store) probeValue() string {
	return "the key " + strings.TrimPrefix(s.subject(cas.ProbeKey), "$KV."+s.bucket+".") + " of the bucket " + s.bucket
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
func (s *store) api(ctx context.Context, c *conn, verb string, body, into any) error {
	r := outgoing{subject: "$JS.API." + verb + "." + s.stream()}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r.data = text
	}
	answer, err := s.link.request(ctx, c, r)
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
	Created time.Time    `json:"created"`
	Domain  string       `json:"domain"`
	Cluster *clusterInfo `json:"cluster"`
	State   struct {
		Messages uint64         `json:"messages"`
		Bytes    uint64         `json:"bytes"`
		Subjects map[string]int `json:"subjects"`
	} `json:"state"`
	Total int       `json:"total"` // how many subjects there are, if they were asked for
	Time  time.Time `json:"ts"`    // the clock of the server that leads the stream
}

// identity is what tells the bucket from all others.
type identity struct {
	created time.Time
	domain  string
}

// streamInfo asks the stream. An answer of another bucket than the one of this Locker is an error.
func (s *store) streamInfo(ctx context.Context, c *conn, body any) (info streamInfo, err error) {
	err = s.api(ctx, c, "STREAM.INFO", body, &info)
	switch {
	case err != nil:
		return info, err
	case info.Time.IsZero():
		return info, driver.Denied(errors.New("the server's answer has no time: NATS 2.10 or later is needed"))
	}
	found := &identity{info.Created, info.Domain}
	s.bucketIs.CompareAndSwap(nil, found)
	if first := s.bucketIs.Load(); !first.created.Equal(found.created) || first.domain != found.domain {
		return info, driver.Denied(fmt.Errorf("the bucket %s is another one now: it was made at %s%s, and that of this program at %s%s. Either "+
			"it was deleted and made anew: start the programs again. Or the connection has come to other servers: name those of one cluster alone",
			s.bucket, found.created.Format(time.RFC3339Nano), inDomain(found.domain), first.created.Format(time.RFC3339Nano),
			inDomain(first.domain)))
	}
	c.lead()
	return info, nil
}

func inDomain(domain string) string {
	if domain == "" {
		return ""
	}
	return " in the JetStream domain " + driver.Quote(domain)
}

// moment is the server's time at a moment during a call.
type moment struct {
	now     time.Time
	within  time.Duration // it is from so long after the call began at most
	unknown error         // why it is not known
}

// timed makes a request, and at the same time asks for the server's time. No answer about a message has the time. After the answer to the
// request it is waited for no longer than patience.
func (s *store) timed(ctx context.Context, c *conn, patience time.Duration, request func() error) (at moment, err error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	var info streamInfo
	var work sync.WaitGroup
	work.Go(func() {
		info, at.unknown = s.streamInfo(asking, c, nil)
		at.now, at.within = info.Time, time.Since(began)
	})
	if err = request(); err != nil {
		cancel()
	}
	defer time.AfterFunc(patience, cancel).Stop()
	work.Wait()
	if at.unknown == nil { // somebody may have changed the bucket since it was opened
		at.unknown = info.Config.refusal(s.bucket)
	}
	return at, err
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
func (s *store) last(ctx context.Context, c *conn, key string) (message, error) {
	var a struct {
		Message message `json:"message"`
	}
	err := s.api(ctx, c, "STREAM.MSG.GET", map[string]string{"last_by_subj": s.subject(key)}, &a)
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

const (
	// atOnce is how many values are asked for at a time.
	atOnce = 64
	// maxLead is how much later than a value its time may be. A lease of the shortest TTL that is renewed when the default says so still has
	// more left then, and does not seem to have ended.
	maxLead = 500 * time.Millisecond
)

// GetBatch implements [cas.BatchGetter]: all values share one request for the time, on one connection, so that they are of one bucket.
func (s *store) GetBatch(ctx context.Context, keys []string) ([]cas.Value, error) {
	c, err := s.link.use(ctx)
	if err != nil {
		return nil, err
	}
	messages, errs := make([]message, len(keys)), make([]error, len(keys))
	read := func() error {
		var work sync.WaitGroup
		for first := range min(atOnce, len(keys)) {
			work.Go(func() {
				for i := first; i < len(keys); i += atOnce {
					if messages[i], errs[i] = s.last(ctx, c, keys[i]); errs[i] != nil {
						return
					}
				}
			})
		}
		work.Wait()
		return cmp.Or(errs...)
	}
	at, err := s.timed(ctx, c, s.timeout, read)
	if err = cmp.Or(err, at.unknown); err == nil && at.within > maxLead {
		err = read() // now the time is from before
	}
	if hasCode(err, codeNoStream) && s.rounds < 0 && s.bucketIs.Load() == nil { // there are no locks so far
		return slices.Repeat([]cas.Value{{Now: time.Now()}}, len(keys)), nil
	}
	if err != nil {
		return nil, s.explain(err)
	}
	values := make([]cas.Value, len(keys))
	for i, m := range messages {
		values[i] = m.value()
		values[i].Now = at.now
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
	c, err := s.link.use(ctx)
	if err != nil {
		return cas.Written{}, err
	}
	var done uint64
	at, err := s.timed(ctx, c, timePatience, func() (err error) {
		done, err = s.publish(ctx, c, key, data, before)
		if version != "" || !hasCode(err, codeWrongSequence) {
			return err
		}
		// What was removed has left a mark, which counts as no value.
		m, readErr := s.last(ctx, c, key)
		if readErr != nil || m.Sequence == 0 || !m.removed() {
			return err
		}
		done, err = s.publish(ctx, c, key, data, m.Sequence)
		return err
	})
	switch {
	case hasCode(err, codeWrongSequence, codeWriteUnderWay):
		return cas.Written{}, cas.ErrConflict
	case err != nil:
		return cas.Written{}, err
	case driver.Lasting(at.unknown), !c.leads(): // it may be in another bucket, or be forgotten
		return cas.Written{}, fmt.Errorf("the write was done, but perhaps elsewhere, or not for long: %s", driver.ErrorText(at.unknown))
	}
	return cas.Written{Version: strconv.FormatUint(done, 10), Now: at.now}, nil
}

// timePatience is how long the time is waited for after a write. Without it a renewal is made once more, after a read.
const timePatience = 200 * time.Millisecond

// publish writes a message if the latest one of its subject has a sequence, or if there is none, with 0.
func (s *store) publish(ctx context.Context, c *conn, key string, data []byte, before uint64) (done uint64, err error) {
	answer, err := s.link.request(ctx, c, outgoing{subject: s.subject(key), data: data, writes: true, header: natsgo.Header{
		"Nats-Expected-Stream":                {s.stream()},
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(before, 10)},
	}})
	if err != nil {
		return 0, err
	}
	var ack struct {
		Stream   string    `json:"stream"`
		Domain   string    `json:"domain"`
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
	if own := s.bucketIs.Load(); own != nil && own.domain != ack.Domain {
		return 0, fmt.Errorf("a write was stored%s, and the bucket is%s: its subjects reach several domains of one account, which leaf nodes "+
			"must not pass them on to", cmp.Or(inDomain(ack.Domain), " in no JetStream domain"), cmp.Or(inDomain(own.domain), " in none"))
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
	c, err := s.link.use(ctx)
	if err != nil {
		return nil, err
	}
	for seen := 0; ; {
		info, err := s.streamInfo(ctx, c, map[string]any{"subjects_filter": "$KV." + s.bucket + ".>", "offset": seen})
		if hasCode(err, codeNoStream) && s.rounds < 0 && s.bucketIs.Load() == nil {
			return nil, nil
		}
		if err = cmp.Or(err, info.Config.refusal(s.bucket)); err != nil {
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
