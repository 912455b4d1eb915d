package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver/httpstore"
)

// A call of gRPC is a POST over HTTP/2. Its body and that of the answer are frames of one message each, and the answer ends with trailers,
// which have the status. An answer of which the first frame is missing may have the status in its header.

// statusOK is that of a call that was done.
const statusOK = 0

// The statuses by which etcd says that it has done nothing.
const (
	statusInvalidArgument    = 3
	statusNotFound           = 5
	statusPermissionDenied   = 7
	statusResourceExhausted  = 8
	statusFailedPrecondition = 9
	statusOutOfRange         = 11
	statusUnimplemented      = 12
	statusUnauthenticated    = 16
)

const contentType = "application/grpc"

// frameHeader is how long the beginning of a frame is: a byte that says whether the message is compressed, and four with its length.
const frameHeader = 5

// request is a call at a member. Its header has the member refuse what it cannot do without a leader, instead of waiting for one.
func (s *store) request(m *member, method string, sent message, token string) httpstore.Request {
	h := http.Header{"Content-Type": {contentType}, "Te": {"trailers"}, "Hasleader": {"true"}}
	if token != "" {
		h.Set("Token", token)
	}
	body := sent.append(make([]byte, frameHeader))
	binary.BigEndian.PutUint32(body[1:], uint32(len(body)-frameHeader))
	return httpstore.Request{Method: http.MethodPost, URL: m.url + method, Header: h, Body: body}
}

// readFrame reads the message of the next frame. The error is io.EOF if there is none.
func readFrame(from io.Reader) ([]byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if head[0] != 0 || size > maxAnswer {
		return nil, errNoEtcd // nobody has asked for compression
	}
	var message bytes.Buffer
	if _, err := io.CopyN(&message, from, size); errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	} else if err != nil {
		return nil, err
	}
	return message.Bytes(), nil
}

// messageOf is the only message of an answer.
func messageOf(a httpstore.Answer) ([]byte, error) {
	if err := isCall(a.Status, a.Header); err != nil {
		return nil, err
	}
	if err := ended(a.Header, a.Trailer); err != nil {
		return nil, err
	}
	body := bytes.NewReader(a.Body)
	message, err := readFrame(body)
	if err != nil || body.Len() > 0 {
		return nil, &unknownError{errNoEtcd}
	}
	return message, nil
}

// isCall is the error of an answer that is none of gRPC, such as that of a proxy. It says nothing of what etcd has done.
func isCall(status int, header http.Header) error {
	switch {
	case status != http.StatusOK:
		return &unknownError{fmt.Errorf("%w (HTTP status %d)", errNoEtcd, status)}
	case !strings.HasPrefix(header.Get("Content-Type"), contentType):
		return &unknownError{errNoEtcd}
	}
	return nil
}

// ended is the error of a call whose answer has come as a whole.
func ended(header, trailer http.Header) error {
	if trailer.Get("Grpc-Status") == "" {
		trailer = header
	}
	status, err := strconv.Atoi(trailer.Get("Grpc-Status"))
	if err != nil {
		return &unknownError{errNoEtcd}
	}
	if status == statusOK {
		return nil
	}
	message := trailer.Get("Grpc-Message")
	if text, err := url.PathUnescape(message); err == nil {
		message = text
	}
	return classify(status, message)
}
