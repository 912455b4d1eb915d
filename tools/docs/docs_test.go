// Package docs checks the pages: their Go code compiles, and what they name and link to exists.
package docs

import (
	"errors"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// adapters is the module with the libraries that docs/adapters.md is about.
const adapters = root + "/adapters/integration"

// drivers are the folders of this module's drivers.
var drivers = func() (all []string) {
	found, _ := filepath.Glob(root + "/drivers/*/conformance_test.go") // an error means that the pattern is malformed
	for _, path := range found {
		folder := filepath.Dir(path)
		if _, err := os.Stat(folder + "/go.mod"); err != nil {
			all = append(all, filepath.Base(folder))
		}
	}
	return all
}()

// prelude declares what the code on the pages uses without declaring it.
var prelude = `package page

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/drivers/` + strings.Join(drivers, "\"\n\t\"github.com/holdfast-go/holdfast/drivers/") + `"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/leases"
	"github.com/holdfast-go/holdfast/lockertest"
	"github.com/holdfast-go/holdfast/migrating"
	"github.com/holdfast-go/holdfast/migrating/mongolock"
	"github.com/holdfast-go/holdfast/partitions"
	"github.com/holdfast-go/holdfast/readiness"
	"github.com/holdfast-go/holdfast/web"
)

var (
	ctx             context.Context
	token           uint64
	client          *holdfast.Client
	hold            *holdfast.Hold
	runner          *holdfast.LeaderAwareRunner
	opts            []holdfast.Option
	runnerOpts      []holdfast.RunnerOption
	name, prefix    string
	names           []string
	fn, migrate     func(ctx context.Context) error
	task            func(ctx context.Context) error
	serve           func(ctx context.Context, tenant string) error
	serveAsLeader   func(w http.ResponseWriter, req *http.Request, token uint64)
	tenantsOf       func(partition int) []string
	update          func(old []byte) ([]byte, error)
	work            func(ctx context.Context, partition int) error
	bill            func(ctx context.Context, token uint64) error
	open            func(t *testing.T) driver.Locker
	entry, text     []byte
	ledger          interface{ Append(ctx context.Context, token uint64, entry []byte) error }
	db              *mongodb.Database
	session         *mongodb.Session
	accounts        *mongodb.Collection
	filter, change  bson.D
	containerClient *container.Client
	t               *testing.T
	report          *blockblob.Client
	billInvoices    func(ctx context.Context, client *holdfast.Client,
		write func(ctx context.Context, token uint64, invoice string) error) error
	newStore        func() interface {
		Write(ctx context.Context, token uint64, invoice string) error
		Invoices() []string
	}
)
`

// postgres is the module of the driver for PostgreSQL, and postgresPrelude the prelude of the blocks that use it.
const (
	postgres        = root + "/drivers/postgres"
	postgresPrelude = `package page

import (
	"context"
	"database/sql"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/drivers/postgres/advisory"
	"github.com/holdfast-go/holdfast/migrating"
)

var (
	ctx  context.Context
	hold *holdfast.Hold
	pool *pgxpool.Pool
	db   *sql.DB

	client *holdfast.Client
)
`
)

// redis is the module of the driver for Redis, and redisPrelude the prelude of the blocks that use it.
const (
	redis        = root + "/drivers/redis"
	redisPrelude = `package page

import (
	"context"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/redis"
)

var (
	ctx context.Context
	rdb *goredis.Client

	client *holdfast.Client
)
`
)

// mysql is the module of the driver for MySQL, and mysqlPrelude the prelude of the blocks that use it.
const (
	mysql        = root + "/drivers/mysql"
	mysqlPrelude = `package page

import (
	"context"
	"database/sql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivers/mysql"
	"github.com/holdfast-go/holdfast/drivers/mysql/oldlocks"
	"github.com/holdfast-go/holdfast/migrating"
)

var (
	ctx    context.Context
	db     *sql.DB
	hold   *holdfast.Hold
	locker driver.Locker

	client *holdfast.Client
)
`
)

// nats is the module of the driver for NATS, and natsPrelude the prelude of the blocks that use it.
const (
	nats        = root + "/drivers/nats"
	natsPrelude = `package page

import (
	"context"

	natsgo "github.com/nats-io/nats.go"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/drivers/nats"
)

var (
	ctx  context.Context
	conn *natsgo.Conn

	client *holdfast.Client
)
`
)

// adaptersPrelude is the prelude of docs/adapters.md.
const adaptersPrelude = `package page

import (
	"context"
	"database/sql"
	"io/fs"
	"log"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite3"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/google/uuid"
	"github.com/pressly/goose/v3"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	"github.com/holdfast-go/holdfast/adapters/cronlock"
	"github.com/holdfast-go/holdfast/adapters/gocronlock"
	"github.com/holdfast-go/holdfast/adapters/gooselock"
	"github.com/holdfast-go/holdfast/adapters/migratelock"
	"github.com/holdfast-go/holdfast/adapters/redsync"
)

var (
	ctx    context.Context
	client *holdfast.Client
	report func(ctx context.Context) error
	jobs   *cronlock.Jobs
	c      *cron.Cron
	job    cron.Job
	logger cron.Logger
	db     *sql.DB
	files  fs.FS

	migrations source.Driver
)
`

var (
	goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	block   = regexp.MustCompile("(?ms)^```.*?^```$")
	imports = regexp.MustCompile(`(?ms)\Aimport (?:"[^\n]*\n|\(\n.*?^\)\n)`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	// apiName matches names such as mongo.New and WithTTL in a page's text.
	apiName = regexp.MustCompile("\\b(holdfast|driver|" + strings.Join(drivers, "|") + "|postgres|redis|mysql|nats|" +
		"holdfasttest|leases|lockertest|migrating|" +
		"mongolock|partitions|readiness)\\.([A-Z]\\w+)|`((?:With|Err|New)[A-Z]\\w*)")
	// named matches files and folders of this repository, in a page's text.
	named = regexp.MustCompile(`\b((?:internal|engine|docs|drivers|driver|test|tools|leases|partitions)/` +
		`[\w./*-]*\w(?:/|\b)|promise\d\d_\w+\.go)`)
)

// pages returns the Markdown files of the repository with their texts.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", ".github/*.md", "docs/*.md", "docs/*/*.md", "test/*/*.md", "integration/*.md",
		"holdfastcontainers/*.md", "examples/*.md", "examples/*/*.md", "examples/*/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no page matches %s (%v)", pattern, err)
		}
		for _, path := range found {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(filepath.ToSlash(path), root+"/")] = string(text)
		}
	}
	return texts
}

// Every block of Go on a page has the types of today's API. A block may leave variables unused
// and declare one twice, as lists of calls do.
func TestGoBlocksCompile(t *testing.T) {
	fset := token.NewFileSet()
	load, loadAdapters := exportedAPI(t, fset, root, prelude), types.Importer(nil)
	if !testing.Short() {
		loadAdapters = exportedAPI(t, fset, adapters, adaptersPrelude)
	}
	loadPostgres, loadRedis := exportedAPI(t, fset, postgres, postgresPrelude), exportedAPI(t, fset, redis, redisPrelude)
	loadMySQL, loadNATS := exportedAPI(t, fset, mysql, mysqlPrelude), exportedAPI(t, fset, nats, natsPrelude)
	blocks := 0
	for page, text := range pages(t) {
		load, prelude := load, prelude
		if page == "docs/adapters.md" {
			if testing.Short() {
				continue // it compiles the libraries that the adapters are for, most of a minute: "make verify" does
			}
			load, prelude = loadAdapters, adaptersPrelude
		}
		if strings.HasPrefix(page, "integration/") || strings.HasPrefix(page, "holdfastcontainers/") {
			continue // other modules
		}
		for _, m := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			blocks++
			if strings.Contains(text[m[2]:m[3]], "kuberneteslock.") {
				continue // its libraries are large; a test of adapters/kuberneteslock has the same code
			}
			load, prelude := load, prelude
			if strings.Contains(text[m[2]:m[3]], "postgres.") {
				load, prelude = loadPostgres, postgresPrelude
			}
			if strings.Contains(text[m[2]:m[3]], "mysql.New") || strings.Contains(text[m[2]:m[3]], "oldlocks.") {
				load, prelude = loadMySQL, mysqlPrelude
			}
			if strings.Contains(text[m[2]:m[3]], "nats.New(") {
				load, prelude = loadNATS, natsPrelude
			}
			if strings.Contains(text[m[2]:m[3]], "redis.New(") && page == "docs/redis.md" {
				load, prelude = loadRedis, redisPrelude
			}
			code, at := text[m[2]:m[3]], page+":"+strconv.Itoa(1+strings.Count(text[:m[2]], "\n"))
			if strings.HasPrefix(code, "package ") { // a whole program
				if formatted, err := format.Source([]byte(code)); err == nil && string(formatted) != code {
					t.Errorf("%s: the program is not formatted by gofmt", at)
				}
				checkTypes(t, load, fset, "//line "+at+"\n"+code)
				continue
			}
			if own := imports.FindString(code); own != "" {
				checkImports(t, load, at, own)
				code = strings.Repeat("\n", strings.Count(own, "\n")) + code[len(own):]
			}
			if !strings.Contains("\n"+code, "\nfunc ") {
				code = "func _() error {\n//line " + at + "\n" + code + "\npanic(0)\n}\n"
			} else {
				code = "//line " + at + "\n" + code
			}
			checkTypes(t, load, fset, prelude+code)
		}
	}
	if blocks < 15 {
		t.Errorf("only %d blocks were found", blocks)
	}
}

// checkTypes checks one file of Go.
func checkTypes(t *testing.T, load types.Importer, fset *token.FileSet, code string) {
	t.Helper()
	file, err := parser.ParseFile(fset, "", code, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return
	}
	report := func(err error) {
		if e, ok := err.(types.Error); !ok || !e.Soft { //nolint:errorlint // go/types reports this type itself
			t.Error(err)
		}
	}
	config := types.Config{Importer: load, Error: report}
	_, _ = config.Check("page", fset, []*ast.File{file}, nil) // report has the errors
}

// Every name of the API on a page exists. The changelog also has the names of earlier builds.
func TestNamesExist(t *testing.T) {
	load := exportedAPI(t, token.NewFileSet(), root, prelude)
	var scopes []*types.Package
	names := []string{"", "driver", "driver/cas", "holdfasttest", "leases", "lockertest", "migrating", "migrating/mongolock", "partitions",
		"readiness", "web"}
	for _, d := range drivers {
		names = append(names, "drivers/"+d)
	}
	for _, name := range names {
		pkg, err := load.Import(strings.TrimSuffix("github.com/holdfast-go/holdfast/"+name, "/"))
		if err != nil {
			t.Fatal(err)
		}
		scopes = append(scopes, pkg)
	}
	for path, preludeOf := range map[string]string{postgres: postgresPrelude, redis: redisPrelude, mysql: mysqlPrelude, nats: natsPrelude} {
		pkg, err := exportedAPI(t, token.NewFileSet(), path, preludeOf).Import("github.com/holdfast-go/holdfast" + strings.TrimPrefix(path, root))
		if err != nil {
			t.Fatal(err)
		}
		scopes = append(scopes, pkg)
	}
	exists := func(pkg, name string) bool {
		return slices.ContainsFunc(scopes, func(p *types.Package) bool {
			return (pkg == "" || pkg == p.Name()) && p.Scope().Lookup(name) != nil
		})
	}
	for page, text := range pages(t) {
		if page == "CHANGELOG.md" || strings.HasPrefix(page, "holdfastcontainers/") {
			continue // earlier builds; another module
		}
		for _, m := range apiName.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			if !exists(m[1], m[2]) && !exists("", m[3]) {
				t.Errorf("%s names %s, which does not exist", page, strings.Trim(m[0], "`"))
			}
		}
	}
}

// checkImports checks an import declaration: each package must exist.
func checkImports(t *testing.T, load types.Importer, at, text string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), at, "package page\n"+text, parser.ImportsOnly)
	if err != nil {
		t.Error(err)
		return
	}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load.Import(path); err != nil {
			t.Errorf("%s: import %q: %v", at, path, err)
		}
	}
}

// exportedAPI returns an importer of the packages that a prelude imports, as the module in dir requires
// them, from the build cache.
func exportedAPI(t *testing.T, fset *token.FileSet, dir, prelude string) types.Importer {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", prelude, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list -export in %s: %v", dir, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("not a package that the prelude imports")
		}
		return os.Open(exports[path])
	})
}
