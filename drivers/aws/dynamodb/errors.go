package dynamodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// Codes of DynamoDB's errors.
const (
	codeCondition   = "ConditionalCheckFailedException"
	codeCanceled    = "TransactionCanceledException"
	codeTransaction = "TransactionConflictException"
	codeNoTable     = "ResourceNotFoundException"
	codeInUse       = "ResourceInUseException" // of a table that is being made
	codeDenied      = "AccessDeniedException"
	codeUnknown     = "UnknownOperationException" // of a server that does not know an action
)

// passing are codes of answers with status 400 that do not last.
var passing = []string{"ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded",
	"LimitExceededException", "ReplicatedWriteConflictException", "TransactionInProgressException", codeTransaction, codeInUse}

// errNoDynamoDB is the error for an answer of something else.
var errNoDynamoDB = errors.New("the answer is not that of DynamoDB: is there another server between this program and AWS?")

// failedError is the error of a request that DynamoDB has answered with one of its codes.
type failedError struct {
	error
	code    string
	present item     // with codeCondition: what is there
	reasons []string // with codeCanceled: the code of each action of the transaction, or "None"
}

func (e *failedError) Unwrap() error { return e.error }

func hasCode(err error, codes ...string) bool {
	var failed *failedError
	return errors.As(err, &failed) && slices.Contains(codes, failed.code)
}

// send makes a request.
func (s *store) send(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	answer, err := s.calls.Send(ctx, r)
	var unknown *net.DNSError
	if s.host != "" && errors.As(err, &unknown) && unknown.IsNotFound {
		return answer, fmt.Errorf("there is no host %s: is %s a region of AWS? Regions outside amazonaws.com need the parameter %s",
			s.host, driver.Quote(s.region), request.ParamEndpoint)
	}
	return answer, err
}

// rights are what locks need on the table.
const rights = "dynamodb:GetItem, dynamodb:PutItem, dynamodb:BatchGetItem, dynamodb:Scan and dynamodb:DescribeTable"

// refused is the error for an answer that is not what was asked for, with what helps.
func (s *store) refused(action string, answer httpstore.Answer) error {
	var f struct {
		Type    string `json:"__type"`
		Message string // or "message"
		Item    item
		Reasons []struct{ Code string } `json:"CancellationReasons"`
	}
	if json.Unmarshal(answer.Body, &f) != nil || f.Type == "" {
		return fmt.Errorf("%w (HTTP status %d)", errNoDynamoDB, answer.Status)
	}
	failed := &failedError{code: f.Type[strings.LastIndex(f.Type, "#")+1:], present: f.Item}
	for _, reason := range f.Reasons {
		failed.reasons = append(failed.reasons, reason.Code)
	}
	failed.error = s.explain(action, failed.code, f.Message, answer)
	return failed
}

// explain makes the text of an error, and says whether it lasts. It shows no message about the credential: that may have parts of it.
func (s *store) explain(action, code, message string, answer httpstore.Answer) error {
	lasting := func(format string, args ...any) error { return driver.Denied(fmt.Errorf(format, args...)) }
	switch code {
	case codeNoTable:
		return lasting("the table %s does not exist in %s (%s): correct its name or the region, or make it: %s", s.table, s.region, code,
			s.createCommand())
	case codeDenied:
		return lasting("the user may not dynamodb:%s on the table %s (%s): %s. Locks need %s", action, s.table, code,
			httpstore.Brief(message), rights)
	case "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationTokenException", "MissingAuthenticationToken",
		"IncompleteSignatureException", "IncompleteSignature":
		return lasting("AWS does not accept the credential (%s): aws sts get-caller-identity, with the same environment, shows whose it is",
			code)
	case "ExpiredTokenException", "ExpiredToken":
		if s.calls.Expired() {
			return fmt.Errorf("the credential has expired (%s): the next request has a new one", code)
		}
		return lasting("the credential has expired (%s): renew it, such as by aws sso login", code)
	case "InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed":
		if now := answer.Now(); !now.IsZero() && time.Until(now).Abs() > maxSkew {
			return lasting("the clock of this machine and that of AWS differ by %s: synchronize this machine's by NTP",
				driver.FormatDuration(time.Until(now).Abs().Round(time.Second)))
		}
		return lasting("AWS does not accept the signature (%s): the secret key or the region is wrong", code)
	}
	text := fmt.Sprintf("%s: %s", code, httpstore.Brief(message))
	switch {
	case strings.Contains(message, "Item size"):
		return lasting("%s: store less data with the lock, or keep a shorter history", text)
	case answer.Lasting() && !slices.Contains(passing, code):
		return lasting("%s", text)
	}
	return errors.New(text) // it passes; of a write with status 500 nobody knows whether it was done
}

func connectError(err error) error {
	if err == nil {
		return nil
	}
	return &driver.OpError{Op: "connect", Backend: backend, Err: err}
}
