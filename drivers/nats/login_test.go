package nats

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/authority"
	"github.com/holdfast-go/holdfast/test/natstest"
)

// party is an operator, an account or a user.
type party struct {
	key          nkeys.KeyPair
	public, seed string
}

func newParty(t *testing.T, create func() (nkeys.KeyPair, error)) party {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return party{key, public, string(seed)}
}

// vouch makes the JWT of another one.
func (p party) vouch(t *testing.T, other party, claims string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	body := fmt.Sprintf(`{"jti":"x","iat":%d,"iss":%q,"name":"x","sub":%q,"nats":%s}`, time.Now().Unix(), p.public, other.public, claims)
	if !json.Valid([]byte(body)) {
		t.Fatal(body)
	}
	text := encode([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`)) + "." + encode([]byte(body))
	signature, err := p.key.Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encode(signature)
}

const (
	operatorClaims = `{"type":"operator","version":2}`
	accountClaims  = `{"limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1,
		"mem_storage":-1,"disk_storage":-1,"streams":-1,"consumer":-1},"type":"account","version":2}`
	systemClaims = `{"limits":{"subs":-1,"data":-1,"payload":-1,"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1},
		"type":"account","version":2}`
	userClaims = `{"subs":-1,"data":-1,"payload":-1,"type":"user","version":2}`
)

// write makes a file, and returns its path as a URL has it.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(path)
}

// credentials is a file with the JWT and the seed of a user.
func credentials(t *testing.T, jwt, seed string) string {
	t.Helper()
	return write(t, "app.creds", "-----BEGIN NATS USER JWT-----\n"+jwt+"\n------END NATS USER JWT------\n\n"+
		"-----BEGIN USER NKEY SEED-----\n"+seed+"\n------END USER NKEY SEED------\n")
}

// takes takes and releases a lock at a URL.
func takes(t *testing.T, rawURL string) {
	t.Helper()
	l := openAt(t, rawURL)
	lease, err := l.TryAcquire(t.Context(), request("n", "a"))
	if err == nil {
		err = l.Release(t.Context(), lease)
	}
	if err != nil {
		t.Errorf("%s: %v", rawURL, err)
	}
	wantFinding(t, examine(t, rawURL), subjectLogin, driver.LevelOK, "accepts")
}

// refused shows that a login is refused, and that the error shows nothing of it.
func refused(t *testing.T, rawURL string, secrets ...string) {
	t.Helper()
	_, err := Open(t.Context(), rawURL)
	wantDenied(t, rawURL, err, true, "refuse the login")
	for _, secret := range secrets {
		if strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("the error shows %q: %v", secret, err)
		}
	}
}

// A file of credentials: the server knows the operator, and the accounts by their JWT.
func TestCredentials(t *testing.T) {
	t.Parallel()
	operator, system := newParty(t, nkeys.CreateOperator), newParty(t, nkeys.CreateAccount)
	account, user, stranger := newParty(t, nkeys.CreateAccount), newParty(t, nkeys.CreateUser), newParty(t, nkeys.CreateAccount)
	s := natstest.Start(t, "operator: "+operator.vouch(t, operator, operatorClaims), "system_account: "+system.public, "resolver: MEMORY",
		fmt.Sprintf("resolver_preload: { %s: %s, %s: %s }", account.public, operator.vouch(t, account, accountClaims), system.public,
			operator.vouch(t, system, systemClaims)), "jetstream {}")
	takes(t, "nats://"+s.Addr()+"/locks?creds="+credentials(t, account.vouch(t, user, userClaims), user.seed))
	refused(t, "nats://"+s.Addr()+"/locks?creds="+credentials(t, stranger.vouch(t, user, userClaims), user.seed), user.seed)
	other := newParty(t, nkeys.CreateUser)
	refused(t, "nats://"+s.Addr()+"/locks?creds="+credentials(t, account.vouch(t, user, userClaims), other.seed), other.seed)
}

// A file with the seed of an NKey, and a token.
func TestNKeyAndToken(t *testing.T) {
	t.Parallel()
	user, other := newParty(t, nkeys.CreateUser), newParty(t, nkeys.CreateUser)
	s := natstest.Start(t, natstest.Users("{nkey: "+user.public+"}"), "jetstream {}")
	takes(t, "nats://"+s.Addr()+"/locks?nkey="+write(t, "seed", user.seed))
	refused(t, "nats://"+s.Addr()+"/locks?nkey="+write(t, "seed", other.seed), other.seed)
	s = natstest.Start(t, `authorization { token: "to/ken" }`, "jetstream {}")
	takes(t, "nats://to%2Fken@"+s.Addr()+"/locks")
	refused(t, "nats://wrong-token@"+s.Addr()+"/locks", "wrong-token")
}

// TLS with the client's certificate, and every parameter in one URL.
func TestTLS(t *testing.T) {
	t.Parallel()
	ca, strange := authority.New(t), authority.New(t)
	serverCert, serverKey := ca.Sign(t, "server")
	clientCert, clientKey := ca.Sign(t, "client")
	user := newParty(t, nkeys.CreateUser)
	s := natstest.Start(t, natstest.Users("{nkey: "+user.public+`, permissions: { subscribe: "_INBOX_app.>" }}`), "jetstream {}",
		fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", serverCert, serverKey, ca.File))
	base := "nats://" + s.Addr() + "/locks?nkey=" + write(t, "seed", user.seed) +
		"&history=3&inboxPrefix=_INBOX_app&replicas=1&requestTimeout=10s&tls=true"
	takes(t, base+"&caFile="+ca.File+"&certFile="+clientCert+"&keyFile="+clientKey)
	_, err := Open(t.Context(), base+"&caFile="+strange.File+"&certFile="+clientCert+"&keyFile="+clientKey)
	wantDenied(t, "another authority", err, true, "correct the certificate, or the URL parameter caFile")
	if _, err := Open(t.Context(), base+"&caFile="+ca.File); err == nil {
		t.Error("without the client's certificate")
	}
	plain := natstest.Start(t)
	_, err = Open(t.Context(), plain.URL()+"/locks?tls=true")
	wantDenied(t, "a server without TLS", err, true, "enable TLS in the servers")
}
