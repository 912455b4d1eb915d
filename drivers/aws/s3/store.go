package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/driver/cas"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// store is a [cas.Store] of the objects of a bucket whose keys begin with a prefix.
type store struct {
	calls  *request.Client
	at     string // the URL of the bucket
	bucket string
	region string
	host   string // of AWS, or empty
	prefix string // empty, or with a slash at its end
}

// object is the URL of a key's object.
func (s *store) object(key string) string {
	return s.at + (&url.URL{Path: "/" + s.prefix + key}).EscapedPath()
}

// errNoObject is the error for an answer of something that is no S3.
var errNoObject = errors.New("the answer is not that of an object store: is there another server between this program and the store?")

// Get implements [cas.Store].
func (s *store) Get(ctx context.Context, key string) (cas.Value, error) {
	asked := s.calls.Clocks.Elapsed()
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodGet, URL: s.object(key)})
	switch {
	case err != nil:
		return cas.Value{}, err
	case hasNoObject(answer):
		s.calls.Clocks.NoteStamps(key, "", nil, answer.Now(), asked)
		return cas.Value{Now: answer.Now()}, nil
	case !answer.Done():
		return cas.Value{}, s.refused(answer)
	}
	v := cas.Value{Data: answer.Body, Version: answer.Header.Get("ETag"), Now: answer.Now()}
	if v.Version == "" {
		return cas.Value{}, errNoObject
	}
	written, err := http.ParseTime(answer.Header.Get("Last-Modified"))
	var stamps []time.Time
	if err == nil {
		stamps = []time.Time{written}
	}
	s.calls.Clocks.NoteStamps(key, v.Version, stamps, v.Now, asked)
	v.Unsure = httpstore.Ahead(written, v.Now) || s.calls.Clocks.Disagree()
	return v, nil
}

// Put implements [cas.Store]. S3 answers 409 if another write of the key is under way, which may be done or not: the value is read again.
func (s *store) Put(ctx context.Context, key string, data []byte, version string) (cas.Written, error) {
	r := httpstore.Request{Method: http.MethodPut, URL: s.object(key), Body: data, Header: http.Header{"Content-Type": {"application/json"}}}
	if version == "" {
		r.Header.Set("If-None-Match", "*")
	} else {
		r.Header.Set("If-Match", version)
	}
	answer, err := s.send(ctx, r)
	switch {
	case err != nil:
		return cas.Written{}, err
	case answer.Status == http.StatusPreconditionFailed, answer.Status == http.StatusConflict, version != "" && hasNoObject(answer):
		return cas.Written{}, cas.ErrConflict
	case !answer.Done():
		return cas.Written{}, s.refused(answer)
	}
	w := cas.Written{Version: answer.Header.Get("ETag"), Now: answer.Now()}
	if w.Version == "" {
		return cas.Written{}, errNoObject
	}
	return w, nil
}

// pageSize is how many keys a page of a list has.
const pageSize = 1000

// List implements [cas.Store]. What lies in deeper folders belongs to others.
func (s *store) List(ctx context.Context, prefix, page string) (items []cas.Item, next string, err error) {
	query := url.Values{"list-type": {"2"}, "prefix": {s.prefix + prefix}, "delimiter": {"/"}, "max-keys": {strconv.Itoa(pageSize)}}
	if page != "" {
		query.Set("continuation-token", page)
	}
	answer, err := s.send(ctx, httpstore.Request{Method: http.MethodGet, URL: s.at + "/?" + encode(query)})
	if err != nil {
		return nil, "", err
	}
	if !answer.Done() {
		return nil, "", s.refused(answer)
	}
	var found struct {
		XMLName  xml.Name `xml:"ListBucketResult"`
		Contents []struct{ Key string }
		Next     string `xml:"NextContinuationToken"`
		More     bool   `xml:"IsTruncated"`
	}
	if err := xml.Unmarshal(readable(answer.Body), &found); err != nil || found.More && found.Next == "" {
		return nil, "", errNoObject
	}
	if strings.Contains(found.Next, unreadable) { // some stores continue after a key
		return nil, "", errors.New("a key of another program, with a control character, ends a page of the list: remove its object, or keep " +
			"the locks under another prefix")
	}
	for _, c := range found.Contents {
		if key, ours := strings.CutPrefix(c.Key, s.prefix); ours && key != "" && !strings.Contains(key, unreadable) {
			items = append(items, cas.Item{Key: key})
		}
	}
	if !found.More {
		found.Next = ""
	}
	return items, found.Next, nil
}

// unreadable is in place of what XML cannot have. No key of a lock has it.
const unreadable = "\uFFFD"

var reference = regexp.MustCompile(`&#(x?)([0-9A-Fa-f]+);`)

// readable replaces the characters that XML cannot have. Keys may have them, and stores send them all the same. Stores differ in the
// parameter encoding-type, and Holdfast's own keys look as if they were encoded.
func readable(list []byte) []byte {
	list = bytes.Map(func(r rune) rune {
		if inXML(r) {
			return r
		}
		return utf8.RuneError
	}, list)
	return reference.ReplaceAllFunc(list, func(found []byte) []byte {
		parts, base := reference.FindSubmatch(found), 10
		if len(parts[1]) > 0 {
			base = 16
		}
		if code, err := strconv.ParseInt(string(parts[2]), base, 32); err == nil && inXML(rune(code)) {
			return found
		}
		return []byte(unreadable)
	})
}

func inXML(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= 0xD7FF || r >= 0xE000 && r <= 0xFFFD || r >= 0x10000 && r <= utf8.MaxRune
}

// encode encodes a query as the signature demands it: a space is %20.
func encode(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }
