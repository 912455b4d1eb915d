package azblob

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/retry"
)

const (
	// loginLimit is the time limit of one login. Azure's commands, which ask a server, take seconds on a busy machine.
	loginLimit = 30 * time.Second
	// loginRepeats is how often a login is repeated that has found no credential, after loginPause: azidentity waits one second for the
	// service of managed identities, which may be slower at first. One that took longer than loginQuick is not repeated.
	loginRepeats = 2
	loginPause   = time.Second
	loginQuick   = 5 * time.Second
	// loginKept is how long the result of a login is kept for the next caller if nobody waits for it any more.
	loginKept = time.Minute
	// loginEnds is how long Close waits for a login to end. A command whose child keeps its output open lasts longer.
	loginEnds = time.Second
)

// tokens are those of a credential. The SDK asks for a token with the context of one request, whose limit a login may exceed each time,
// and credentials do not always end with their context. So a login goes on without its callers, and the next one gets its token. The
// SDK caches the tokens that it has got.
type tokens struct {
	credential azcore.TokenCredential
	closing    context.Context // ends with close
	end        context.CancelFunc

	mu         sync.Mutex
	latest     *login    // nil if there is none whose result is still to be used
	validUntil time.Time // when the latest token expires
}

// login is one call of a credential. Its results are set when done is closed.
type login struct {
	options policy.TokenRequestOptions
	done    chan struct{}
	token   azcore.AccessToken
	err     error
	ended   time.Time
}

func newTokens(credential azcore.TokenCredential) *tokens {
	t := &tokens{credential: credential}
	t.closing, t.end = context.WithCancel(context.Background())
	return t
}

// scope is that of the SDK's requests for tokens.
const scope = "https://storage.azure.com/.default"

// Do implements policy.Policy, before the SDK asks for a token: there callers wait for each other, whatever their contexts are. It waits
// only if there is no token that is still valid.
func (t *tokens) Do(req *policy.Request) (*http.Response, error) {
	ctx := req.Raw().Context()
	if l := t.awaited(); l != nil {
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, &unsentError{fmt.Errorf("%w: %w", errLoginGoesOn, ctx.Err())}
		}
		if l.err != nil {
			t.taken(l)
			return nil, &unsentError{l.err}
		}
	}
	return req.Next()
}

// unsentError is the error of a call of the SDK that has sent the service nothing.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// GetToken implements [azcore.TokenCredential]. It ends with ctx.
func (t *tokens) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	for {
		l := t.join(options)
		select {
		case <-l.done:
		case <-ctx.Done():
			return azcore.AccessToken{}, fmt.Errorf("%w: %w", errLoginGoesOn, ctx.Err())
		}
		if l.matches(options) {
			t.taken(l)
			return l.token, l.err
		}
	}
}

// awaited returns the login to wait for, or nil if there is a token.
func (t *tokens) awaited() *login {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.validUntil) {
		return nil
	}
	return t.joinLocked(policy.TokenRequestOptions{Scopes: []string{scope}})
}

func (t *tokens) join(options policy.TokenRequestOptions) *login {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.joinLocked(options)
}

// joinLocked returns the login under way, or starts one. Only one runs at a time: the SDK's credentials wait for each other without a
// context.
func (t *tokens) joinLocked(options policy.TokenRequestOptions) *login {
	if l := t.latest; l != nil && (!l.hasEnded() || l.matches(options) && time.Since(l.ended) < loginKept) {
		return l
	}
	l := &login{options: options, done: make(chan struct{})}
	t.latest = l
	limited, cancel := context.WithTimeout(t.closing, loginLimit)
	go func() {
		defer cancel()
		defer close(l.done)
		began := time.Now()
		l.token, l.err = t.credential.GetToken(limited, options)
		for range loginRepeats {
			if !isMissing(withoutLogin(l.err)) || time.Since(began) > loginQuick || !retry.Wait(limited, loginPause) {
				break
			}
			l.token, l.err = t.credential.GetToken(limited, options)
		}
		if l.err != nil && limited.Err() != nil { // a credential that is slow seems to be missing
			l.err = fmt.Errorf("%w: no token within %s: %w", errLoginFailed, driver.FormatDuration(loginLimit), limited.Err())
		}
		l.ended = time.Now()
	}()
	return l
}

// taken notes that a caller has got the result of a login.
func (t *tokens) taken(l *login) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.latest == l {
		t.latest = nil
	}
	if l.err == nil {
		t.validUntil = l.token.ExpiresOn
	}
}

// matches reports whether a request for a token can have that of this login. Newer versions of the SDK allow tokens that the service may
// end early (EnableCAE) with each request; those that it may not serve as well.
func (l *login) matches(options policy.TokenRequestOptions) bool {
	options.EnableCAE = l.options.EnableCAE
	return reflect.DeepEqual(l.options, options)
}

func (l *login) hasEnded() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// close ends the login under way, and waits for its end as far as that comes soon.
func (t *tokens) close(ctx context.Context) {
	t.end()
	t.mu.Lock()
	l := t.latest
	t.mu.Unlock()
	if l == nil {
		return
	}
	limit := time.NewTimer(loginEnds)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-ctx.Done():
	case <-limit.C:
	}
}
