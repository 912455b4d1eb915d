package main

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/holdfast-go/holdfast/examples/internal/processes"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

// One copy reconciles and is ready; the other is not. After the leader was killed, the other
// reconciles.
func TestOtherCopyTakesOver(t *testing.T) {
	serverprocess.Long(t, "needs a replica set of its own")
	program, uri := processes.Build(t), mongotest.URI(t)
	if err := setDesired(t.Context(), uri, "web=2"); err != nil {
		t.Fatal(err)
	}
	start := func() *processes.Process {
		return processes.Start(t, program, "-uri", uri, "-ttl", "6s", "-every", "50ms")
	}
	leader, other := processes.First(start(), start(), "web now has 2 copies")
	other.Await("holder seen", 1)
	if is, was := ready(t, leader), ready(t, other); is != http.StatusOK || was != http.StatusServiceUnavailable {
		t.Errorf("readiness of the leader: %d, of the other: %d", is, was)
	}
	leader.Kill()
	if err := setDesired(t.Context(), uri, "web=1"); err != nil {
		t.Fatal(err)
	}
	other.Await("web now has 1 copies", 1)
	if is := ready(t, other); is != http.StatusOK {
		t.Errorf("readiness of the new leader: %d", is)
	}
}

var probe = regexp.MustCompile(`readiness probe on (\S+)`)

func ready(t *testing.T, p *processes.Process) (status int) {
	t.Helper()
	p.Await("readiness probe on", 1)
	response, err := http.Get(probe.FindStringSubmatch(p.Output())[1])
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestDesiredStateIsChecked(t *testing.T) {
	for _, text := range []string{"", "web", "=3", "web=many", "web=-1"} {
		if err := setDesired(t.Context(), "mongodb://127.0.0.1:1", text); err == nil {
			t.Errorf("-set %q was accepted", text)
		}
	}
}
