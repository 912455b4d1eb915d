package main

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

// secretPattern matches text that may hold a password, from its beginning: the user
// information of a URL, the key of a connection string, or an option such as proxyPassword
// or a session token.
var secretPattern = regexp.MustCompile(`(?is)(://[^@]*@|\b(accountkey|sharedaccesskey|sharedaccesssignature|sig|\w*password|\w*pwd)=|aws_session_token(:|%3a)).*`)

// redact cuts off the part of a message that may hold a secret. A message repeats an
// argument, and a user may have put a backend's URL in the wrong place.
func redact(message string) string {
	return secretPattern.ReplaceAllString(message, "… (the rest may hold a password and is not shown)")
}

var errSecretInName = errors.New("the lock's name looks like a URL with a password, or like a connection string: the backend is set with --backend or in HOLDFAST_BACKEND")

// checkName refuses a name that seems to hold a secret: names are shown and stored.
func checkName(name string) error {
	if secretPattern.MatchString(name) {
		return errSecretInName
	}
	return nil
}

// credentialVariables hold secrets for Azure Blob Storage. The driver reads the first three,
// the default credential chain of Azure's SDK the others.
var credentialVariables = []string{
	"AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN",
	"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD",
}

// isCredential reports whether an environment variable holds a credential of the backend.
// The command that runs under the lock does not need it.
func isCredential(key, value string) bool {
	key = strings.ToUpper(key) // on Windows the case of a variable's name does not matter
	return slices.Contains(credentialVariables, key) || key == envBackend && secretPattern.MatchString(value)
}
