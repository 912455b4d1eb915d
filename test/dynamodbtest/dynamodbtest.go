// Package dynamodbtest is a server in the test's process that speaks DynamoDB's protocol, as far as locks need it: items with one key,
// conditions that compare, transactions, scans and batches in parts, and tables that can be made. Package awstest has the rest.
package dynamodbtest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/test/awstest"
)

// EnvURL is the variable with the URL of a table to test against, such as dynamodb://TABLE?endpoint=http://127.0.0.1:8000. Each test
// then has a prefix of its own. The credentials are those of the environment.
const EnvURL = "HOLDFAST_TEST_DYNAMODB_URL"

// What exists, and what is accepted.
const (
	Table        = "locks"
	Region       = awstest.Region
	KeyID        = awstest.KeyID
	Secret       = awstest.Secret
	SessionToken = awstest.SessionToken
)

// Request is one that came.
type Request = awstest.Request

// Fault is what becomes of a request.
type Fault = awstest.Fault

// Attribute is a value of an item.
type Attribute struct {
	S    *string `json:"S,omitempty"`
	N    *string `json:"N,omitempty"`
	B    *string `json:"B,omitempty"` // in base64
	BOOL *bool   `json:"BOOL,omitempty"`
}

// Item is an item. Its key are those of the attributes "name", "key" and "sort" that it has. Tables of locks have the first one; those of
// other libraries have the second one, and perhaps the third.
type Item map[string]Attribute

func (i Item) key() string {
	var parts []string
	for _, name := range []string{"name", "key", "sort"} {
		if a := i[name]; a.S != nil {
			parts = append(parts, *a.S)
		}
	}
	return strings.Join(parts, " ")
}

// Text is the attribute of a text.
func Text(s string) Attribute { return Attribute{S: &s} }

// Server is a server with one table at first.
type Server struct {
	*awstest.Server
	tables map[string]map[string]any // what DescribeTable answers
	items  map[string]Item           // of all tables, by table and key
	ttl    map[string]any
	weak   int // reads that were not strongly consistent
}

const contentType = "application/x-amz-json-1.0"

// unsigned answers a request that has not what was signed.
var unsigned = awstest.Error{Status: http.StatusBadRequest, Code: "InvalidSignatureException",
	Message: "Credential should be scoped to a valid region: "}

// Start starts a server, which the test stops at its end.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tables: map[string]map[string]any{Table: Description()}, items: map[string]Item{},
		ttl: map[string]any{"TimeToLiveStatus": "DISABLED"}}
	s.Server = awstest.Start(tb, awstest.Service{
		Name: "dynamodb", ContentType: contentType, Read: s.read, Fail: fail,
		WrongKey: awstest.Error{Status: http.StatusBadRequest, Code: "UnrecognizedClientException",
			Message: "The security token is invalid: "},
		WrongRegion: unsigned, WrongBody: unsigned,
		Denied: awstest.Error{Status: http.StatusBadRequest, Code: "AccessDeniedException",
			Message: "User: arn:aws:iam::1:user/app is not authorized to perform: dynamodb:"},
	})
	return s
}

// Description is what DescribeTable answers for a table of locks.
func Description() map[string]any {
	return map[string]any{"TableStatus": "ACTIVE", "BillingModeSummary": map[string]any{"BillingMode": "PAY_PER_REQUEST"},
		"KeySchema":             []any{map[string]any{"AttributeName": "name", "KeyType": "HASH"}},
		"AttributeDefinitions":  []any{map[string]any{"AttributeName": "name", "AttributeType": "S"}},
		"ProvisionedThroughput": map[string]any{"ReadCapacityUnits": 0, "WriteCapacityUnits": 0}}
}

// URL starts a server, unless [EnvURL] has the URL of one, and returns the URL of a part of it that only the test uses. The first call
// sets the credentials in the environment of the process.
func URL(tb testing.TB) string {
	tb.Helper()
	return awstest.URL(tb, EnvURL, func() string { return Start(tb).URL() })
}

// URL is one for the driver. Its credentials are [KeyID] and [Secret].
func (s *Server) URL() string {
	return "dynamodb://" + Table + "?region=" + Region + "&endpoint=" + s.Endpoint()
}

// SetTable sets what DescribeTable answers for a table, or with nil removes it.
func (s *Server) SetTable(name string, description map[string]any) {
	s.Locked(func() {
		if delete(s.tables, name); description != nil {
			s.tables[name] = description
		}
	})
}

// TableNamed returns what DescribeTable answers for a table, or nil.
func (s *Server) TableNamed(name string) (t map[string]any) {
	s.Locked(func() { t = s.tables[name] })
	return t
}

// SetTTL sets what DynamoDB answers about the time to live: whether it deletes items, and by which attribute.
func (s *Server) SetTTL(status, attribute string) {
	s.Locked(func() {
		s.ttl = map[string]any{"TimeToLiveStatus": status}
		if attribute != "" {
			s.ttl["AttributeName"] = attribute
		}
	})
}

// Item returns an item of [Table], or nil.
func (s *Server) Item(key string) Item { return s.ItemOf(Table, key) }

// ItemOf returns an item of a table, or nil.
func (s *Server) ItemOf(table, key string) (i Item) {
	s.Locked(func() { i = maps.Clone(s.items[table+" "+key]) })
	return i
}

// SetItem writes an item of [Table], or with nil deletes it, as a person may.
func (s *Server) SetItem(key string, i Item) { s.SetItemOf(Table, key, i) }

// SetItemOf is SetItem for a table.
func (s *Server) SetItemOf(table, key string, i Item) {
	s.Locked(func() {
		if delete(s.items, table+" "+key); i != nil {
			s.items[table+" "+key] = i
		}
	})
}

// Keys lists the keys of [Table].
func (s *Server) Keys() (keys []string) {
	s.Locked(func() {
		for _, key := range slices.Sorted(maps.Keys(s.items)) {
			if key, ours := strings.CutPrefix(key, Table+" "); ours {
				keys = append(keys, key)
			}
		}
	})
	return keys
}

// WeakReads counts the reads of items that were not strongly consistent.
func (s *Server) WeakReads() (n int) {
	s.Locked(func() { n = s.weak })
	return n
}

// read is [awstest.Service].Read.
func (s *Server) read(r *http.Request, body []byte) awstest.Call {
	target, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in input
	malformed := json.Unmarshal(body, &in) != nil || target != "DynamoDB_20120810" || r.Header.Get("Content-Type") != contentType
	if in.isWeak(action) {
		s.weak++
	}
	return awstest.Call{
		Request: Request{Action: action, Key: in.about()},
		About: func(key string) bool {
			return action == "Scan" && strings.HasPrefix(key, in.about()) || in.asksFor(key)
		},
		Do: func(w http.ResponseWriter) {
			switch signature := r.Header.Get("Authorization"); {
			case !strings.Contains(signature, "x-amz-target"):
				fail(w, unsigned.Status, unsigned.Code, unsigned.Message+signature)
			case malformed:
				fail(w, http.StatusBadRequest, "SerializationException", "")
			default:
				s.answer(w, action, in)
			}
		},
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	answer(w, map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + code, "message": message})
}

func answer(w io.Writer, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintf(w, "%s", text)
}
