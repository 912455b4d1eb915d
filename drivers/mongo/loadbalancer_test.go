package mongo

import (
	bits "encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// loadBalancer forwards connections to a server, and adds to its replies to hello what a router behind a load
// balancer says. The Go driver then pins the connection of each cursor until the cursor is closed.
func loadBalancer(t *testing.T, server string) (address string) {
	t.Helper()
	service := bson.NewObjectID()
	return forward(t, server, func(hello doc) doc { return append(hello, field("serviceId", service)) })
}

// forward forwards connections to a server, and changes its replies to hello.
func forward(t *testing.T, server string, change func(hello doc) doc) (address string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var forwarding sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		forwarding.Wait()
	})
	forwarding.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			backend, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			closeBoth := func() {
				_ = client.Close()
				_ = backend.Close()
			}
			forwarding.Go(func() {
				defer closeBoth()
				_, _ = io.Copy(backend, client)
			})
			forwarding.Go(func() {
				defer closeBoth()
				for forwardReply(client, backend, change) == nil {
				}
			})
		}
	})
	return listener.Addr().String()
}

// forwardReply forwards one message of the server.
func forwardReply(client io.Writer, backend io.Reader, change func(hello doc) doc) error {
	const head, beforeDocument, opMsg = 16, 5, 2013
	message := make([]byte, head)
	if _, err := io.ReadFull(backend, message); err != nil {
		return err
	}
	code := bits.LittleEndian.Uint32(message[12:])
	body := make([]byte, bits.LittleEndian.Uint32(message)-head)
	if _, err := io.ReadFull(backend, body); err != nil {
		return err
	}
	if code == opMsg {
		var reply doc
		if raw := bson.Raw(body[beforeDocument:]); hasField(raw, "maxWireVersion") && bson.Unmarshal(raw, &reply) == nil {
			body = append(body[:beforeDocument], mustMarshal(change(reply))...)
			bits.LittleEndian.PutUint32(message, uint32(head+len(body)))
		}
	}
	_, err := client.Write(slices.Concat(message, body))
	return err
}
