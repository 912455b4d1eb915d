package dynamodbtest

import (
	"testing"

	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// EnvMoto is the variable with a Python that has moto, another implementation of DynamoDB's protocol. tools/dynamodb.sh makes it.
const EnvMoto = "HOLDFAST_TEST_MOTO"

// serve runs moto with one thread: with several it lets two conditional writes win. It accepts every credential.
const serve = `
import logging, sys
from werkzeug.serving import run_simple
from moto.server import DomainDispatcherApplication, create_backend_app
logging.getLogger("werkzeug").setLevel(logging.ERROR)
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
`

// Moto is a server that keeps its tables in memory. It has none at first.
type Moto struct{ *serverprocess.Server }

// StartMoto starts one for this test alone. It skips short runs, and the test if [EnvMoto] is not set.
func StartMoto(tb testing.TB) *Moto {
	tb.Helper()
	serverprocess.Long(tb, "runs on a server in Python")
	python := serverprocess.Given(tb, EnvMoto, "tools/dynamodb.sh makes one")
	return &Moto{serverprocess.StartFor(tb, serverprocess.Config{
		Name: "moto", Program: python,
		Args: func(port, _ string) []string { return []string{"-c", serve, port} },
	})}
}

// Endpoint is the server's address.
func (m *Moto) Endpoint() string { return "http://" + m.Addr() }
