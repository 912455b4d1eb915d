package s3

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/httpstore"
	"github.com/holdfast-go/holdfast/drivers/aws/internal/request"
)

// failure is what the store says of a request that it has refused.
type failure struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
	Region  string
}

func failureOf(answer httpstore.Answer) (f failure) {
	if xml.Unmarshal(answer.Body, &f) != nil {
		return failure{}
	}
	return f
}

// hasNoObject reports whether there is a bucket, and no object in it with the key. Stores answer 404 for other reasons, too.
func hasNoObject(answer httpstore.Answer) bool {
	return answer.Missing() && failureOf(answer).Code == "NoSuchKey"
}

// send makes a request.
func (s *store) send(ctx context.Context, r httpstore.Request) (httpstore.Answer, error) {
	answer, err := s.calls.Send(ctx, r)
	return answer, request.UnknownHost(err, s.host, s.region)
}

// rights are what locks need, and on what.
const rights = "s3:GetObject and s3:PutObject on the objects, s3:ListBucket on the bucket"

// refused is the error for an answer that is not what was asked for, with what helps. It shows no message about the credential: stores
// repeat parts of it there.
func (s *store) refused(answer httpstore.Answer) error {
	f := failureOf(answer)
	err := answer.Failed(strings.TrimSpace(f.Code + " " + f.Message))
	lasting := func(format string, args ...any) error {
		return driver.Denied(fmt.Errorf(format+" ("+http.StatusText(answer.Status)+")", args...))
	}
	if region := regionOf(answer, f); region != s.region && request.CheckRegion("", region) == nil {
		return lasting("the bucket %s is in the region %s, not in %s: correct the region", s.bucket, region, s.region)
	}
	switch f.Code {
	case "": // a proxy may have answered in place of the store, which may have done what was asked
		return fmt.Errorf("%s, without a code of S3: is there another server between this program and the store?", driver.ErrorText(err))
	case "NoSuchBucket":
		return lasting("the bucket %[1]s does not exist: correct its name, or run: aws s3 mb s3://%[1]s --region %[2]s", s.bucket, s.region)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId", "AuthorizationHeaderMalformed":
		return lasting("the store does not accept the credential (%s): aws sts get-caller-identity, with the same environment, shows whose "+
			"it is", f.Code)
	case "ExpiredToken", "TokenRefreshRequired":
		if s.calls.Expired() {
			return fmt.Errorf("the credential has expired (%s): the next request has a new one", f.Code)
		}
		return lasting("the credential has expired (%s): renew it, such as by aws sso login, and start this program again", f.Code)
	case "RequestTimeTooSkewed":
		if answer.Now().IsZero() {
			return lasting("the clock of this machine and that of the store differ: synchronize this machine's by NTP")
		}
		return lasting("the clock of this machine and that of the store differ by %s: synchronize this machine's by NTP",
			driver.FormatDuration(time.Until(answer.Now()).Abs().Round(time.Second)))
	case "AccessDenied":
		return fmt.Errorf("%w; locks need %s. Without s3:ListBucket S3 also answers so for an object that does not exist", err, rights)
	case "InvalidObjectState":
		return lasting("the object was moved to an archive, by a lifecycle rule perhaps: restore it, and exclude locks from the rule")
	case "NotImplemented":
		return lasting("the store does not know conditional writes: %s", httpstore.Brief(f.Message))
	case "RequestTimeout", "IncompleteBody", "ThrottlingException", "KMS.ThrottlingException": // 400, but it passes
		return errors.New(driver.ErrorText(err))
	}
	return err
}

// regionOf is the region of the bucket, if the store says that the request has come to another one.
func regionOf(answer httpstore.Answer, f failure) string {
	switch {
	case answer.Status/100 == 3:
		return answer.Header.Get("X-Amz-Bucket-Region")
	case f.Code == "AuthorizationHeaderMalformed":
		return f.Region
	}
	return ""
}

func connectError(err error) error { return &driver.OpError{Op: "connect", Backend: backend, Err: err} }
