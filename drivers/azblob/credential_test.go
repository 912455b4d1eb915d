package azblob

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// A key or a SAS that no request can be sent with is refused at once. The error names the variable, and does not show
// the value.
func TestMalformedCredentials(t *testing.T) {
	const key, sas = "c2VjcmV0LWtleQ==", "sv=2026-01-01&sig=s3cr3t%3D"
	const connection = "AccountName=account1;"
	for name, c := range map[string]struct{ variable, value string }{
		"a newline":                    {envSAS, sas + "\n"},
		"a carriage return":            {envSAS, sas + "\r\n"},
		"a newline in the middle":      {envSAS, "sv=2026-01-01&\nsig=s3cr3t%3D"},
		"a tab":                        {envSAS, "\t" + sas},
		"a space":                      {envSAS, sas + " "},
		"another space":                {envSAS, sas + "\u00a0"},
		"an escape":                    {envSAS, sas + "\x1b"},
		"double quotes":                {envSAS, `"` + sas + `"`},
		"single quotes":                {envSAS, `'` + sas + `'`},
		"a fragment":                   {envSAS, sas + "#"},
		"an address":                   {envSAS, "https://account1.blob.core.windows.net/?" + sas},
		"an escape that is none":       {envSAS, sas + "%zz"},
		"no signature":                 {envSAS, "sv=2026-01-01&se=2026-01-02"},
		"a key":                        {envSAS, key},
		"a space after a key":          {envKey, key + " "},
		"quotes around a key":          {envKey, `"` + key + `"`},
		"a SAS as a key":               {envKey, sas},
		"a space in a SAS":             {envConnectionString, connection + "SharedAccessSignature=sv=2026-01-01& sig=s3cr3t%3D"},
		"quotes around a string's SAS": {envConnectionString, connection + `SharedAccessSignature="` + sas + `"`},
		"a space in a string's key":    {envConnectionString, connection + "AccountKey=" + key[:4] + " " + key[4:]},
	} {
		noCredentials(t)
		t.Setenv(c.variable, c.value)
		l, err := Open(t.Context(), "azblob://account1/leases")
		if err == nil {
			_ = l.Close(t.Context())
		}
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Field, c.variable) || strings.Contains(err.Error(), "s3cr3t") ||
			strings.Contains(err.Error(), key[:4]) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, good := range []string{sas, "?" + sas, "sv=2026-01-01&st=2026-01-01T00:00:00Z&spr=https,http&sip=10.0.0.1-10.0.0.9&sig=a+b/c="} {
		noCredentials(t)
		t.Setenv(envSAS, good)
		l, err := Open(t.Context(), "azblob://account1/leases")
		if err != nil {
			t.Errorf("%q: %v", good, err)
			continue
		}
		_ = l.Close(t.Context())
	}
}

// What a person must do is in the error. A refusal that lasts until then is denied.
func TestAdvice(t *testing.T) {
	t.Parallel()
	l, w := newTestContainer(t).lockerWithFaults()
	lease := acquire(t, l, request("held"))
	late := []string{"Date", time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat)}
	for _, c := range []struct {
		status int
		code   string
		header []string
		want   []string
	}{
		{409, "BlobArchived", nil, []string{"archive tier", "set-tier", "lifecycle"}},
		{409, "BlobImmutableDueToPolicy", nil, []string{"legal hold", "immutability policy", "container of their own"}},
		{403, "KeyBasedAuthenticationNotPermitted", nil, []string{"permits no shared key", envKey, "identity"}},
		{403, "AuthenticationFailed", nil, []string{"has started", "not expired", "this machine's clock"}},
		{403, "AuthenticationFailed", late, []string{"this machine's clock is ", " behind the service's"}},
	} {
		for request, call := range map[string]func() error{
			reqDownload: func() error { return errOf(l.Inspect(bounded(t), "held")) },
			reqUpload:   func() error { return l.WriteData(bounded(t), lease, []byte("x"), grantRevision(lease)) },
			reqRenew:    func() error { return errOf(l.Renew(bounded(t), lease)) },
			reqMetadata: func() error { return errOf(l.TryAcquire(bounded(t), shortRequest(c.code))) },
		} {
			w.all(request, respond(c.status, c.code, c.header...))
			err := call()
			w.all(request, nil)
			if !errors.Is(err, driver.ErrDenied) {
				t.Errorf("%s, %s: %v, want ErrDenied", c.code, request, err)
				continue
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: %q is not in %v", c.code, request, want, err)
				}
			}
			if c.header == nil && strings.Contains(err.Error(), "behind") {
				t.Errorf("%s: the clock is blamed: %v", c.code, err)
			}
		}
	}
}

// A refused SAS names its end or its beginning, as far as they are in it.
func TestRefusedSASNamesItsTimes(t *testing.T) {
	noCredentials(t)
	store := newTestContainer(t)
	now := time.Now().UTC().Truncate(time.Second)
	hours := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	for name, c := range map[string]struct {
		from, to time.Time
		want     string
	}{
		"expired":     {hours(-2), hours(-1), "expired at " + hours(-1).Format("2006-01-02T15:")},
		"not started": {hours(1), hours(2), "starts only at " + hours(1).Format("2006-01-02T15:")},
	} {
		signed, err := store.client.GetSASURL(allPermissions, c.to, &container.GetSASURLOptions{StartTime: &c.from})
		if err != nil {
			t.Fatal(err)
		}
		_, query, _ := strings.Cut(signed, "?")
		t.Setenv(envSAS, query)
		l, err := Open(t.Context(), strings.Replace(store.service.URL(store.name), "//emulator/", "//account1/", 1))
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.TryAcquire(bounded(t), request("n"))
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), envSAS+" "+c.want) || strings.Contains(err.Error(), "sig") {
			t.Errorf("%s: %v", name, err)
		}
		var found []driver.Finding
		if err := l.Check(bounded(t), func(f driver.Finding) { found = append(found, f) }); err != nil {
			t.Fatal(err)
		}
		if f := found[1]; f.Subject != subjectCredential || f.Level != driver.LevelWrong ||
			!strings.Contains(f.Detail, strings.Fields(c.want)[0]) {
			t.Errorf("%s: %+v", name, f)
		}
		_ = l.Close(t.Context())
	}
}

// A lock whose blob was archived cannot be acquired, and doctor finds it.
func TestCheckArchivedBlobs(t *testing.T) {
	t.Parallel()
	store := newTestContainer(t)
	l := store.locker()
	for _, name := range []string{"nightly", "weekly"} {
		used(t, l, name)
	}
	check := func() (found driver.Finding) {
		if err := l.Check(bounded(t), func(f driver.Finding) {
			if f.Subject == subjectTier {
				found = f
			}
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if f := check(); f.Level != driver.LevelOK || f.Subject == "" {
		t.Errorf("%+v", f)
	}
	if _, err := l.Blob("weekly").SetTier(bounded(t), blob.AccessTierArchive, nil); err != nil {
		t.Fatal(err)
	}
	if f := check(); f.Level != driver.LevelWrong || !strings.Contains(f.Detail, `"weekly"`) || !strings.Contains(f.Detail, "1 of") ||
		!strings.Contains(f.Command, "set-tier") {
		t.Errorf("%+v", f)
	}
}
