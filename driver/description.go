package driver

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Description is what a driver says about itself, once, with [Register]. Everything that has to do with all
// backends reads it: Open, the command with its help, completion and messages, what is hidden as a secret,
// benchmarks, and the tests of the documentation. Only Name, Schemes, Examples and Open are required.
//
// [Drivers] and [Describe] return descriptions. The slices in them must not be changed.
type Description struct {
	// Name is what people call the backend, such as "MongoDB". Tables of the documentation have it, or one of
	// the schemes, in their headings.
	Name string
	// Schemes are the URL schemes in lower case. The first one is the main one: reports use it for the kind of
	// the backend.
	Schemes []string
	// Examples are URLs to copy from, for help texts. The first one shows the usual form. What the user
	// replaces is in capitals.
	Examples []Example
	// Reach says which processes can share a lock. The zero value is all machines that reach the backend.
	Reach Reach

	// Open makes a Locker.
	Open Opener
	// OpenForReading, if set, does what [OpenForReading] describes. It is for a driver whose Open changes
	// something on the backend, or needs a right to do so.
	OpenForReading Opener
	// OpenForCheck, if set, does what [OpenForCheck] describes. It is for a driver whose Open changes something
	// on the backend, or refuses a backend for a reason that its [Checker] reports.
	OpenForCheck Opener
	// OpenCounted, if set, makes a Locker that calls sent for each request to the server, from any goroutine,
	// and logs nothing. Without it, benchmarks count the calls of the Locker instead.
	OpenCounted func(ctx context.Context, rawURL string, sent func()) (Locker, error)
	// Apart, if set, returns the URL of an empty store in the same place: of another collection, table, prefix or folder, whose name
	// is, or ends with, name. It has lower-case letters, digits and "_". Apart itself makes nothing there; the first user of the URL does.
	// remove removes the store, whatever is in it, once no Locker uses it. "holdfast certify" examines a backend in it.
	Apart func(rawURL, name string) (apart string, remove func(context.Context) error)
	// WriteGuarded, if set, writes a value under the driver's guard or fence, as a holder does that has not noticed the end of its lease,
	// into the store that l uses, which Apart has returned. It returns the value before: all of them are under the name of the lock. The
	// error matches [ErrLost] if a later holder exists, and [errors.ErrUnsupported] if this server has no guards.
	WriteGuarded func(ctx context.Context, l Locker, lease Lease, value string) (before string, err error)
	// Requests is the plural noun for what OpenCounted counts, such as "commands". It is set with OpenCounted
	// only.
	Requests string

	// Params are the URL parameters of the driver. Those that the backend's SDK reads need not be listed.
	Params []string
	// Secrets are names that a secret follows, in any case of letters: those of URL parameters, also of the
	// SDK's, and those of a connection string that a user may put in a wrong place. A "=" stands between the
	// name and the secret, or, if the name ends with one, a ":". Messages are cut off there. Every element of
	// Params that is named like a secret must be here as well.
	Secrets []string
	// Credentials are environment variables that the driver or its SDK reads. A command that runs under a
	// lock does not inherit them.
	Credentials []Credentials
	// Place, if set, shortens what follows the scheme and its ":" in a URL to where the locks are, for
	// messages. Without it, that is the URL without user, password and parameters.
	Place func(rest string) string

	// TestURL says how a test opens the backend. It is a URL, in which DIR stands for an empty folder of the
	// test, also where it is but a name: each test has locks of its own. If a server is needed, it is "$" and
	// the environment variable with the URL of one, such as "$HOLDFAST_TEST_MONGODB_URI"; tests may start a
	// server if that is not set.
	TestURL string
}

// Example is a URL with a short explanation.
type Example struct{ URL, Help string }

// Credentials are environment variables that hold the credentials of a backend. What alone is no secret,
// such as the ID of a key, is one of them if it is useless without the others.
type Credentials struct {
	Variables []string
	// Reads reports whether the driver reads the variables with a URL of its schemes. With any other URL they
	// belong to somebody else, and commands inherit them. Nil means that they belong to this backend always,
	// whatever the URL is.
	Reads func(rawURL string) bool
	// When says in words what Reads does, such as "with authMechanism=MONGODB-AWS". It is set with Reads only.
	When string
}

// Reach says which processes see the same locks. No program checks it: with a wider one than the truth, two processes hold one lock.
// A test of this repository checks it with two processes, for the drivers of its module.
type Reach uint8

const (
	// ReachMachines means all machines that reach the backend.
	ReachMachines Reach = iota
	// ReachMachine means the processes of one machine.
	ReachMachine
	// ReachProcess means one process: no other one sees its locks. The command refuses such a backend, and does not name it.
	ReachProcess
)

// Drivers returns the descriptions of all registered drivers: those with the widest reach first, and among
// these in the order of their first schemes.
func Drivers() []Description {
	registry.RLock()
	defer registry.RUnlock()
	all := slices.Clone(registry.drivers)
	slices.SortFunc(all, func(a, b Description) int {
		if a.Reach != b.Reach {
			return int(a.Reach) - int(b.Reach)
		}
		return strings.Compare(a.Schemes[0], b.Schemes[0])
	})
	return all
}

// Describe returns the description of the driver that opens a URL. known is false if no driver with the
// URL's scheme is registered.
func Describe(rawURL string) (d Description, known bool) {
	scheme, _, found := strings.Cut(rawURL, ":")
	if !found {
		return Description{}, false
	}
	registry.RLock()
	defer registry.RUnlock()
	at := slices.IndexFunc(registry.drivers, func(d Description) bool { return slices.Contains(d.Schemes, strings.ToLower(scheme)) })
	if at < 0 {
		return Description{}, false
	}
	return registry.drivers[at], true
}

// check returns an *[InvalidError] that names the first field that is wrong.
func (d *Description) check() error {
	switch {
	case !isText(d.Name):
		return Invalid("Name", Quote(d.Name), "a printable text, such as MongoDB")
	case len(d.Schemes) == 0:
		return Invalid("Schemes", "without a scheme", "one URL scheme at least")
	case len(d.Examples) == 0:
		return Invalid("Examples", "without a URL", "one example at least")
	case d.Open == nil:
		return Invalid("Open", "nil", "a function")
	case d.Reach > ReachProcess:
		return Invalid("Reach", strconv.Itoa(int(d.Reach)), "ReachMachines, ReachMachine or ReachProcess")
	case (d.OpenCounted == nil) != (d.Requests == ""):
		return Invalid("Requests", Quote(d.Requests), "set together with OpenCounted, to what it counts")
	case d.Requests != "" && !isText(d.Requests):
		return Invalid("Requests", Quote(d.Requests), "a printable noun such as commands")
	}
	for i, s := range d.Schemes {
		if !isScheme(s) || s != strings.ToLower(s) {
			return Invalid("Schemes", Quote(s), "URL schemes in lower case")
		}
		if slices.Contains(d.Schemes[:i], s) {
			return Invalid("Schemes", Quote(s), "without repeats")
		}
	}
	for _, e := range d.Examples {
		if u, err := url.Parse(e.URL); err != nil {
			return Invalid("Examples", Quote(e.URL), "URLs that can be parsed")
		} else if !slices.Contains(d.Schemes, u.Scheme) {
			return Invalid("Examples", Quote(e.URL), "URLs with a scheme of this driver: "+strings.Join(d.Schemes, ", "))
		}
		if !isText(e.URL) || !isText(e.Help) {
			return Invalid("Examples", Quote(e.URL), "printable, with an explanation")
		}
	}
	return d.checkSecrets()
}

func (d *Description) checkSecrets() error {
	for _, s := range d.Secrets {
		if !isName(strings.TrimSuffix(s, ":")) {
			return Invalid("Secrets", Quote(s), "names of letters, digits, dashes, dots and underscores, with a colon at the end or without")
		}
	}
	for _, p := range d.Params {
		if !isName(p) {
			return Invalid("Params", Quote(p), "names of letters, digits, dashes, dots and underscores")
		}
		if looksSecret(p) && !slices.ContainsFunc(d.Secrets, func(s string) bool { return strings.EqualFold(s, p) }) {
			return Invalid("Params", Quote(p), "in Secrets as well, since it is named like a secret")
		}
	}
	for _, c := range d.Credentials {
		if len(c.Variables) == 0 || !isName(strings.Join(c.Variables, "_")) || slices.Contains(c.Variables, "") {
			return Invalid("Credentials", Quote(strings.Join(c.Variables, ", ")), "names of environment variables")
		}
		if (c.Reads == nil) != (c.When == "") {
			return Invalid("Credentials", Quote(strings.Join(c.Variables, ", ")), "with Reads and When, or without both")
		}
	}
	return nil
}

// secretWords are the words in the names of parameters that hold a secret.
var secretWords = []string{"key", "password", "passwd", "pwd", "token", "sig", "signature", "secret", "credential", "credentials"}

// looksSecret reports whether a parameter is named like a secret: one of its words is, or it ends with one.
// The name of a file is no secret, whatever is in the file.
func looksSecret(name string) bool {
	words := strings.FieldsFunc(name, func(c rune) bool { return c == '_' || c == '-' || c == '.' })
	var all []string
	for _, w := range words { // a capital after a lower-case letter begins a word
		start := 0
		for i := 1; i < len(w); i++ {
			if unicode.IsUpper(rune(w[i])) && !unicode.IsUpper(rune(w[i-1])) {
				all, start = append(all, strings.ToLower(w[start:i])), i
			}
		}
		all = append(all, strings.ToLower(w[start:]))
	}
	if last := all[len(all)-1]; last == "file" || last == "path" {
		return false
	}
	return slices.ContainsFunc(secretWords, func(s string) bool {
		return slices.Contains(all, s) || strings.HasSuffix(strings.ToLower(name), s)
	})
}

func isText(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) })
}

// isName reports whether s has ASCII letters, digits, "-", "." and "_" only, a letter or digit among them.
func isName(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c != '-' && c != '.' && c != '_' }) &&
		!strings.ContainsFunc(s, func(c rune) bool {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			return !letter && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
		})
}
