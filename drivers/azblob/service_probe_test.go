package azblob

import (
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

// serviceProbe sends requests for one blob and checks the answers.
type serviceProbe struct {
	t     *testing.T
	store *testContainer
	blob  *blockblob.Client
}

func newServiceProbe(t *testing.T) *serviceProbe {
	t.Helper()
	t.Parallel()
	r := newTestContainer(t)
	p := &serviceProbe{t: t, store: r, blob: r.client.NewBlockBlobClient("b")}
	p.is("put", p.put(nil, ""), "")
	return p
}

// newExpiredProbe returns a probe whose lease has expired, and the lease's ID.
func newExpiredProbe(t *testing.T) (*serviceProbe, string) {
	t.Helper()
	p, id := newServiceProbe(t), newID()
	p.is("acquire", p.acquire(id, 15), "")
	p.expire()
	return p, id
}

// onAzure returns azure, or azurite if the service is the emulator.
func (p *serviceProbe) onAzure(azure, azurite string) string {
	if p.store.service.Emulator {
		return azurite
	}
	return azure
}

// is compares an answer's code; "" is success.
func (p *serviceProbe) is(what string, err error, want string) {
	p.t.Helper()
	if got := codeOf(err); got != want {
		p.t.Errorf("%s: answered %q, want %q", what, got, want)
	}
}

// lost compares the code with Azurite's. On Azure it must be one of those that the driver
// treats as a lost lease.
func (p *serviceProbe) lost(what string, err error, azurite string) {
	p.t.Helper()
	if !hasCode(err, codesLost...) {
		p.t.Errorf("%s: answered %q, which is none of %q", what, codeOf(err), codesLost)
	}
	if p.store.service.Emulator {
		p.is(what, err, azurite)
	}
}

func codeOf(err error) string {
	var answer *azcore.ResponseError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answer):
		return answer.ErrorCode
	default:
		return err.Error()
	}
}

func (p *serviceProbe) lease(id string) *lease.BlobClient {
	c, err := lease.NewBlobClient(p.blob, &lease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *serviceProbe) acquire(id string, seconds int32) error {
	_, err := p.lease(id).AcquireLease(bounded(p.t), seconds, nil)
	return err
}

func (p *serviceProbe) renew(id string) error {
	_, err := p.lease(id).RenewLease(bounded(p.t), nil)
	return err
}

func (p *serviceProbe) release(id string) error {
	_, err := p.lease(id).ReleaseLease(bounded(p.t), nil)
	return err
}

func (p *serviceProbe) change(from, to string) error {
	_, err := p.lease(from).ChangeLease(bounded(p.t), to, nil)
	return err
}

// breakLease sends no period if it is negative.
func (p *serviceProbe) breakLease(period int32) error {
	o := &lease.BlobBreakOptions{}
	if period >= 0 {
		o.BreakPeriod = &period
	}
	_, err := p.lease(newID()).BreakLease(bounded(p.t), o)
	return err
}

// leaseConditionsOf returns the conditions that name a lease; none if id is empty.
func leaseConditionsOf(id string) *blob.AccessConditions {
	if id == "" {
		return nil
	}
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &id}}
}

func (p *serviceProbe) put(metadata map[string]*string, id string) error {
	_, err := p.blob.Upload(bounded(p.t), requestBody(nil), &blockblob.UploadOptions{Metadata: metadata,
		AccessConditions: leaseConditionsOf(id)})
	return err
}

func (p *serviceProbe) setMetadata(id string) error {
	v := "v"
	_, err := p.blob.BlobClient().SetMetadata(bounded(p.t), map[string]*string{"k": &v},
		&blob.SetMetadataOptions{AccessConditions: leaseConditionsOf(id)})
	return err
}

func (p *serviceProbe) properties(id string) (blob.GetPropertiesResponse, error) {
	return p.blob.BlobClient().GetProperties(bounded(p.t), &blob.GetPropertiesOptions{AccessConditions: leaseConditionsOf(id)})
}

func (p *serviceProbe) state() lease.StateType {
	props, err := p.properties("")
	if err != nil || props.LeaseState == nil {
		p.t.Fatalf("properties: %v", err)
	}
	return *props.LeaseState
}

// expire waits until a lease of 15 s that was taken before now has ended.
func (p *serviceProbe) expire() {
	deadline := time.Now().Add(60 * time.Second) // Azure may take longer
	for time.Sleep(15 * time.Second); p.state() != lease.StateTypeExpired; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("the lease does not expire")
		}
	}
}
