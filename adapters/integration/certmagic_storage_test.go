package integration

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/certmagic"
	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagicazblob"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/adapters/certmagicmongo"
	"github.com/holdfast-go/holdfast/test/azuritetest"
	"github.com/holdfast-go/holdfast/test/locktest"
	"github.com/holdfast-go/holdfast/test/mongotest"
)

type certmagicStorage = certmagiclock.Storage[certmagic.KeyInfo]

// storages are the complete storages. Each call of the inner function opens the same storage
// once more, as another process does.
var storages = map[string]func(t *testing.T) (open func() *certmagicStorage){
	"MongoDB": func(t *testing.T) func() *certmagicStorage {
		url := mongoURL(t)
		return func() *certmagicStorage { return openStorage(t, url, certmagicmongo.Open[certmagic.KeyInfo]) }
	},
	"Azure Blob Storage": func(t *testing.T) func() *certmagicStorage {
		service := azuritetest.Shared(t)
		url := service.URL(service.Fresh(t))
		return func() *certmagicStorage { return openStorage(t, url, certmagicazblob.Open[certmagic.KeyInfo]) }
	},
}

// mongoURL is the URL of a new database.
func mongoURL(t *testing.T) string {
	t.Helper()
	base, query, _ := strings.Cut(mongotest.URI(t), "?")
	return strings.TrimSuffix(base, "/") + "/" + mongotest.Collection(t).Database().Name() + "?" + query
}

func openStorage(t *testing.T, url string, open func(context.Context, string, ...holdfast.ClientOption) (*certmagicStorage,
	*holdfast.Client, error)) *certmagicStorage {
	t.Helper()
	storage, client, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	locktest.ShutDownAtEnd(t, client)
	return storage
}

// files is a FileStorage whose directories vanish with the last file in them.
type files struct{ *certmagic.FileStorage }

func (f files) Delete(ctx context.Context, key string) error {
	if err := f.FileStorage.Delete(ctx, key); err != nil {
		return err
	}
	for dir := path.Dir(path.Clean(key)); ; dir = path.Dir(dir) {
		if err := os.Remove(f.Filename(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) || dir == "." {
			return nil // the directory is not empty
		}
	}
}

// Random calls have the same results with certmagic's own FileStorage. Keys with the extension
// .d are directories, the others are files: what one of them does in the place of the other is
// not defined.
func TestCertmagicStorageAnswersLikeFileStorage(t *testing.T) {
	for name, storage := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, seed := t.Context(), rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			want, got := certmagic.Storage(files{&certmagic.FileStorage{Path: filepath.Join(t.TempDir(), "root")}}), certmagic.Storage(storage(t)())
			for n := range 600 {
				key, value := randomKey(random), make([]byte, random.IntN(100))
				dir := path.Dir(key)
				if dir == "." {
					dir = ""
				}
				var answers [2]string
				op := random.IntN(10)
				for i, s := range []certmagic.Storage{want, got} {
					switch op {
					case 0, 1, 2:
						answers[i] = fmt.Sprint("Store ", key, s.Store(ctx, key, value))
					case 3:
						loaded, err := s.Load(ctx, key)
						answers[i] = fmt.Sprint("Load ", key, string(loaded), errors.Is(err, fs.ErrNotExist), err == nil)
					case 4:
						answers[i] = fmt.Sprint("Delete ", key, s.Delete(ctx, key))
					case 5:
						if random := n % 5; random == 0 {
							answers[i] = fmt.Sprint("Delete ", dir, dir == "" || s.Delete(ctx, dir) == nil)
						}
					case 6:
						answers[i] = fmt.Sprint("Exists ", key, dir, s.Exists(ctx, key), s.Exists(ctx, dir))
					case 7:
						info, err := s.Stat(ctx, key)
						ofDir, dirErr := s.Stat(ctx, dir)
						answers[i] = fmt.Sprint("Stat ", info.Key, info.Size, info.IsTerminal, errors.Is(err, fs.ErrNotExist), err == nil,
							ofDir.Key, ofDir.IsTerminal, errors.Is(dirErr, fs.ErrNotExist), dirErr == nil)
					default:
						listed := []string{dir, key, dir + "/", "/" + dir}[n%4]
						keys, err := s.List(ctx, listed, op == 8)
						answers[i] = fmt.Sprintf("List %q %t: %q %t %t", listed, op == 8, trim(keys), errors.Is(err, fs.ErrNotExist), err == nil)
					}
				}
				if answers[0] != answers[1] {
					t.Fatalf("call %d:\nFileStorage: %s\nthis storage: %s", n, answers[0], answers[1])
				}
			}
		})
	}
}

// trim removes the slash at the beginning of keys: FileStorage repeats that of the path.
func trim(keys []string) []string {
	keys = slices.Clone(keys)
	for i := range keys {
		keys[i] = strings.TrimPrefix(keys[i], "/")
	}
	return keys
}

func randomKey(random *rand.Rand) string {
	var parts []string
	for range random.IntN(3) {
		parts = append(parts, []string{"a.d", "a-.d", "B.d", "wildcard_.example.com.d"}[random.IntN(4)])
	}
	return strings.Join(append(parts, []string{"a.crt", "a.key", "ä.json", "a"}[random.IntN(4)]), "/")
}

// authority is a local ACME server, with a DNS server that knows all names.
type authority struct {
	directory string
	roots     *x509.CertPool
	port      int // where it connects to for an HTTP challenge
	orders    atomic.Int32
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	quiet := log.New(io.Discard, "", 0)
	dns := freeAddress(t)
	names, err := challtestsrv.New(challtestsrv.Config{Log: quiet, DNSAddrs: []string{dns}})
	if err != nil {
		t.Fatal(err)
	}
	names.SetDefaultDNSIPv6("")
	go names.Run()
	t.Cleanup(names.Shutdown)

	a := &authority{roots: x509.NewCertPool()}
	if _, err := fmt.Sscanf(freeAddress(t), "127.0.0.1:%d", &a.port); err != nil {
		t.Fatal(err)
	}
	store := db.NewMemoryStore()
	certificates := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {}})
	front := wfe.New(quiet, store, va.New(quiet, a.port, 0, false, dns, store), certificates, []string{"example.com"}, false, false, 1, 1)
	handler := front.Handler()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answered{ResponseWriter: w}
		handler.ServeHTTP(answer, r)
		if r.URL.Path == "/order-plz" && answer.status == http.StatusCreated { // it refuses some requests on purpose, which are sent again
			a.orders.Add(1)
		}
	}))
	t.Cleanup(server.Close)
	a.directory = server.URL + wfe.DirectoryPath
	a.roots.AddCert(server.Certificate())
	return a
}

// answered notes the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// freeAddress returns an address of this machine that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// instance is one server of a cluster.
func (a *authority) instance(storage certmagic.Storage) (*certmagic.Config, *certmagic.ACMEIssuer) {
	config := newMagic(storage, nil)
	acme := certmagic.NewACMEIssuer(config, certmagic.ACMEIssuer{
		CA: a.directory, TrustedRoots: a.roots, Email: "admin@example.com", Agreed: true, Logger: zap.NewNop(),
		DisableTLSALPNChallenge: true, AltHTTPPort: a.port, ListenHost: "127.0.0.1",
	})
	config.Issuers = []certmagic.Issuer{acme}
	return config, acme
}

// A cluster that shares nothing but the storage obtains a certificate from an ACME server once.
// The server's challenge reaches an instance that did not order the certificate; it finds the
// answer in the storage. All instances then serve the same certificate.
func TestCertmagicStorageCluster(t *testing.T) {
	for name, storage := range storages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, open, authority := t.Context(), storage(t), newAuthority(t)
			_, answering := authority.instance(open())
			challenges := atomic.Int32{}
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", authority.port))
			if err != nil {
				t.Fatal(err)
			}
			handler := answering.HTTPChallengeHandler(http.NotFoundHandler())
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				challenges.Add(1)
				handler.ServeHTTP(w,
					r)
			})}
			go func() { _ = server.Serve(listener) }()
			t.Cleanup(func() { _ = server.Close() })

			var ordering [3]*certmagic.Config
			for i := range ordering {
				ordering[i], _ = authority.instance(open())
			}
			var instances sync.WaitGroup
			for _, config := range ordering {
				instances.Go(func() {
					if err := config.ObtainCertSync(ctx, domain); err != nil {
						t.Error(err)
					}
				})
			}
			instances.Wait()
			if n := authority.orders.Load(); n != 1 || challenges.Load() == 0 {
				t.Errorf("%d orders, %d challenges", n, challenges.Load())
			}
			if err := ordering[1].RenewCertSync(ctx, domain, true); err != nil {
				t.Errorf("renewal: %v", err)
			}
			var serials []string
			for _, config := range ordering {
				certificate, err := config.CacheManagedCertificate(ctx, domain)
				if err != nil {
					t.Fatal(err)
				}
				serials = append(serials, certificate.Leaf.SerialNumber.String())
			}
			if slices.Sort(serials); len(slices.Compact(serials)) != 1 || authority.orders.Load() != 2 {
				t.Errorf("the instances have the certificates %v after %d orders", serials, authority.orders.Load())
			}
			all, err := ordering[0].Storage.List(ctx, "", true)
			if err != nil || slices.ContainsFunc(all, func(key string) bool { return strings.Contains(key, "challenge_tokens/") }) {
				t.Errorf("the storage has %q, %v", all, err)
			}
			if err := certmagic.CleanStorage(ctx, ordering[0].Storage, certmagic.CleanStorageOptions{ExpiredCerts: true, OCSPStaples: true,
				Logger: zap.NewNop()}); err != nil {
				t.Errorf("CleanStorage: %v", err)
			}
		})
	}
}

// certmagicStorageProgram is certmagicProgram with nothing shared but MongoDB.
func certmagicStorageProgram(_ *holdfast.Client, journal journal) error {
	folder := filepath.Dir(journal.path)
	url, err := os.ReadFile(filepath.Join(folder, "url"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	storage, client, err := certmagicmongo.Open[certmagic.KeyInfo](ctx, string(url), holdfast.WithTTL(processTTL))
	if err != nil {
		return err
	}
	if err := obtain(storage, journal); err != nil {
		return err
	}
	return client.Shutdown(ctx)
}

func TestCertmagicStorageKilledProcess(t *testing.T) {
	t.Parallel()
	url := mongoURL(t)
	folder := takesOver(t, "certmagic-storage", func(folder string) error {
		return os.WriteFile(filepath.Join(folder, "url"), []byte(url), 0o600)
	})
	entries := journal{filepath.Join(folder, "journal")}.await(t, 3)
	if last := entries[len(entries)-1]; last.what != "obtained" || len(entries) != 3 {
		t.Errorf("what happened: %v", entries)
	}
	storage := openStorage(t, url, certmagicmongo.Open[certmagic.KeyInfo])
	certificate, err := newMagic(storage, issuer(nil)).CacheManagedCertificate(t.Context(), domain)
	if err != nil || !bytes.Contains([]byte(strings.Join(certificate.Names, " ")), []byte(domain)) {
		t.Errorf("the certificate: %v, %v", certificate.Names, err)
	}
}
