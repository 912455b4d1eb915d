package nats

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	greeting = `INFO {"server_id":"x","version":"2.15.0","proto":1,"headers":true,"max_payload":8388608}` + "\r\n"
	// created is when the bucket of a fake was made, and infoOf what its stream says.
	created = "2026-01-02T03:04:05Z"
	infoOf  = `{"config":{"name":"KV_b","subjects":["$KV.b.>"],"retention":"limits","discard":"new","storage":"file",` +
		`"max_msgs_per_subject":1},"created":%q,"domain":%q,"ts":%q}`
)

// fake is a server of which a test says what it answers.
type fake struct {
	addr  string
	info  string // what it says first; none if empty
	pongs int    // how many PINGs of a connection are answered; 0: all
	ends  bool   // a connection is closed after these
	// greets, if not nil, is called before a connection gets that.
	greets func(number int)

	mu     sync.Mutex
	answer func(c *fakeConn, m fakeMessage) // nil: that of a bucket without keys
	conns  int
	sent   []string // the subjects of the messages
}

// fakeConn is a connection to a fake.
type fakeConn struct {
	net.Conn
	f      *fake
	number int // from 1
	mu     sync.Mutex
	subs   map[string]string // their numbers, by subject
}

type fakeMessage struct{ subject, reply, text string }

// startFake starts one, which goes on until the test ends.
func startFake(t *testing.T, info string, answer func(c *fakeConn, m fakeMessage)) *fake {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{addr: listener.Addr().String(), info: info, answer: answer}
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns++
			c := &fakeConn{Conn: conn, f: f, number: f.conns, subs: map[string]string{}}
			f.mu.Unlock()
			work.Go(c.serve)
		}
	})
	return f
}

func (f *fake) url() string { return "nats://" + f.addr + "/b" }

func (f *fake) set(answer func(c *fakeConn, m fakeMessage)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// subjects are those of the messages so far.
func (f *fake) subjects() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.sent...)
}

// connections is how many there were.
func (f *fake) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns
}

func (c *fakeConn) write(text string) { _, _ = io.WriteString(c, text) }

// say sends a message to a subject.
func (c *fakeConn) say(subject, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for filter, number := range c.subs {
		if filter == subject || strings.HasPrefix(subject, strings.TrimSuffix(filter, "*")) && strings.HasSuffix(filter, "*") {
			c.write(fmt.Sprintf("MSG %s %s %d\r\n%s\r\n", subject, number, len(text), text))
			return
		}
	}
}

// refuse reports an error.
func (c *fakeConn) refuse(text string) { c.write("-ERR '" + text + "'\r\n") }

func violationOf(subject string) string {
	return fmt.Sprintf("Permissions Violation for Publish to %q", subject)
}

// empty answers as a bucket without keys does.
func (c *fakeConn) empty(m fakeMessage) {
	switch verb := strings.TrimPrefix(m.subject, "$JS.API."); verb {
	case "STREAM.INFO.KV_b":
		c.say(m.reply, fmt.Sprintf(infoOf, created, "", time.Now().Format(time.RFC3339Nano)))
	case "STREAM.MSG.GET.KV_b":
		c.say(m.reply, `{"error":{"err_code":10037,"description":"no message found"}}`)
	case "CONSUMER.CREATE.KV_b":
		c.say(m.reply, `{"name":"c"}`)
	default:
		c.say(m.reply, `{"stream":"KV_b","seq":7}`)
	}
}

func (c *fakeConn) serve() {
	defer func() { _ = c.Close() }()
	c.f.mu.Lock()
	greets := c.f.greets
	c.f.mu.Unlock()
	if greets != nil {
		greets(c.number)
	}
	c.write(c.f.info)
	pings := 0
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "PING":
			if pings++; c.f.pongs == 0 || pings <= c.f.pongs {
				c.write("PONG\r\n")
			}
			if c.f.ends && pings == c.f.pongs {
				return
			}
		case words[0] == "SUB":
			c.mu.Lock()
			c.subs[words[1]] = words[len(words)-1]
			c.mu.Unlock()
			c.f.took(c, fakeMessage{subject: "SUB " + words[1]})
		case words[0] == "PUB" || words[0] == "HPUB":
			var size int
			_, _ = fmt.Sscan(words[len(words)-1], &size)
			body := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			c.f.took(c, fakeMessage{words[1], words[2], string(body)})
		}
	}
}

// took has a message answered.
func (f *fake) took(c *fakeConn, m fakeMessage) {
	f.mu.Lock()
	answer := f.answer
	f.sent = append(f.sent, m.subject)
	f.mu.Unlock()
	switch {
	case answer != nil:
		answer(c, m)
	case m.reply != "":
		c.empty(m)
	}
}
