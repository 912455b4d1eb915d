package doctor_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/test/azuritetest"
)

// azure is a container of the emulator. Its account has another name in URLs that use a SAS, so that
// the SAS is used and not the emulator's key.
type azure struct {
	t       *testing.T
	service *azuritetest.Service
	name    string
	client  *container.Client
}

func newAzure(t *testing.T) *azure {
	t.Helper()
	for _, name := range []string{"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"} {
		t.Setenv(name, "")
	}
	service := azuritetest.Shared(t)
	a := &azure{t: t, service: service, name: service.Fresh(t)}
	a.client = service.Client(t, a.name, nil)
	return a
}

func (a *azure) create() *azure {
	a.t.Helper()
	if _, err := a.client.Create(bounded(a.t), nil); err != nil {
		a.t.Fatal(err)
	}
	return a
}

// url is that with the account's key.
func (a *azure) url() string { return a.service.URL(a.name) }

// sas returns a URL and sets a SAS with these permissions for it.
func (a *azure) sas(permissions string, lasts time.Duration) string {
	a.t.Helper()
	parsed := sas.ContainerPermissions{}
	for _, p := range permissions {
		switch p {
		case 'r':
			parsed.Read = true
		case 'c':
			parsed.Create = true
		case 'w':
			parsed.Write = true
		case 'l':
			parsed.List = true
		case 'd':
			parsed.Delete = true
		}
	}
	start := time.Now().Add(-time.Hour - 2*lasts.Abs())
	signed, err := a.client.GetSASURL(parsed, time.Now().Add(lasts), &container.GetSASURLOptions{StartTime: &start})
	if err != nil {
		a.t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Setenv("AZURE_STORAGE_SAS_TOKEN", u.RawQuery)
	return strings.Replace(a.url(), "//emulator/", "//account1/", 1)
}

const month = 30 * 24 * time.Hour

func (a *azure) upload(name, content string, metadata map[string]*string) {
	a.t.Helper()
	ctx := bounded(a.t)
	b := a.client.NewBlockBlobClient(name)
	if _, err := b.UploadBuffer(ctx, []byte(content), nil); err != nil {
		a.t.Fatal(err)
	}
	if _, err := b.SetMetadata(ctx, metadata, nil); err != nil {
		a.t.Fatal(err)
	}
}

func (a *azure) delete(name string) {
	a.t.Helper()
	if _, err := a.client.NewBlobClient(name).Delete(bounded(a.t), nil); err != nil {
		a.t.Fatal(err)
	}
}

// blobs are the names of all blobs.
func (a *azure) blobs() (names []string) {
	a.t.Helper()
	for pager := a.client.NewListBlobsFlatPager(nil); pager.More(); {
		page, err := pager.NextPage(bounded(a.t))
		if err != nil {
			a.t.Fatal(err)
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names
}

// The tests are not parallel, since credentials come from the environment.

func TestAzureHealthy(t *testing.T) {
	a := newAzure(t).create()
	wantHealthy(t, examine(t, a.url()), "versioning")
	if left := a.blobs(); len(left) > 0 {
		t.Errorf("the check left %q", left)
	}
	// With a SAS for the container alone, the account's settings are out of reach; with one that may
	// not delete, as the documentation recommends, the blob of the probe stays.
	unreadable := []string{"versioning", "public access", "immutability", "soft delete", "lifecycle rules"}
	wantHealthy(t, examine(t, a.sas("rcwld", month)), unreadable...)
	if left := a.blobs(); len(left) > 0 {
		t.Errorf("the check left %q", left)
	}
	wantHealthy(t, examine(t, a.sas("rcwl", month)), append(unreadable, "removal of the probe")...)
	if left := a.blobs(); len(left) != 1 || left[0] != driver.ProbeName {
		t.Errorf("the check left %q", left)
	}
	wantHealthy(t, examine(t, a.url())) // there is a blob now, which shows whether versioning is on
}

// Each right is missed by its own finding, and the permissions that the remedy names are enough.
func TestAzureMissingRights(t *testing.T) {
	a := newAzure(t).create()
	for permissions, subject := range map[string]string{"cwl": "right to read", "rl": "right to write", "rcw": "right to list"} {
		level := driver.LevelWrong
		if subject == "right to list" {
			level = driver.LevelDoubtful
		}
		f := wantFound(t, examine(t, a.sas(permissions, month)), subject, level, "permissions rcwl")
		if permissions == "rl" { // a container that is only readable
			wantFound(t, examine(t, a.sas(permissions, month)), "right to create", driver.LevelWrong, "--permissions rcwl")
		}
		wantCured(t, a.sas(permissionsOf(t, f), month), subject)
	}
}

// permissionsOf are those that the command of a finding asks for.
func permissionsOf(t *testing.T, f driver.Finding) string {
	t.Helper()
	_, rest, found := strings.Cut(f.Command, "--permissions ")
	if !found {
		t.Fatalf("the command names no permissions: %s", f.Command)
	}
	return strings.Fields(rest)[0]
}

func TestAzureSASExpiry(t *testing.T) {
	a := newAzure(t).create()
	wantFound(t, examine(t, a.sas("rcwl", -time.Hour)), "credential", driver.LevelWrong, "a later expiry")
	wantFound(t, examine(t, a.sas("rcwl", time.Hour)), "credential", driver.LevelDoubtful, "a later expiry")
	wantCured(t, a.sas("rcwl", month), "credential")
}

func TestAzureWrongKey(t *testing.T) {
	a := newAzure(t).create()
	address := strings.Replace(a.url(), "//emulator/", "//"+azuritetest.Account+"/", 1)
	t.Setenv("AZURE_STORAGE_KEY", "czNjcjN0")
	wantFound(t, examine(t, address), "credential", driver.LevelWrong, "belong to the account")
	t.Setenv("AZURE_STORAGE_KEY", azuritetest.Key)
	wantCured(t, address, "credential")
}

func TestAzureMissingContainer(t *testing.T) {
	a := newAzure(t)
	f := wantFound(t, examine(t, a.url()), "container", driver.LevelWrong, "az storage container create")
	if !strings.HasSuffix(f.Command, "--name "+a.name) {
		t.Errorf("the command is %s", f.Command)
	}
	if _, err := a.client.GetProperties(bounded(t), nil); err == nil {
		t.Error("the check made the container")
	}
	wantCured(t, a.create().url(), "container")
}

func TestAzurePublicAccess(t *testing.T) {
	a := newAzure(t).create()
	public := container.PublicAccessTypeContainer
	if _, err := a.client.SetAccessPolicy(bounded(t), &container.SetAccessPolicyOptions{Access: &public}); err != nil {
		t.Fatal(err)
	}
	wantFound(t, examine(t, a.url()), "public access", driver.LevelDoubtful, "--public-access off")
	if _, err := a.client.SetAccessPolicy(bounded(t), nil); err != nil {
		t.Fatal(err)
	}
	wantCured(t, a.url(), "public access")
}

func TestAzureForeignBlobs(t *testing.T) {
	a := newAzure(t).create()
	a.upload("photo.jpg", "not a lock", nil)
	wantFound(t, examine(t, a.url()), "foreign blobs", driver.LevelDoubtful, "azblob://ACCOUNT/CONTAINER/FOLDER")
	wantCured(t, strings.Replace(a.url(), "?", "/locks?", 1), "foreign blobs") // a folder, as the remedy says
}

func TestAzureDamagedRecord(t *testing.T) {
	a := newAzure(t).create()
	version := "7"
	a.upload("nightly", "", map[string]*string{"holdfastv": &version})
	f := wantFound(t, examine(t, a.url()), "records", driver.LevelWrong, "delete them")
	if !strings.Contains(f.Detail, `"nightly"`) {
		t.Errorf("the record is not named: %s", f.Detail)
	}
	a.delete("nightly")
	wantCured(t, a.url(), "records")
}

// The service does not say how much time a lease has left.
func TestAzureHeldLock(t *testing.T) {
	a := newAzure(t).create()
	l, err := driver.Open(bounded(t), a.url())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	held, err := l.TryAcquire(bounded(t), driver.Request{Name: "nightly", ID: driver.NewLeaseID("2a2b9f2e-31a1-4b52-9b5a-5f0d7a6b8c9d"),
		Owner: "host/1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	wantHealthy(t, examine(t, a.url()), "leases")
	if err := l.Release(bounded(t), held); err != nil {
		t.Fatal(err)
	}
	wantHealthy(t, examine(t, a.url()))
}

// A lease that another program took without an end is found.
func TestAzureEndlessLease(t *testing.T) {
	a := newAzure(t).create()
	l, err := driver.Open(bounded(t), a.url())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.WithoutCancel(t.Context())) }()
	held, err := l.TryAcquire(bounded(t), driver.Request{Name: "nightly", ID: driver.NewLeaseID("2a2b9f2e-31a1-4b52-9b5a-5f0d7a6b8c9d"),
		Owner: "host/1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(bounded(t), held); err != nil {
		t.Fatal(err)
	}
	byHand, err := lease.NewBlobClient(a.client.NewBlobClient("nightly"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := byHand.AcquireLease(bounded(t), -1, nil); err != nil {
		t.Fatal(err)
	}
	f := wantFound(t, examine(t, a.url()), "leases", driver.LevelDoubtful, "--unknown")
	if !strings.Contains(f.Detail, `"nightly"`) || !strings.Contains(f.Detail, "never ends") {
		t.Errorf("the detail is: %s", f.Detail)
	}
	if err := l.Capabilities().Breaker.Break(bounded(t), "nightly", driver.BreakUnknown()); err != nil {
		t.Fatal(err)
	}
	wantCured(t, a.url(), "leases")
}

func TestAzureUnreachable(t *testing.T) {
	newAzure(t)
	r := examine(t, "azblob://emulator/locks?endpoint=http://127.0.0.1:1/devstoreaccount1")
	wantFound(t, r, "service", driver.LevelWrong, "firewalls")
}
