package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// Codes of DynamoDB's errors.
const (
	CodeCondition   = "ConditionalCheckFailedException"
	CodeCanceled    = "TransactionCanceledException"
	CodeTransaction = "TransactionConflictException"
	CodeNoTable     = "ResourceNotFoundException"
	CodeInUse       = "ResourceInUseException" // of a table that is being made
	CodeDenied      = "AccessDeniedException"
	CodeUnknown     = "UnknownOperationException" // of a server that does not know an action
)

// passing are codes of answers with status 400 that do not last. Why a transaction was cancelled is for its caller to judge.
var passing = []string{"ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded",
	"LimitExceededException", "ReplicatedWriteConflictException", "TransactionInProgressException", CodeTransaction, CodeCanceled, CodeInUse}

// ErrNoDynamoDB is the error for an answer of something else.
var ErrNoDynamoDB = errors.New("the answer is not that of DynamoDB: is there another server between this program and AWS?")

// FailedError is the error of a request that DynamoDB has answered with one of its codes.
type FailedError struct {
	error
	Code    string
	Present Item     // with CodeCondition: what is there
	Reasons []string // with CodeCanceled: the code of each action of the transaction, or "None"
}

// Unwrap returns the explanation.
func (e *FailedError) Unwrap() error { return e.error }

// HasCode reports whether DynamoDB has answered with one of some codes.
func HasCode(err error, codes ...string) bool {
	var failed *FailedError
	return errors.As(err, &failed) && slices.Contains(codes, failed.Code)
}

// send makes a request.
func (t *Table) send(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	answer, err := t.Calls.Send(ctx, r)
	return answer, request.UnknownHost(err, t.host, t.Region)
}

// refused is the error for an answer that is not what was asked for, with what helps.
func (t *Table) refused(action string, answer httpstore.Answer) error {
	var f struct {
		Type    string `json:"__type"`
		Message string // or "message"
		Item    Item
		Reasons []struct{ Code string } `json:"CancellationReasons"`
	}
	if json.Unmarshal(answer.Body, &f) != nil || f.Type == "" {
		return fmt.Errorf("%w (HTTP status %d)", ErrNoDynamoDB, answer.Status)
	}
	failed := &FailedError{Code: f.Type[strings.LastIndex(f.Type, "#")+1:], Present: f.Item}
	for _, reason := range f.Reasons {
		failed.Reasons = append(failed.Reasons, reason.Code)
	}
	failed.error = t.explain(action, failed.Code, f.Message, answer)
	return failed
}

// MaxSkew is how far the clocks of this machine and AWS may differ without a remark. AWS refuses requests above 5 minutes.
const MaxSkew = time.Minute

// explain makes the text of an error, and says whether it lasts. It shows no message about the credential: that may have parts of it.
func (t *Table) explain(action, code, message string, answer httpstore.Answer) error {
	lasting := func(format string, args ...any) error { return driver.Denied(fmt.Errorf(format, args...)) }
	switch code {
	case CodeNoTable:
		return lasting("the table %s does not exist in %s (%s): %s", t.Name, t.Region, code, t.Missing)
	case CodeDenied:
		return lasting("the user may not dynamodb:%s on the table %s (%s): %s. Locks need %s", action, t.Name, code,
			httpstore.Brief(message), t.Rights)
	case "UnrecognizedClientException", "InvalidClientTokenId", "MissingAuthenticationTokenException", "MissingAuthenticationToken",
		"IncompleteSignatureException", "IncompleteSignature":
		return lasting("AWS does not accept the credential (%s): aws sts get-caller-identity, with the same environment, shows whose it is",
			code)
	case "ExpiredTokenException", "ExpiredToken":
		if t.Calls.Expired() {
			return fmt.Errorf("the credential has expired (%s): the next request has a new one", code)
		}
		return lasting("the credential has expired (%s): renew it, such as by aws sso login, and start this program again", code)
	case "InvalidSignatureException", "RequestExpired", "RequestTimeTooSkewed":
		if now := answer.Now(); !now.IsZero() && time.Until(now).Abs() > MaxSkew {
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
