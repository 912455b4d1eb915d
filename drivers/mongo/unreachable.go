package mongo

import (
	"context"
	"errors"
	"fmt"
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
	for _, server := range all {
		reason := serverProblem(server)
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
	return &unreachableError{cause + topologyAdvice(selection.Desc), err}
}

// serverProblem says in a few words why a member is not the primary.
func serverProblem(server description.Server) string {
	var noHost *net.DNSError
	err := server.LastError
	switch {
	case err == nil && server.Kind == description.Unknown:
		return "did not answer"
	case err == nil:
		return "answered as " + server.Kind.String()
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused the connection"
	case errors.As(err, &noHost) && noHost.IsNotFound:
		return "failed: unknown host name"
	case errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "did not answer in time"
	}
	return "failed: " + err.Error()
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
