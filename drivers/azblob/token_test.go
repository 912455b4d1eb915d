package azblob

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// slowCredential takes a time for each token. One that is interrupted seems to be missing, as Azure's commands do.
type slowCredential struct {
	takes   time.Duration
	result  error
	missing int // how many of the first calls find no credential
	calls   int
}

func (c *slowCredential) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.calls++
	select {
	case <-time.After(c.takes):
		if c.calls <= c.missing {
			return azcore.AccessToken{}, errUnavailable
		}
		return azcore.AccessToken{Token: "x", ExpiresOn: time.Now().Add(time.Hour)}, c.result
	case <-ctx.Done():
		return azcore.AccessToken{}, errMissing
	}
}

var errUnavailable = azidentity.NewCredentialUnavailableError("managed identity timed out")

var errMissing = &azidentity.AuthenticationFailedError{RawResponse: &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody}}

// withIdentity runs a test in virtual time with a Locker of a credential, which is the program's own or Open's.
func withIdentity(t *testing.T, c *slowCredential, own bool, test func(t *testing.T, l *Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &aService{faults: map[string]func(*http.Request) *http.Response{}, requests: map[string]int{}}
		var mu sync.Mutex
		options := azcore.ClientOptions{Transport: transport(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			return s.answer(r)
		})}
		where := location{account: "account1", container: "locks"}
		to, err := where.withToken(c, options)
		if own && err == nil {
			to.tokens = nil
			to.container, err = container.NewClient(where.containerURL(), c, &container.ClientOptions{ClientOptions: options})
		}
		if err != nil {
			t.Fatal(err)
		}
		config, err := newConfig(nil)
		if err != nil {
			t.Fatal(err)
		}
		l := newLocker(to.container, config)
		l.origin = &origin{where, "", to}
		test(t, l)
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A credential that takes longer than a request may does not seem to be missing. With Open the call waits for it, as long as its own
// context lasts.
func TestLoginSlowerThanARequest(t *testing.T) {
	for _, own := range []bool{true, false} {
		c := &slowCredential{takes: defaultRequestTimeout + time.Second}
		withIdentity(t, c, own, func(t *testing.T, l *Locker) {
			began := time.Now()
			_, err := l.TryAcquire(t.Context(), request("job"))
			if own == (err == nil) || errors.Is(err, driver.ErrDenied) || c.calls != 1 {
				t.Errorf("own: %v: %v after %v and %d logins", own, err, time.Since(began), c.calls)
			}
		})
	}
}

// Callers that wait for one login end with their own contexts, and its token is for all that still wait.
func TestOneLoginForAll(t *testing.T) {
	c := &slowCredential{takes: 3200 * time.Millisecond}
	withIdentity(t, c, false, func(t *testing.T, l *Locker) {
		var all sync.WaitGroup
		for i := range 8 {
			limit := time.Duration(i+1) * time.Second / 2
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				_, err := l.Inspect(ctx, "job")
				if took := time.Since(began); took > limit || (limit > c.takes) != (err == nil) || limit < c.takes && !errors.Is(err, errLoginGoesOn) {
					t.Errorf("of %v: %v after %v", limit, err, took)
				}
			})
		}
		all.Wait()
		if c.calls != 1 {
			t.Errorf("%d logins", c.calls)
		}
	})
}

// Newer versions of the SDK ask for tokens with EnableCAE, which Do does not know. A challenge of the service needs a token of its own.
func TestLoginServesNewerSDKs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowCredential{takes: time.Second}
		tokens := newTokens(c)
		defer tokens.close(t.Context())
		for i, options := range []policy.TokenRequestOptions{{EnableCAE: true}, {EnableCAE: true, Claims: "a challenge"}} {
			<-tokens.awaited().done
			options.Scopes = []string{scope}
			if _, err := tokens.GetToken(t.Context(), options); err != nil || c.calls != []int{1, 3}[i] {
				t.Errorf("%+v: %d logins, error %v", options, c.calls, err)
			}
			tokens.validUntil = time.Time{} // it has expired
		}
	})
}

// A login that has no end is cut off, by its own limit or by Close.
func TestEndlessLogin(t *testing.T) {
	withIdentity(t, &slowCredential{takes: 24 * time.Hour}, false, func(t *testing.T, l *Locker) {
		for began := time.Now(); time.Since(began) < 2*loginLimit; {
			_, err := l.TryAcquire(t.Context(), request("job"))
			if !errors.Is(err, errLoginFailed) || errors.Is(err, driver.ErrDenied) || !driver.NotSent(err) {
				t.Error(err)
			}
		}
	})
}

// That no credential works is also known when nobody waits for the login any more.
func TestLoginFailsLate(t *testing.T) {
	withIdentity(t, &slowCredential{takes: 2 * defaultRequestTimeout, result: errMissing}, false, func(t *testing.T, l *Locker) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.TryAcquire(ctx, request("job")); err == nil || errors.Is(err, driver.ErrDenied) {
			t.Error(err)
		}
		time.Sleep(loginKept / 2)
		if _, err := l.TryAcquire(t.Context(), request("job")); !errors.Is(err, driver.ErrDenied) || !errors.Is(err, errNoCredential) {
			t.Error(err)
		}
	})
}

// azidentity waits a second for the service of managed identities, which may be slow at first. So a login that finds no credential is
// repeated before that counts. It takes seconds.
func TestLoginIsRepeated(t *testing.T) {
	for _, test := range []struct {
		takes   time.Duration
		missing int
		calls   int
		works   bool
		within  time.Duration
	}{
		{takes: 0, missing: 1, calls: 2, works: true, within: 2 * time.Second},
		{takes: 1200 * time.Millisecond, missing: 2, calls: 3, works: true, within: 6 * time.Second},
		{takes: 100 * time.Millisecond, missing: 99, calls: 3, within: 3 * time.Second},
		{takes: 4 * time.Second, missing: 99, calls: 2, within: 10 * time.Second}, // Azure's commands may be slow
		{takes: 12 * time.Second, missing: 99, calls: 1, within: 12 * time.Second},
	} {
		c := &slowCredential{takes: test.takes, missing: test.missing}
		withIdentity(t, c, false, func(t *testing.T, l *Locker) {
			began := time.Now()
			_, err := l.TryAcquire(t.Context(), request("job"))
			took := time.Since(began)
			if test.works != (err == nil) || !test.works && !errors.Is(err, driver.ErrDenied) || c.calls != test.calls || took > test.within {
				t.Errorf("%+v: %v after %v and %d logins", test, err, took, c.calls)
			}
		})
	}
}

// A credential that has given a token and is not there now, because the network has gone or Azure's command fails, will most likely come
// back. What the login refuses will not.
func TestCredentialThatHasWorked(t *testing.T) {
	for _, own := range []bool{true, false} {
		c := &slowCredential{}
		withIdentity(t, c, own, func(t *testing.T, l *Locker) {
			calls := map[string]func() error{
				"inspect": func() error { return errOf(l.Inspect(t.Context(), "job")) },
				"acquire": func() error { return errOf(l.TryAcquire(t.Context(), request("job"))) },
				"renew": func() error {
					return errOf(l.Renew(t.Context(), driver.Lease{Name: "job", ID: driver.NewLeaseID(newID()), TTL: time.Minute, Token: 1}))
				},
			}
			for name, call := range calls {
				if err := call(); err != nil {
					t.Errorf("own: %v: %s: %v", own, name, err)
				}
			}
			for _, refused := range []bool{false, true} {
				time.Sleep(2 * time.Hour) // the token expires
				c.result = errUnavailable
				if refused {
					c.result = errMissing
				}
				for name, call := range calls {
					err := call()
					if refused != errors.Is(err, driver.ErrDenied) || !refused && !errors.Is(err, errLoginFailed) {
						t.Errorf("own: %v, refused: %v: %s: %v", own, refused, name, err)
					}
				}
			}
		})
	}
}

// The program's policies do not see the requests of a login, which have secrets.
func TestPoliciesDoNotSeeLogins(t *testing.T) {
	for _, clientID := range []string{"", "the-client"} {
		noIdentity(t)
		s := &aService{faults: map[string]func(*http.Request) *http.Response{}, requests: map[string]int{}}
		logins, seen := 0, countPolicy{}
		where := location{account: "account1", container: "locks", clientID: clientID}
		to, _, err := where.connect(azcore.ClientOptions{PerRetryPolicies: []policy.Policy{&seen},
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(r.URL.Host, "account1.") {
					return s.answer(r)
				}
				logins++
				return answering{http.StatusOK, `{"access_token":"x","expires_in":"3600","expires_on":"32503680000"}`}.Do(r)
			})})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.container.GetProperties(bounded(t), nil); err != nil || logins == 0 || seen.requests.Load() != 1 {
			t.Errorf("%q: %v; %d requests of the login, and the policy has seen %d", clientID, err, logins, seen.requests.Load())
		}
		to.tokens.close(t.Context())
	}
}
