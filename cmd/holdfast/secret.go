package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// secret is where in an argument something begins that may hold a password: the user
// information of a URL, the key of a connection string, or an option such as
// proxyPassword or a session token.
var secret = regexp.MustCompile(`(?is)(://[^@]*@|\b(accountkey|sharedaccesskey|sharedaccesssignature|sig|\w*password|\w*pwd)=|aws_session_token(:|%3a)).*`)

// withoutSecret cuts a message short that repeats an argument, should that hold a
// secret: somebody has put a backend's URL where none belongs.
func withoutSecret(message string) string {
	return secret.ReplaceAllString(message, "… (the rest may hold a password and is not shown)")
}

var errSecretName = errors.New("what was given as a lock's name looks like a URL with a password, or a connection string: the backend is given with --backend or in HOLDFAST_BACKEND")

// checkName refuses a name that would be shown, and stored, with a secret in it.
func checkName(name string) error {
	if secret.MatchString(name) {
		return errSecretName
	}
	return nil
}

// credentials are the variables that hold a secret for Azure Blob Storage: the driver reads
// the first three, the default chain of Azure's SDK the others.
var credentials = []string{
	"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
	"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD",
}

// isSecret reports whether a variable of the environment holds a credential of the
// backend, which the command that runs under the lock does not need.
func isSecret(key, value string) bool {
	key = strings.ToUpper(key) // Windows does not tell them apart
	return slices.Contains(credentials, key) || key == envBackend && secret.MatchString(value)
}
