package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/drivers/memory"
)

var _ interface {
	certmagic.Storage
	certmagic.TryLocker
	certmagic.LockLeaseRenewer
} = (*certmagiclock.Storage[certmagic.KeyInfo])(nil)

const domain = "example.com"

func newStorage(client *holdfast.Client, folder string) (*certmagiclock.Storage[certmagic.KeyInfo], error) {
	locker, err := certmagiclock.NewLocker(client)
	if err != nil {
		return nil, err
	}
	return certmagiclock.NewStorage(&certmagic.FileStorage{Path: folder}, locker)
}

// newMagic makes what an instance of a cluster has.
func newMagic(storage certmagic.Storage, issuer certmagic.Issuer) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop()})
	return config
}

// issuer signs certificates itself, inside a function of the test.
type issuer func(ctx context.Context, sign func() error) error

func (issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	var issued *certmagic.IssuedCertificate
	err := i(ctx, func() error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: request.DNSNames, NotBefore: time.Now(),
			NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, request.PublicKey, key)
		if err != nil {
			return err
		}
		issued = &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
		return nil
	})
	return issued, err
}

// Of a cluster whose instances all want a certificate, one obtains it. The others wait, and find
// it in the storage.
func TestCertmagicOneInstanceObtains(t *testing.T) {
	store, folder, orders := memory.NewStore(), t.TempDir(), &runs{}
	var instances sync.WaitGroup
	for range 4 {
		storage, err := newStorage(newClient(t, store), folder)
		if err != nil {
			t.Fatal(err)
		}
		magic := newMagic(storage, issuer(func(_ context.Context, sign func() error) (err error) {
			orders.run(func() { time.Sleep(50 * time.Millisecond); err = sign() })
			return err
		}))
		instances.Go(func() {
			if err := magic.ObtainCertSync(t.Context(), domain); err != nil {
				t.Error(err)
			}
		})
	}
	instances.Wait()
	if n := orders.count(); n != 1 {
		t.Errorf("the certificate was ordered %d times", n)
	}
}

func TestCertmagicTryLock(t *testing.T) {
	store, ctx := memory.NewStore(), t.Context()
	first, err := newStorage(newClient(t, store), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	second, err := newStorage(newClient(t, store), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tried := func(s *certmagiclock.Storage[certmagic.KeyInfo], want bool) {
		t.Helper()
		if ok, err := s.TryLock(ctx, domain); ok != want || err != nil {
			t.Errorf("TryLock: %t, %v", ok, err)
		}
	}
	tried(first, true)
	tried(first, false)
	tried(second, false)
	if err := second.RenewLockLease(ctx, domain, time.Minute); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("renewal of another's lock: %v", err)
	}
	if err := errors.Join(first.RenewLockLease(ctx, domain, time.Minute), first.Unlock(ctx, domain)); err != nil {
		t.Error(err)
	}
	tried(second, true)
	if err := second.Unlock(ctx, domain); err != nil {
		t.Error(err)
	}
}

// losing is a Storage whose locks are lost as soon as certmagic has them.
type losing struct {
	*certmagiclock.Storage[certmagic.KeyInfo]
	lose func(name string) error
}

func (l losing) Lock(ctx context.Context, name string) error {
	if err := l.Storage.Lock(ctx, name); err != nil {
		return err
	}
	return l.lose(name)
}

// certmagic renews the lease before each attempt. That acquires a lost lock again, unless another has it.
func TestCertmagicLoss(t *testing.T) {
	for what, taken := range map[string]bool{"the lock is free": false, "another has the lock": true} {
		t.Run(what, func(t *testing.T) {
			store, ordered := memory.NewStore(), 0
			storage, err := newStorage(newClient(t, store), t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			operator := newClient(t, store)
			magic := newMagic(losing{storage, func(name string) error {
				if err := operator.Break(t.Context(), name, holdfast.BreakAnybody()); err != nil {
					return err
				}
				eventually(t, "the loss", func() bool { return isFree(t, operator, name) })
				if !taken {
					return nil
				}
				_, err := operator.TryLock(t.Context(), name)
				return err
			}}, issuer(func(_ context.Context, sign func() error) error {
				if ordered++; isFree(t, operator, "issue_cert_"+domain) {
					t.Error("the certificate is ordered without the lock")
				}
				return sign()
			}))
			attempts := 0 // as in the attempts that certmagic repeats
			ctx := context.WithValue(t.Context(), certmagic.AttemptsCtxKey, &attempts)
			err = magic.ObtainCertSync(ctx, domain)
			if taken && (ordered != 0 || err == nil || !strings.Contains(err.Error(), "is held by")) {
				t.Errorf("ordered %d times; ObtainCertSync: %v", ordered, err)
			}
			if !taken && (ordered != 1 || err != nil || !isFree(t, operator, "issue_cert_"+domain)) {
				t.Errorf("ordered %d times; ObtainCertSync: %v", ordered, err)
			}
		})
	}
}

// certmagicProgram obtains a certificate.
func certmagicProgram(client *holdfast.Client, journal journal) error {
	storage, err := newStorage(client, filepath.Join(filepath.Dir(journal.path), "certificates"))
	if err != nil {
		return err
	}
	return obtain(storage, journal)
}

// obtain obtains a certificate. The order takes forever if no certificate was ordered before.
func obtain(storage certmagic.Storage, journal journal) error {
	first := filepath.Join(filepath.Dir(journal.path), "ordered")
	magic := newMagic(storage, issuer(func(ctx context.Context, sign func() error) error {
		if err := journal.write(ctx, "order"); err != nil {
			return err
		}
		if createOnce(first) {
			select {}
		}
		return sign()
	}))
	if err := magic.ObtainCertSync(context.Background(), domain); err != nil {
		return err
	}
	return journal.write(context.Background(), "obtained")
}

func TestCertmagicKilledProcess(t *testing.T) {
	t.Parallel()
	folder := takesOver(t, "certmagic")
	entries := journal{filepath.Join(folder, "journal")}.await(t, 3)
	if last := entries[len(entries)-1]; last.what != "obtained" || len(entries) != 3 {
		t.Errorf("what happened: %v", entries)
	}
}
