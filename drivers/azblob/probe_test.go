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

// probe is one blob and what requests about it are answered.
type probe struct {
	t    *testing.T
	room *room
	blob *blockblob.Client
}

func newProbe(t *testing.T) *probe {
	t.Helper()
	t.Parallel()
	r := newRoom(t)
	p := &probe{t: t, room: r, blob: r.client.NewBlockBlobClient("b")}
	p.is("put", p.put(nil, ""), "")
	return p
}

// onAzure is Azure's answer instead of Azurite's.
func (p *probe) onAzure(azure, azurite string) string {
	if p.room.service.Emulator {
		return azurite
	}
	return azure
}

// is compares the code of an answer; "" is success.
func (p *probe) is(what string, err error, want string) {
	p.t.Helper()
	if got := code(err); got != want {
		p.t.Errorf("%s: answered %q, want %q", what, got, want)
	}
}

// lost compares the code with Azurite's; Azure's is documented to be one of those
// that the driver takes for a lost lease.
func (p *probe) lost(what string, err error, azurite string) {
	p.t.Helper()
	if !hasCode(err, codesLost...) {
		p.t.Errorf("%s: answered %q, which is none of %q", what, code(err), codesLost)
	}
	if p.room.service.Emulator {
		p.is(what, err, azurite)
	}
}

func code(err error) string {
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

func (p *probe) lease(id string) *lease.BlobClient {
	c, err := lease.NewBlobClient(p.blob, &lease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *probe) acquire(id string, seconds int32) error {
	_, err := p.lease(id).AcquireLease(bounded(p.t), seconds, nil)
	return err
}

func (p *probe) renew(id string) error {
	_, err := p.lease(id).RenewLease(bounded(p.t), nil)
	return err
}

func (p *probe) release(id string) error {
	_, err := p.lease(id).ReleaseLease(bounded(p.t), nil)
	return err
}

func (p *probe) change(from, to string) error {
	_, err := p.lease(from).ChangeLease(bounded(p.t), to, nil)
	return err
}

// breakLease has no period if it is negative.
func (p *probe) breakLease(period int32) error {
	o := &lease.BlobBreakOptions{}
	if period >= 0 {
		o.BreakPeriod = &period
	}
	_, err := p.lease(newID()).BreakLease(bounded(p.t), o)
	return err
}

// under are the conditions that name a lease; none if id is empty.
func under(id string) *blob.AccessConditions {
	if id == "" {
		return nil
	}
	return &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &id}}
}

func (p *probe) put(metadata map[string]*string, id string) error {
	_, err := p.blob.Upload(bounded(p.t), body(nil), &blockblob.UploadOptions{Metadata: metadata, AccessConditions: under(id)})
	return err
}

func (p *probe) setMetadata(id string) error {
	v := "v"
	_, err := p.blob.BlobClient().SetMetadata(bounded(p.t), map[string]*string{"k": &v}, &blob.SetMetadataOptions{AccessConditions: under(id)})
	return err
}

func (p *probe) properties(id string) (blob.GetPropertiesResponse, error) {
	return p.blob.BlobClient().GetProperties(bounded(p.t), &blob.GetPropertiesOptions{AccessConditions: under(id)})
}

func (p *probe) state() lease.StateType {
	props, err := p.properties("")
	if err != nil || props.LeaseState == nil {
		p.t.Fatalf("properties: %v", err)
	}
	return *props.LeaseState
}

// expire waits until a lease of 15 s that was taken before now has ended.
func (p *probe) expire() {
	deadline := time.Now().Add(60 * time.Second) // Azure may take its time
	for time.Sleep(15 * time.Second); p.state() != lease.StateTypeExpired; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("the lease does not expire")
		}
	}
}
