//go:build unix

package main

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/drivers/postgres"
	"github.com/holdfast-go/holdfast/test/mongotest"
	"github.com/holdfast-go/holdfast/test/postgrestest"
	"github.com/holdfast-go/holdfast/test/serverprocess"
)

// runDenied runs the scripts of a folder about a backend that refuses requests. refused is what the errors say.
func runDenied(t *testing.T, scripts, backend, refused string) {
	t.Helper()
	u, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	password, ok := u.User.Password()
	if !ok {
		t.Fatal("the URL has no password")
	}
	runScripts(t, filepath.Join("testdata", scripts), backend, "PASSWORD="+password, "REFUSED="+refused)
}

func TestDeniedOnMongoDB(t *testing.T) {
	rs := mongotest.StartReplicaSet(t, mongotest.Options{Members: 1, Auth: true})
	const user, password = "nobody", "password-of-nobody"
	if err := mongotest.Connect(t, rs.URI()).Database("admin").RunCommand(t.Context(), struct {
		CreateUser string   `bson:"createUser"`
		Pwd        string   `bson:"pwd"`
		Roles      []string `bson:"roles"`
	}{user, password, []string{}}).Err(); err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(rs.URI(), mongotest.AdminUser+":"+mongotest.AdminPassword, user+":"+password, 1)
	runDenied(t, "denied", strings.Replace(at, "/?", "/holdfast_denied?authSource=admin&", 1), "lacks a privilege")
}

func TestDeniedOnPostgreSQL(t *testing.T) {
	at := postgrestest.URL(t)
	postgrestest.SQL(t, at, postgres.Schema, `REVOKE ALL ON holdfast_locks FROM CURRENT_USER`) // also an owner then has no rights
	runDenied(t, "denied", at, "lacks a right|permission denied")
}

func TestReadOnlyOnPostgreSQL(t *testing.T) {
	at := postgrestest.URL(t)
	postgrestest.SQL(t, at, postgres.Schema)
	runDenied(t, "readonly", serverprocess.WithParams(at, "options=-c%20default_transaction_read_only%3Don"), "read-only transaction")
}
