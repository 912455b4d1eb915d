package main

import (
	"fmt"
	"testing"
)

func TestParse(t *testing.T) {
	for expression, want := range map[string]string{
		"rs.status().ok": `{"replSetGetStatus":{"$numberInt":"1"}} ok`,
		"rs.initiate({ _id: 'rs', members: [ { _id: 0, host: '10.0.0.2:27017', priority: 0.5, hidden: true } ] })": `{` +
			`"replSetInitiate":{"_id":"rs","members":[{"_id":{"$numberInt":"0"},"host":"10.0.0.2:27017",` +
			`"priority":{"$numberDouble":"0.5"},"hidden":true}]}} `,
		"db.adminCommand('ping').ok;":    `{"ping":{"$numberInt":"1"}} ok`,
		`db.adminCommand({ "ping": 1 })`: `{"ping":{"$numberInt":"1"}} `,
		"db.hello().isWritablePrimary":   `{"hello":{"$numberInt":"1"}} isWritablePrimary`,
	} {
		command, field, err := parse(expression)
		if got := fmt.Sprint(command, " ", field); err != nil || got != want {
			t.Errorf("%s: %s, %v", expression, got, err)
		}
	}
	for _, bad := range []string{"", "rs.status", "rs.remove('x')", "rs.initiate({ _id: 'rs)", "while(true) {}"} {
		if command, _, err := parse(bad); err == nil {
			t.Errorf("%q was parsed as %v", bad, command)
		}
	}
}
