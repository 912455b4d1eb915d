package env_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/integration/env"
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
)

// rerun runs this package's tests again, with other variables.
func rerun(t *testing.T, tests string, variables ...string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", tests)
	cmd.Env = append(os.Environ(), mongotest.EnvURI+"=", postgrestest.EnvURL+"=", azuritetest.EnvURL+"=", env.ModeVariable+"=")
	cmd.Env = append(cmd.Env, variables...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// A run without a backend, or without a test that uses one, fails and says why.
func TestRunWithoutBackendFails(t *testing.T) {
	env.SharedMongo(t) // uses a backend, so that a run of this test alone passes
	for _, c := range []struct{ name, tests, variable, want string }{
		{"no engine", "TestShared", "DOCKER_HOST=unix:///does/not/exist.sock", env.ModeVariable + "=process"},
		{"unknown mode", "TestShared", env.ModeVariable + "=kubernetes", "containers, endpoints or process"},
		{"no endpoint", "TestShared", env.ModeVariable + "=endpoints", mongotest.EnvURI},
		{"no test", "^TestThatIsNotThere$", env.ModeVariable + "=process", "nothing has been tested"},
		{"unreachable endpoint", "TestShared", mongotest.EnvURI + "=mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=300", mongotest.EnvURI},
		{"only skipped tests", "TestMemberClock", mongotest.EnvURI + "=mongodb://127.0.0.1:1", "nothing has been tested"},
	} {
		out, code := rerun(t, c.tests, c.variable)
		if code != 1 || !strings.Contains(out, c.want) || strings.Contains(out, "--- PASS: TestShared") {
			t.Errorf("%s: exit code %d, want 1 and %q in the output:\n%s", c.name, code, c.want, out)
		}
	}
}

// A user's own endpoint is used. Tests that would disturb it, or need another backend, are
// skipped with a reason.
func TestEndpoints(t *testing.T) {
	uri := env.SharedMongo(t).URI()
	out, code := rerun(t, "^(TestShared|TestMemberClock)$", mongotest.EnvURI+"="+uri)
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, want := range []string{
		"mode endpoints", "--- PASS: TestShared/MongoDB", "--- SKIP: TestShared/Azurite", azuritetest.EnvURL + " is not set",
		"--- SKIP: TestShared/PostgreSQL", postgrestest.EnvURL + " is not set", "--- SKIP: TestMemberClock", "3 tests were skipped",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output:\n%s", want, out)
		}
	}
}
