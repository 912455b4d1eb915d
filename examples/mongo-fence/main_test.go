package main

import (
	"bytes"
	"testing"

	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

func TestLateWriteIsRefused(t *testing.T) {
	serverprocess.Long(t, "needs a replica set of its own")
	var out bytes.Buffer
	if err := run(t.Context(), &out, mongotest.URI(t), mongotest.Collection(t).Database().Name()); err != nil {
		t.Fatal(err)
	}
	const want = `holder 1 has credited 10
holder 2 has credited 10
the first holder's late write: refused: there is no such account, or a later holder has written to it
balance: 20
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}
