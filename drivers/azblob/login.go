package azblob

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// A credential that has given no token: none is there or the login refuses it, or the login has failed and may be repeated.
var (
	errNoCredential = errors.New("no credential for Azure was found that works: set " + envConnectionString + ", " + envKey + " or " +
		envSAS + ", run \"az login\", or give this machine a managed identity or workload identity")
	errRefused     = fmt.Errorf("%w", errNoCredential) // by the login: no repetition changes that
	errLoginFailed = errors.New("the login of the credential for Azure failed")
	errLoginGoesOn = fmt.Errorf("%w: it has not ended yet, and goes on", errLoginFailed)
)

// refusals are the answers with which a login refuses a credential.
var refusals = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden}

// withoutLogin replaces an error of azidentity, which lists in dozens of lines all that was tried. The texts differ between
// azidentity's versions, so the error is known by its type. A machine outside of Azure can have a service at the address of managed
// identities that refuses the request.
func withoutLogin(err error) error {
	failed := ofIdentity(err)
	if failed == nil {
		return err
	}
	cause := errNoCredential
	var login *azidentity.AuthenticationFailedError
	if errors.As(failed, &login) {
		cause = errLoginFailed
		if login.RawResponse != nil && slices.Contains(refusals, login.RawResponse.StatusCode) {
			cause = errRefused
		}
	}
	if detail := loginDetail(failed.Error(), errors.Is(cause, errLoginFailed)); detail != "" {
		return fmt.Errorf("%w (%s)", cause, detail)
	}
	return cause
}

// isMissing reports whether an error that withoutLogin has returned is that of a credential that is not there, at least now.
func isMissing(err error) bool { return errors.Is(err, errNoCredential) && !errors.Is(err, errRefused) }

// ofIdentity returns the first error of a type of azidentity. Some of these types are not exported.
func ofIdentity(err error) error {
	for ; err != nil; err = errors.Unwrap(err) {
		of := reflect.TypeOf(err)
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.PkgPath() == reflect.TypeFor[azidentity.AuthenticationFailedError]().PkgPath() {
			return err
		}
	}
	return nil
}

// refusedCredential finds the credentials of a chain that were refused, and Microsoft Entra's code of the reason.
var refusedCredential = regexp.MustCompile(`\w+Credential authentication failed|AADSTS\d+`)

// loginDetail returns what else is worth knowing: of a chain the credentials that were refused, or the one whose login has failed, the
// last that was tried. Of the others there is nothing to know: they are not there.
func loginDetail(text string, failed bool) string {
	found := slices.DeleteFunc(refusedCredential.FindAllString(text, -1), func(one string) bool {
		return strings.HasPrefix(one, "DefaultAzureCredential ") // the chain itself
	})
	if len(found) > 0 {
		return strings.Join(slices.Compact(found), ", ")
	}
	const longest = 200
	text, tried, chain := strings.Cut(text, "\nAttempted credentials:")
	if chain {
		if !failed {
			return ""
		}
		text = strings.TrimSpace(tried[strings.LastIndex("\n"+tried, "\n\t"):])
	}
	return fmt.Sprintf("%.*s", longest, strings.Join(strings.Fields(text), " "))
}
