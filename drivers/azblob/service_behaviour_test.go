package azblob

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"

	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// These tests fix what the service does, without the driver, where the driver relies on it.
// They fail first if a version of the service differs. They follow the table of outcomes in
// https://learn.microsoft.com/rest/api/storageservices/lease-blob. Where Azurite is known to
// differ from Azure, onAzure has Azure's answer.

func TestBehaviourAcquire(t *testing.T) {
	p := newServiceProbe(t)
	a, b := newID(), newID()
	p.is("14 seconds", p.acquire(a, 14), "InvalidHeaderValue")
	p.is("61 seconds", p.acquire(a, 61), "InvalidHeaderValue")
	p.is("an ID that is no UUID", p.acquire("not-a-uuid", 15), p.onAzure("InvalidHeaderValue", ""))
	if p.store.service.Emulator {
		p.is("its release", p.release("not-a-uuid"), "")
	}
	p.is("acquire", p.acquire(a, 15), "")
	p.is("acquire again with the same ID", p.acquire(a, 60), "")
	p.is("acquire with another ID", p.acquire(b, 15), "LeaseAlreadyPresent")
	p.is("break", p.breakLease(-1), "")
	p.is("acquire with the same ID while it breaks", p.acquire(a, 15), "LeaseIsBreakingAndCannotBeAcquired")
	p.is("acquire with another ID while it breaks", p.acquire(b, 15), "LeaseAlreadyPresent")
	p.is("break at once", p.breakLease(0), "")
	p.is("acquire with another ID once it is broken", p.acquire(b, 15), "")
}

func TestBehaviourRenewAndRelease(t *testing.T) {
	p := newServiceProbe(t)
	a, b := newID(), newID()
	p.lost("renew, never leased", p.renew(a), "LeaseIdMismatchWithLeaseOperation")
	p.lost("release, never leased", p.release(a), "LeaseIdMismatchWithLeaseOperation")
	p.is("acquire", p.acquire(a, 60), "")
	p.is("renew", p.renew(a), "")
	p.is("renew with another ID", p.renew(b), "LeaseIdMismatchWithLeaseOperation")
	p.is("release with another ID", p.release(b), "LeaseIdMismatchWithLeaseOperation")
	p.is("release", p.release(a), "")
	p.is("release, retried", p.release(a), "LeaseIdMismatchWithLeaseOperation")
	p.lost("renew after release", p.renew(a), "LeaseIdMismatchWithLeaseOperation")
}

func TestBehaviourChange(t *testing.T) {
	p := newServiceProbe(t)
	a, b, c := newID(), newID(), newID()
	p.is("acquire", p.acquire(a, 60), "")
	p.is("change B to C", p.change(b, c), "LeaseIdMismatchWithLeaseOperation")
	p.is("change B to A, whose lease it is: anybody may", p.change(b, a), "")
	p.is("change A to B", p.change(a, b), "")
	p.is("renew A", p.renew(a), "LeaseIdMismatchWithLeaseOperation")
	p.is("renew B", p.renew(b), "")
}

func TestBehaviourBreak(t *testing.T) {
	p := newServiceProbe(t)
	a := newID()
	p.is("break, never leased", p.breakLease(-1), "LeaseNotPresentWithLeaseOperation")
	p.is("acquire", p.acquire(a, 60), "")
	p.is("break, without the ID", p.breakLease(-1), "")
	if s := p.state(); s != lease.StateTypeBreaking {
		t.Errorf("the lease is %s", s)
	}
	p.is("break again", p.breakLease(-1), "")
	p.is("renew while it breaks", p.renew(a), "LeaseIsBrokenAndCannotBeRenewed")
	_, err := p.properties(a)
	p.is("read as holder while it breaks", err, "")
	p.is("write as holder while it breaks", p.setMetadata(a), "")
	p.is("break at once", p.breakLease(0), "")
	if s := p.state(); s != lease.StateTypeBroken {
		t.Errorf("the lease is %s", s)
	}
	p.is("renew when broken", p.renew(a), "LeaseIsBrokenAndCannotBeRenewed")
	p.is("break when broken", p.breakLease(0), "")
	p.lost("write as holder when broken", p.setMetadata(a), "LeaseNotPresentWithBlobOperation") // Azure: LeaseLost
	p.is("release when broken", p.release(a), "")
}

func TestBehaviourLeaseAndWrites(t *testing.T) {
	p := newServiceProbe(t)
	a, b := newID(), newID()
	before, err := p.properties("")
	p.is("read", err, "")
	_, err = p.properties(a)
	p.is("read, naming a lease, of a blob without", err, "LeaseNotPresentWithBlobOperation")
	p.is("write, naming a lease, to a blob without", p.setMetadata(a), "LeaseNotPresentWithBlobOperation")
	p.is("acquire", p.acquire(a, 60), "")
	p.is("renew", p.renew(a), "")
	after, err := p.properties(a)
	p.is("read as holder", err, "")
	if *before.ETag != *after.ETag || !before.LastModified.Equal(*after.LastModified) {
		t.Error("a lease operation changed ETag or Last-Modified")
	}
	_, err = p.properties(b)
	p.is("read, naming another lease", err, "LeaseIdMismatchWithBlobOperation")
	p.is("write without a lease", p.setMetadata(""), "LeaseIdMissing")
	p.is("write, naming another lease", p.setMetadata(b), "LeaseIdMismatchWithBlobOperation")
	p.is("write as holder", p.setMetadata(a), "")
	if props, err := p.properties(""); err != nil || len(props.Metadata) != 1 {
		t.Errorf("metadata %v, %v", props.Metadata, err)
	}
	p.is("upload as holder", p.put(nil, a), "")
	if props, err := p.properties(""); err != nil || len(props.Metadata) != 0 {
		t.Errorf("an upload without metadata left %v, %v", props.Metadata, err)
	}
	_, err = p.blob.Delete(bounded(t), nil)
	p.is("delete without a lease", err, "LeaseIdMissing")
	_, err = p.store.client.Delete(bounded(t), nil)
	p.is("delete the container, whose blob is leased", err, "")
	p.is("renew, the container gone", p.renew(a), "ContainerNotFound")
}

func TestBehaviourMissing(t *testing.T) {
	p := newServiceProbe(t)
	a := newID()
	_, err := p.blob.Delete(bounded(t), nil)
	p.is("delete", err, "")
	for what, err := range map[string]error{
		"acquire": p.acquire(a, 15), "renew": p.renew(a), "release": p.release(a), "break": p.breakLease(0), "write": p.setMetadata(a),
	} {
		p.is(what+" without the blob", err, "BlobNotFound")
	}
	_, err = p.properties("")
	p.is("read without the blob", err, "BlobNotFound")
}

func TestBehaviourPutIfAbsent(t *testing.T) {
	p := newServiceProbe(t)
	absent := func() error {
		every := azcore.ETagAny
		_, err := p.blob.Upload(bounded(t), requestBody(nil), &blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: &every}}})
		return err
	}
	p.is("put, if absent", absent(), "BlobAlreadyExists")
	p.is("acquire", p.acquire(newID(), 15), "")
	if err := absent(); !hasCode(err, codesExist...) {
		t.Errorf("put, if absent, of a leased blob: %v", codeOf(err))
	}
}

func TestBehaviourIfMatch(t *testing.T) {
	p := newServiceProbe(t)
	a := newID()
	p.is("acquire", p.acquire(a, 60), "")
	props, err := p.properties(a)
	p.is("read", err, "")
	p.is("write", p.setMetadata(a), "")
	conditions := leaseConditionsOf(a)
	conditions.ModifiedAccessConditions = &blob.ModifiedAccessConditions{IfMatch: props.ETag}
	_, err = p.blob.BlobClient().SetMetadata(bounded(t), nil, &blob.SetMetadataOptions{AccessConditions: conditions})
	p.is("write with an old ETag", err, "ConditionNotMet")
	_, err = p.blob.Upload(bounded(t), requestBody(nil), &blockblob.UploadOptions{AccessConditions: conditions})
	p.is("upload with an old ETag", err, "ConditionNotMet")
	old := &lease.BlobReleaseOptions{ModifiedAccessConditions: conditions.ModifiedAccessConditions}
	_, err = p.lease(a).ReleaseLease(bounded(t), old)
	p.is("release with an old ETag", err, "ConditionNotMet")
	p.is("renew", p.renew(a), "")
	props, err = p.properties(a)
	p.is("read", err, "")
	_, err = p.lease(a).ReleaseLease(bounded(t),
		&lease.BlobReleaseOptions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: props.ETag}})
	p.is("release with the ETag", err, "")
}

func TestBehaviourStatus(t *testing.T) {
	p := newServiceProbe(t)
	p.is("acquire", p.acquire(newID(), 60), "")
	for what, want := range map[string]struct {
		err    error
		status int
	}{
		"lease operation": {p.renew(newID()), http.StatusConflict},
		"blob operation":  {p.setMetadata(newID()), http.StatusPreconditionFailed},
	} {
		if !bloberror.HasCode(want.err, bloberror.LeaseIDMismatchWithLeaseOperation, bloberror.LeaseIDMismatchWithBlobOperation) {
			t.Errorf("%s: %v", what, want.err)
		}
		var answer *azcore.ResponseError
		if !errors.As(want.err, &answer) || answer.StatusCode != want.status {
			t.Errorf("%s of a stranger: %v, want status %d", what, want.err, want.status)
		}
	}
}

func TestBehaviourExpiry(t *testing.T) {
	serverprocess.Long(t, "waits for leases of 15 s to end")
	t.Parallel()
	t.Run("renewed by its holder", func(t *testing.T) {
		p, a := newExpiredProbe(t)
		p.is("renew after expiry", p.renew(a), "")
		p.is("another's acquire", p.acquire(newID(), 15), "LeaseAlreadyPresent")
	})
	t.Run("renewed by a stranger", func(t *testing.T) {
		p := newServiceProbe(t)
		p.is("acquire", p.acquire(newID(), 15), "")
		p.expire()
		// Azurite does not compare the ID here.
		p.is("a stranger's renewal after expiry", p.renew(newID()), p.onAzure("LeaseIdMismatchWithLeaseOperation", ""))
	})
	t.Run("written", func(t *testing.T) {
		p, a := newExpiredProbe(t)
		p.lost("write as the former holder", p.setMetadata(a), "LeaseNotPresentWithBlobOperation") // Azure: LeaseLost
		_, err := p.properties(a)
		p.lost("read as the former holder", err, "LeaseNotPresentWithBlobOperation")
		p.is("write without a lease", p.setMetadata(""), "")
		p.lost("renew after a write", p.renew(a), "LeaseIdMismatchWithLeaseOperation")
	})
	t.Run("taken by the same ID", func(t *testing.T) {
		p, a := newExpiredProbe(t)
		p.is("acquire again", p.acquire(a, 15), "")
		p.is("another's acquire", p.acquire(newID(), 15), "LeaseAlreadyPresent")
	})
	t.Run("taken by another", func(t *testing.T) {
		p, a := newExpiredProbe(t)
		p.is("another's acquire", p.acquire(newID(), 15), "")
		p.is("renew", p.renew(a), "LeaseIdMismatchWithLeaseOperation")
		p.is("release", p.release(a), "LeaseIdMismatchWithLeaseOperation")
	})
	t.Run("broken", func(t *testing.T) {
		p, a := newExpiredProbe(t)
		p.is("break", p.breakLease(-1), "")
		p.is("renew", p.renew(a), "LeaseIsBrokenAndCannotBeRenewed")
	})
	t.Run("released", func(t *testing.T) {
		p, a := newExpiredProbe(t)
		p.is("release", p.release(a), "")
		if s := p.state(); s != lease.StateTypeAvailable {
			t.Errorf("the lease is %s", s)
		}
	})
}

// A renewal keeps the length for which the lease was taken. Taking it again with the same ID
// sets a new length, shorter or longer.
func TestBehaviourLength(t *testing.T) {
	serverprocess.Long(t, "waits for leases of 15 s to end")
	p := newServiceProbe(t)
	a := newID()
	p.is("acquire for 60 s", p.acquire(a, 60), "")
	p.is("acquire for 15 s", p.acquire(a, 15), "")
	start := time.Now()
	p.is("renew", p.renew(a), "")
	p.expire()
	if took := time.Since(start); p.store.service.Emulator && took > 30*time.Second {
		t.Errorf("expired after %v", took)
	}
}

// The tests have an emulator, whatever the environment names.
func TestBehaviourOfTheEmulatorItself(t *testing.T) {
	t.Parallel()
	if s := azuritetest.Shared(t); s.Emulator && s.Account != emulatorAccount || emulatorKey != azuritetest.Key {
		t.Errorf("the emulator's account is %q", s.Account)
	}
}
