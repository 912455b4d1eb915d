package awstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Isolate takes what this machine has of AWS out of the environment, until the test ends.
func Isolate(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, value) // so that it comes back
			_ = os.Unsetenv(name)
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// CheckConfiguration checks that a driver uses the SDK's configuration: the environment, a profile, and an endpoint for the service alone.
// The URL comes first. The scheme is the name of the service. open opens a Locker on the server, and closes it. After it, the environment
// has the credentials, the region, an endpoint of others that does not work, and that of the server.
func (s *Server) CheckConfiguration(t *testing.T, open func(rawURL string) error) {
	t.Helper()
	Isolate(t)
	write := func(variable, text string) {
		if err := os.WriteFile(os.Getenv(variable), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("AWS_CONFIG_FILE", "[profile ops]\nregion = "+Region+"\nservices = test\n[services test]\n"+s.service.Name+" =\n  endpoint_url = "+
		s.Endpoint()+"\n[profile broken]\nregion = "+Region+"\ncredential_process = echo "+Secret+"\n")
	write("AWS_SHARED_CREDENTIALS_FILE", "[ops]\naws_access_key_id = "+KeyID+"\naws_secret_access_key = "+Secret+"\n")
	works := func(what, rest string) {
		t.Helper()
		if err := open(s.service.Name + "://locks" + rest); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	fails := func(what, rest, want string) {
		t.Helper()
		if err := open(s.service.Name + "://locks" + rest); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), KeyID) || strings.Contains(err.Error(), Secret) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	works("a profile", "?profile=ops")
	fails("a profile that does not exist", "?profile=absent", "absent")
	fails("a process that prints no credential", "?profile=broken&endpoint="+s.Endpoint(), "run it by hand")
	fails("no credentials", "?region="+Region+"&endpoint="+s.Endpoint(), "getting credentials (of the environment")
	t.Setenv("AWS_ACCESS_KEY_ID", KeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", Secret)
	t.Setenv("AWS_REGION", Region)
	works("the environment", "/a?endpoint="+s.Endpoint())
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	works("the URL's endpoint", "/a?endpoint="+s.Endpoint())
	fails("another endpoint", "", "127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_"+strings.ToUpper(s.service.Name), s.Endpoint())
	works("an endpoint of the service", "")
}
