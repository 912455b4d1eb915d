package etcd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/driverutil"
	"github.com/holdfast-go/holdfast/driver/httpstore"
)

var (
	// errNoEtcd is the error for an answer of something else.
	errNoEtcd = errors.New("the answer is not that of etcd: is there another server, or a proxy, at this address?")
	// errToken says that the login has ended, or that there was none. Nothing was done.
	errToken = errors.New("the cluster demands a login: put the user and the password into the URL")
	// errChanged says that the cluster's users or roles have changed since the request came. Nothing was done.
	errChanged = errors.New("the cluster's users or roles were changed at this moment")
	// errOtherCluster refuses a member of another cluster than that of the locks.
	errOtherCluster = errors.New("it is a member of another cluster")
)

// elsewhereError is the error of a request that the member has certainly not done, and that another one may do.
type elsewhereError struct{ error }

func (e *elsewhereError) Unwrap() error { return e.error }

// unknownError is the error of a request that the member may have done.
type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }

// refusals are the messages of etcd about requests of which it has certainly done nothing, and what helps. Where a proxy may have such a
// message, too, the status is etcd's.
var refusals = []struct {
	message string
	status  int
	remedy  string
}{
	{"permission denied", statusPermissionDenied, "grant the user a role with the permission readwrite for the prefix of the keys: " +
		"etcdctl role grant-permission ROLE readwrite PREFIX/ --prefix=true"},
	{"authentication failed", statusInvalidArgument, "correct the user or the password in the URL"},
	{"request is too large", 0, "store less data with the lock, or raise --max-request-bytes of the members"},
	{"received message larger than max", 0, "store less data with the lock, or raise --max-request-bytes of the members"},
	{"too many operations in txn request", 0, "raise --max-txn-ops of the members"},
	{"corrupt cluster", 0, "the cluster has an alarm because its members differ: etcdctl alarm list"},
}

// noSpace is the message of a member whose database has reached its quota. With the alarm it has done nothing. But the write that reaches
// the quota is done, and refused all the same.
const noSpace = "database space exceeded"

var errNoSpace = errors.New(noSpace + ": the cluster takes no writes until somebody has compacted it and disarmed the alarm: " +
	"etcdctl compact, etcdctl defrag, etcdctl alarm disarm; set --auto-compaction-retention")

// elsewhere are the messages of members that have done nothing, and of which another one may do the request.
var elsewhere = []string{"etcdserver: no leader", "rpc not supported for learner", "etcdserver: not capable"}

// tokenRefusals are the messages about a login that has ended. Nothing was done.
var tokenRefusals = []string{"invalid auth token", "user name is empty"}

// changed is the message about users or roles that were changed meanwhile. Nothing was done.
const changed = "revision of auth store is old"

// classify makes the error of a call that has failed, by the message and, where that is none of those above, by the status.
func classify(status int, message string) error {
	text := httpstore.Brief(message)
	has := func(message string) bool { return strings.Contains(text, message) }
	for _, message := range tokenRefusals {
		if has(message) {
			return errToken
		}
	}
	if has(changed) {
		return errChanged
	}
	for _, message := range elsewhere {
		if has(message) {
			return &elsewhereError{errors.New(text)}
		}
	}
	for _, r := range refusals {
		if has(r.message) && (r.status == 0 || r.status == status) {
			return driver.Denied(fmt.Errorf("%s: %s", text, r.remedy))
		}
	}
	switch {
	case has(noSpace):
		return errNoSpace
	case status == statusUnimplemented && !has("unknown service") && !has("unknown method"): // that of a proxy without a route, which passes
		return &elsewhereError{fmt.Errorf("%w (gRPC status %d: %s)", errNoEtcd, status, text)}
	case status == statusUnimplemented:
		return &elsewhereError{driver.Denied(fmt.Errorf("the member does not know the call (%s): etcd must be 3.4 or later", text))}
	case text == "": // that of a proxy says nothing of what etcd has done
		return &unknownError{fmt.Errorf("%w (gRPC status %d)", errNoEtcd, status)}
	}
	switch status {
	case statusInvalidArgument, statusNotFound, statusPermissionDenied, statusResourceExhausted, statusFailedPrecondition, statusOutOfRange,
		statusUnauthenticated:
		return errors.New(text)
	}
	return &unknownError{errors.New(text)} // such as a time limit of its own, or a leader that was lost
}

// allFailed is the error of a request that no member has done: one that lasts only if each of them does.
func allFailed(errs []error) error {
	var texts []string
	lasting := true
	for _, err := range errs {
		texts = append(texts, driver.ErrorText(err))
		lasting = lasting && driver.Lasting(err)
	}
	err := errors.New(strings.Join(texts, "; "))
	if lasting {
		return driver.Denied(err)
	}
	return err
}

func connectError(err error) error { return driverutil.OpError("connect", backend, "", err) }
