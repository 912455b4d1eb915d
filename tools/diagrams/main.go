// Command diagrams draws the pictures of docs/: the protocols of the drivers as sequences of
// messages, and the time line of a lease. "make -f tools/tools.mk docs-diagrams" runs it.
//
// The pictures are narrow, so that they can be read on a phone, and have a background of their own,
// so that they can be read on light and on dark pages.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	for name, text := range pictures() {
		if err := os.WriteFile(filepath.Join("docs", name), []byte(text), 0o644); err != nil { //nolint:gosec // a page of the repository
			fmt.Fprintln(os.Stderr, "diagrams:", err)
			os.Exit(1)
		}
	}
}

// pictures returns the pictures by file name.
func pictures() map[string]string {
	return map[string]string{
		"protocol-mongodb.svg": mongodb.draw(),
		"protocol-azure.svg":   azure.draw(),
		"lease.svg":            lease(),
	}
}

// The places of a sequence: process A, the backend, process B.
const (
	a = iota
	backend
	b
)

var mongodb = sequence{
	title:  "The protocol with MongoDB",
	actors: [3]string{"process A", "MongoDB", "process B"},
	steps: []step{
		ask(a, "acquire: one command"),
		answer(a, "granted, token 7"),
		begin(a),
		ask(b, "acquire"),
		answer(b, "held by A, 28 s left"),
		wait(b, "waits"),
		ask(a, "renew, every TTL/3"),
		answer(a, "until now + TTL"),
		end(a, "the work has returned"),
		ask(a, "release"),
		hint(b, "wakes the next waiter"),
		ask(b, "acquire"),
		answer(b, "granted, token 8"),
		begin(b),
		ask(a, "acquire"),
		answer(a, "held by B, 29 s left"),
		wait(a, "waits"),
		crash(b, "crashes"),
		gap("the lease expires by MongoDB's clock"),
		ask(a, "acquire, at the expiry"),
		answer(a, "granted, token 9"),
		begin(a),
	},
}

var azure = sequence{
	title:  "The protocol with Azure Blob Storage",
	actors: [3]string{"process A", "blob", "process B"},
	steps: []step{
		ask(a, "acquire lease, own ID"),
		answer(a, "leased"),
		ask(a, "read metadata"),
		answer(a, "token 6"),
		ask(a, "write, under the lease:", "token 7, if unchanged"),
		answer(a, "written"),
		begin(a),
		ask(b, "acquire lease, own ID"),
		answer(b, "409: leased"),
		wait(b, "waits"),
		ask(a, "renew, every TTL/3"),
		answer(a, "for one more TTL"),
		end(a, "the work has returned"),
		ask(a, "release"),
		answer(a, "free"),
		ask(b, "acquire lease, when", "the poll interval is over"),
		answer(b, "leased"),
		ask(b, "read; write: token 8"),
		answer(b, "written"),
		begin(b),
		crash(b, "crashes"),
		gap("the service ends the lease by its clock"),
		ask(a, "acquire lease, at the", "next poll; read, write"),
		answer(a, "token 9"),
		begin(a),
	},
}
