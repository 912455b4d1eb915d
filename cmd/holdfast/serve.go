package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/format"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/httpserver"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/messages"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/web"
)

type serveCmd struct {
	Listen      string        `default:"127.0.0.1:7070" placeholder:"ADDRESS" help:"Where to listen. Default: 127.0.0.1:7070. Any address but this machine's own needs --token-file or --user-header."`
	Prefix      string        `placeholder:"TEXT" help:"Show only locks whose names begin with this."`
	BasePath    string        `default:"/" placeholder:"PATH" help:"Where the page is, such as /locks/, behind a reverse proxy that does not remove it."`
	TokenFile   string        `type:"existingfile" placeholder:"FILE" help:"A file with a secret of at least 16 characters. Browsers ask for it: any user name, the secret as the password. Scripts send \"Authorization: Bearer SECRET\"."`
	UserHeader  string        `placeholder:"HEADER" help:"A header in which a reverse proxy names the user it has let in, such as X-Forwarded-User. Requests without it are refused. Only the proxy may be able to reach this address: anybody else could send the header."`
	Host        []string      `placeholder:"NAME" help:"Further names, without a port, under which browsers or the reverse proxy reach the page: behind a proxy that keeps the Host header, the name of the site. Requests for other names than this machine's are refused, so that no other site can read the page. Not with --token-file, which needs no such check."`
	AllowBreak  bool          `help:"Let readers break locks. Each break is logged with the reader's address, and the user's name if there is one."`
	LockMetrics int           `default:"1000" placeholder:"N" help:"How many locks have metrics of their own in /metrics: first those that are held, then the others by name. 0: none, only their number by state. Default: 1000."`
	Refresh     time.Duration `default:"500ms" placeholder:"DURATION" help:"How often to list the locks while somebody looks. Default: 500ms. On Azure each listing costs money: 5s is a good value there."`
}

// Help is shown above the flags.
func (*serveCmd) Help() string {
	return `Serves a page that shows all locks, live: who holds them, since when, the time left. It is read-only unless --allow-break is
given. /healthz answers 200 while the process runs, /readyz while the backend answers. /metrics has the locks (how many in each state; of
each one whether it is held, since when, the time left, the waiters and the token) and the metrics of this process for Prometheus, for
those who may read the page. A scrape lists the locks once. SIGTERM ends it with exit code 0, SIGINT with 130 unless the parent
ignores that, as a shell does for a job in the background of a script.

Examples:

    holdfast serve
    holdfast serve --listen :7070 --token-file /etc/holdfast/page-token --allow-break`
}

const minTokenLength = 16

// basePath matches a path that a request for it can have: no "." and ".." in it.
var basePath = regexp.MustCompile(`^/((\.*[A-Za-z0-9_~-][A-Za-z0-9._~-]*)/)*$`)

var (
	// headerName matches the name of a header.
	headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	// hostName matches the name of a host, without a port.
	hostName = regexp.MustCompile(`^[\pL\pN._-]+$`)
)

// Validate is called by the parser.
func (s *serveCmd) Validate() error {
	if !basePath.MatchString(s.BasePath) {
		return fmt.Errorf("--base-path %q is invalid: must begin and end with a slash, with letters, digits, \"-\", \"_\", \".\" and \"~\" "+
			"between slashes", s.BasePath)
	}
	if s.Refresh < minEvery {
		return fmt.Errorf("--refresh: %s is invalid: must be at least %s", driver.FormatDuration(s.Refresh), driver.FormatDuration(minEvery))
	}
	if s.LockMetrics < 0 {
		return fmt.Errorf("--lock-metrics %d is invalid: must be 0 or more", s.LockMetrics)
	}
	loopback, err := checkListen(s.Listen)
	if err != nil {
		return err
	}
	if s.TokenFile != "" && s.UserHeader != "" {
		return errors.New("give either --token-file or --user-header")
	}
	if s.UserHeader != "" && !headerName.MatchString(s.UserHeader) {
		return fmt.Errorf("--user-header %q is invalid: must be the name of a header, such as X-Forwarded-User", s.UserHeader)
	}
	for _, host := range s.Host {
		if !hostName.MatchString(host) && net.ParseIP(host) == nil {
			return fmt.Errorf("--host %q is invalid: must be a name or an address without a port, such as locks.example.com", host)
		}
	}
	if s.TokenFile != "" && len(s.Host) > 0 {
		return errors.New("--host has no effect with --token-file: any name will do for those who have the secret")
	}
	if !loopback && s.TokenFile == "" && s.UserHeader == "" {
		return fmt.Errorf("--listen %s lets other machines read the locks: give --token-file or --user-header, or listen on 127.0.0.1", s.Listen)
	}
	return nil
}

// checkListen checks the flag --listen, and reports whether only this machine can reach the address.
func checkListen(address string) (loopback bool, err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("--listen %q is invalid: must be an address with a port, such as 127.0.0.1:7070", address)
	}
	return httpserver.IsLoopback(host), nil
}

const (
	// serveConnections is how many connections the page may have.
	serveConnections = 512
	serveStopTimeout = 5 * time.Second
)

// Run serves the page until a signal comes.
func (s *serveCmd) Run(a *app) error {
	guard, err := s.guard(a.log)
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	measured, err := newMetrics()
	if err != nil {
		return err
	}
	open := a.openToLook
	if s.AllowBreak {
		open = a.openToTake
	}
	return a.follow(open, func(ctx context.Context, client *holdfast.Client) error {
		if err := s.checkPrefix(client.Info().Limits); err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		options := web.Options{Prefix: s.Prefix, Backend: backends.Display(a.backend), Refresh: s.Refresh,
			Logger: slog.New(slog.NewTextHandler(a.stderr, nil))}
		if s.AllowBreak {
			options.MayBreak = func(*http.Request) bool { return true } // the guard has let the reader in
			options.User = s.user()
		}
		asking, stopAsking := context.WithCancel(context.WithoutCancel(ctx)) // what is being answered at a signal still has its time
		locks := httpserver.NewLockMetrics(asking, client, s.Prefix, s.LockMetrics)
		measured.more = locks.Families
		ready := &httpserver.Readiness{Context: asking, Inspect: func(ctx context.Context) error {
			_, err := client.Inspect(ctx, s.Prefix+readinessName)
			return err
		}}
		defer func() { // before the client's shutdown
			stopAsking()
			locks.Wait()
			ready.Wait()
		}()
		page, err := web.New(client, options)
		if err != nil {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
		if err != nil {
			page.Close()
			return exitcode.With(exitcode.Usage, err)
		}
		if err := a.askFirst(ctx, client); err != nil {
			page.Close()
			return errors.Join(err, listener.Close())
		}
		server := httpserver.New(s.routes(guard, ready, page, measured), serveConnections)
		a.log.Infof("the locks on %s are at http://%s%s", backends.Display(a.backend), listener.Addr(), s.BasePath)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(listener) }()
		select {
		case err = <-ended: // a failure
		case <-ctx.Done():
			page.Close() // ends the live connections
			stop, cancel := context.WithTimeout(context.Background(), serveStopTimeout)
			defer cancel()
			return errors.Join(server.Shutdown(stop), httpserver.NotClosed(<-ended))
		}
		page.Close()
		return err
	}, holdfast.WithHook(measured.hook))
}

// readinessName is the name that /readyz inspects, after the prefix.
const readinessName = "holdfast/readiness"

// checkPrefix checks the flag --prefix: no backend answers about a name that it does not allow.
func (s *serveCmd) checkPrefix(limits driver.Limits) error {
	if driver.ValidateName(s.Prefix+readinessName, limits) == nil {
		return nil
	}
	rule := "valid UTF-8"
	if limits.MaxName > 0 {
		rule += fmt.Sprintf(" of at most %d bytes on this backend", limits.MaxName-len(readinessName))
	}
	return fmt.Errorf("--prefix of %d bytes is invalid: must be %s", len(s.Prefix), rule)
}

// routes returns what is served where. The probes need no login, and tell nothing.
func (s *serveCmd) routes(guard func(http.Handler) http.Handler, ready *httpserver.Readiness, page, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(s.BasePath, guard(http.StripPrefix(strings.TrimSuffix(s.BasePath, "/"), page)))
	mux.Handle("GET /metrics", guard(metrics))
	mux.HandleFunc("GET /healthz", httpserver.Healthy)
	mux.HandleFunc("GET /readyz", ready.Answer)
	return mux
}

// user returns what names the reader in the log, or nil: the user whom the proxy has let in, or the
// name given with the secret, which anybody with the secret can choose.
func (s *serveCmd) user() func(*http.Request) string {
	switch {
	case s.UserHeader != "":
		return func(r *http.Request) string { return r.Header.Get(s.UserHeader) }
	case s.TokenFile != "":
		return func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name }
	default:
		return nil
	}
}

// guard lets in who may read.
func (s *serveCmd) guard(log *messages.Log) (func(http.Handler) http.Handler, error) {
	if s.TokenFile != "" {
		return secretGuard(s.TokenFile, log)
	}
	return func(next http.Handler) http.Handler {
		if s.UserHeader != "" {
			next = httpserver.RequireUser(s.UserHeader, next)
		}
		return httpserver.RequireOwnHost(s.Host, next)
	}, nil
}

// secretGuard lets in who sends the secret in a file.
func secretGuard(file string, log *messages.Log) (func(http.Handler) http.Handler, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	secret := strings.TrimSpace(string(content))
	if len(secret) < minTokenLength {
		return nil, fmt.Errorf("--token-file %s is invalid: must hold at least %d characters", format.Text(file), minTokenLength)
	}
	if readableByAll(file) {
		log.Infof("every user of this machine can read --token-file %s: \"chmod 600\" limits it to its owner", format.Text(file))
	}
	return func(next http.Handler) http.Handler { return httpserver.RequireSecret(secret, next) }, nil
}

// readableByAll reports whether every user can read a file. On Windows a file's mode does not say that.
func readableByAll(file string) bool {
	info, err := os.Stat(file)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
}
