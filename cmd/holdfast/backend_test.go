package main

import (
	"strings"
	"testing"
)

func TestDisplayBackend(t *testing.T) {
	for given, want := range map[string]string{
		"file:/var/lib/holdfast":                      "file:/var/lib/holdfast",
		"mongodb://db1,db2:27018/app?replicaSet=rs0":  "mongodb://db1,db2:27018/app",
		"mongodb://joe:sEcReT@db1/app":                "mongodb://db1/app",
		"mongodb://joe:sE@cReT@db1/app?x=1":           "mongodb://db1/app",
		"mongodb://joe:sE?c/ReT@db1/app":              "mongodb://db1/app",
		"mongodb://joe:sE?cReT@db1/app":               "mongodb://db1/app",
		"mongodb://u:p%40x@h1,h2/app?appName=me@here": "mongodb://h1,h2/app",
		"MongoDB+srv://joe:sEcReT@db1/app":            "mongodb+srv://db1/app",
		"azblob://acct/locks/prefix":                  "azblob://acct/locks/prefix",
		"azblob://emulator/locks?endpoint=http://127.0.0.1:10000/devstoreaccount1&client_id=x": "azblob://emulator/locks at http://127.0.0.1:10000/devstoreaccount1",
	} {
		if got := displayBackend(given); got != want {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
	for _, given := range []string{"azblob://acct/locks/AccountKey=sEcReT", "azblob://acct/c?sig=sEcReT", "file:/x/AccountKey=sEcReT", "mongodb://h/app?password=sEcReT"} {
		if got := displayBackend(given); strings.Contains(got, "sEcReT") {
			t.Errorf("%s: %s", given, got)
		}
	}
}
