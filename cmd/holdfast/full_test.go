//go:build full

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

// The command works on Leases, and its doctor names a missing right and shows no credential.
func TestKubernetes(t *testing.T) {
	server := kubernetestest.Start(t)
	at := server.URL(t)
	if out, code := output("run", "-b", at, "job", "--", "true"); code != 0 || server.Lease("job") == nil {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := output("ls", "-b", at); code != 0 || !strings.Contains(out, "job") {
		t.Errorf("code %d: %s", code, out)
	}
	for verb, want := range map[string]int{"": 0, "watch": codeWrong} {
		allow := server.Deny(verb)
		out, code := output("doctor", "-b", at)
		if code != want || !strings.Contains(out, "API server") || !strings.Contains(out, "may not watch Leases") != (want == 0) ||
			strings.Contains(out, kubernetestest.Token) {
			t.Errorf("without the verb %q: code %d: %s", verb, code, out)
		}
		allow()
	}
}
