package mongo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/description"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
)

// unreachableError: no primary could be found. The Go driver's own error lists everything that
// it knows; this one begins with the cause.
type unreachableError struct {
	cause string
	err   error
}

func (e *unreachableError) Error() string { return "no primary reachable" + e.cause }
func (e *unreachableError) Unwrap() error { return e.err }

// unreachable describes a failed server selection; it returns nil for other errors. The
// package topology is public but may change, so nothing else of it is used.
func unreachable(err error) error {
	var selection topology.ServerSelectionError
	if !errors.As(err, &selection) {
		return nil
	}
	all := selection.Desc.Servers
	reasons, counts := []string{}, map[string]int{}
	advice := topologyAdvice(selection.Desc)
	for _, server := range all {
		reason, remedy := serverProblem(server)
		if remedy != "" {
			advice = "; " + remedy
		}
		if counts[reason]++; counts[reason] == 1 {
			reasons = append(reasons, reason)
		}
	}
	cause := ""
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d of %d members %s", counts[reason], len(all), reason)
		if len(all) == 1 {
			reasons[i] = all[0].Addr.String() + " " + reason
		}
	}
	if len(reasons) > 0 {
		cause = " (" + strings.Join(reasons, ", ") + ")"
	}
	return &unreachableError{cause + advice, err}
}

// serverProblem says in a few words why a member is not the primary and, if the cause is known, what to do.
func serverProblem(server description.Server) (problem, remedy string) {
	var noHost *net.DNSError
	err := server.LastError
	switch {
	case err == nil && server.Kind == description.Unknown:
		return "did not answer", ""
	case err == nil:
		return "answered as " + server.Kind.String(), ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused the connection", ""
	case errors.As(err, &noHost) && noHost.IsNotFound:
		return "failed: unknown host name", ""
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "did not answer in time", ""
	}
	if problem, remedy = tlsProblem(err); problem != "" {
		return problem, remedy
	}
	return "failed: " + err.Error(), ""
}

// tlsProblem recognizes that one side uses TLS and the other does not, and a certificate that is not accepted.
func tlsProblem(err error) (problem, remedy string) {
	var (
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
		record   tls.RecordHeaderError
	)
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	switch {
	case errors.As(err, &unknown):
		return "has a certificate of an unknown authority", "name the authority's certificate with tlsCAFile=FILE"
	case errors.As(err, &hostname):
		return "has a certificate for another host", "use a host name that is in the certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "has a certificate that has expired or is not valid yet", "renew it, or correct this machine's clock"
	case closed, errors.As(err, &record): // which side uses TLS, the Go driver's error does not say
		return "closed the connection without an answer",
			"the server may require TLS (tls=true) or a client's certificate (tlsCertificateKeyFile=FILE), or use no TLS (tls=false)"
	}
	return "", ""
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// topologyAdvice says what to check.
func topologyAdvice(found description.Topology) string {
	switch {
	case found.SetName != "":
		return "; check the hosts and replicaSet=" + found.SetName
	case len(found.Servers) == 1 && found.Servers[0].Kind == description.ServerKindRSGhost:
		return "; the replica set is not initiated"
	default:
		return "; check the hosts"
	}
}
