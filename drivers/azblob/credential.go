package azblob

import (
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/holdfast-go/holdfast/driver"
)

// The environment variables with credentials; the names are those of Azure's own command.
const (
	envConnectionString = "AZURE_STORAGE_CONNECTION_STRING"
	envKey              = "AZURE_STORAGE_KEY"
	envSAS              = "AZURE_STORAGE_SAS_TOKEN"
)

// clients reach the container, and the account for its settings, with one credential.
type clients struct {
	container *container.Client
	account   *service.Client
	sas       url.Values // of a SAS, without its signature; otherwise nil
	tokens    *tokens    // of an identity; otherwise nil
}

// connect creates the clients and returns the kind of their credential. The URL takes precedence
// over the environment, and there the more specific variable.
func (w location) connect(options azcore.ClientOptions) (c clients, kind string, err error) {
	connection, key, sas := os.Getenv(envConnectionString), os.Getenv(envKey), os.Getenv(envSAS)
	switch {
	case w.account == emulator:
		c, err = w.withKey(emulatorAccount, "key of the emulator", emulatorKey, options)
		return c, "the emulator's shared key", err
	case w.clientID != "":
		c, err = w.withManagedIdentity(options)
		return c, "managed identity with the URL's client_id", err
	case connection != "":
		return w.withConnectionString(connection, options)
	case key != "":
		c, err = w.withKey(w.account, envKey, key, options)
		return c, "shared key of " + envKey, err
	case sas != "":
		c, err = w.withSAS(envSAS, sas, options)
		return c, "SAS of " + envSAS, err
	default:
		c, err = w.withDefaultChain(options)
		return c, "azidentity's default chain", err
	}
}

// withConnectionString uses the credential of the connection string and, unless the URL has an
// endpoint, its address. The SDK's own function would use the account of the string, even if
// the URL names another.
func (w location) withConnectionString(connection string, o azcore.ClientOptions) (clients, string, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(connection, ";") {
		if key, value, ok := strings.Cut(strings.TrimSpace(field), "="); ok {
			fields[strings.ToLower(key)] = value
		}
	}
	if strings.EqualFold(fields["usedevelopmentstorage"], "true") { // short for the emulator
		fields["accountname"], fields["accountkey"], fields["blobendpoint"] = emulatorAccount, emulatorKey, emulatorEndpoint
	}
	if account := fields["accountname"]; account != "" && account != w.account {
		return clients{}, "", driver.Invalid(envConnectionString, "of account "+quoteSafe(account), "of the URL's account, "+w.account)
	}
	address := fields["blobendpoint"]
	if suffix := fields["endpointsuffix"]; address == "" && suffix != "" {
		protocol := fields["defaultendpointsprotocol"]
		if protocol == "" {
			protocol = "https"
		}
		address = protocol + "://" + w.account + ".blob." + suffix
	}
	if w.endpoint == "" && address != "" {
		var ok bool
		if w.endpoint, ok = cleanEndpoint(address); !ok {
			return clients{}, "", driver.Invalid(envConnectionString, "with an address that is not shown",
				"one whose BlobEndpoint, or EndpointSuffix, gives an address such as https://ACCOUNT.blob.core.windows.net")
		}
	}
	switch key, sas := fields["accountkey"], fields["sharedaccesssignature"]; {
	case key != "":
		c, err := w.withKey(w.account, envConnectionString, key, o)
		return c, "shared key of " + envConnectionString, err
	case sas != "":
		c, err := w.withSAS(envConnectionString, sas, o)
		return c, "SAS of " + envConnectionString, err
	default:
		return clients{}, "", driver.Invalid(envConnectionString, "not shown", "one with AccountKey or SharedAccessSignature")
	}
}

// withKey uses the account's key that a variable has.
func (w location) withKey(account, variable, key string, options azcore.ClientOptions) (clients, error) {
	credential, err := container.NewSharedKeyCredential(account, key)
	if err != nil {
		return clients{}, driver.Invalid(variable, "with a key that is not shown",
			"one with the account's key as Azure gives it: in base64, without quotes or spaces")
	}
	return both(
		func() (*container.Client, error) {
			return container.NewClientWithSharedKeyCredential(w.containerURL(), credential, &container.ClientOptions{ClientOptions: options})
		},
		func() (*service.Client, error) {
			return service.NewClientWithSharedKeyCredential(w.serviceURL(), credential, &service.ClientOptions{ClientOptions: options})
		})
}

// withSAS uses the SAS that a variable has. One that cannot be a part of an address would fail in each request.
func (w location) withSAS(variable, sas string, options azcore.ClientOptions) (clients, error) {
	sas = strings.TrimPrefix(sas, "?")
	parsed, err := url.ParseQuery(sas)
	notOfSAS := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'#?", r) }
	if err != nil || parsed.Get("sig") == "" || strings.ContainsFunc(sas, notOfSAS) {
		return clients{}, driver.Invalid(variable, "with a SAS that is not shown", "one with a SAS as Azure gives it, such as "+
			"sv=…&sig=…, without an address, quotes or white space (also no newline at its end)")
	}
	c, err := both(
		func() (*container.Client, error) {
			return container.NewClientWithNoCredential(w.containerURL()+"?"+sas, &container.ClientOptions{ClientOptions: options})
		},
		func() (*service.Client, error) {
			return service.NewClientWithNoCredential(w.serviceURL()+"/?"+sas, &service.ClientOptions{ClientOptions: options})
		})
	parsed.Del("sig")
	c.sas = parsed
	return c, err
}

func (w location) withManagedIdentity(options azcore.ClientOptions) (clients, error) {
	credential, err := azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
		ClientOptions: ofLogin(options), ID: azidentity.ClientID(w.clientID)})
	if err != nil {
		return clients{}, err
	}
	return w.withToken(credential, options)
}

func (w location) withDefaultChain(options azcore.ClientOptions) (clients, error) {
	options.Cloud = w.cloud()
	credential, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: ofLogin(options)})
	if err != nil {
		return clients{}, err
	}
	return w.withToken(credential, options)
}

// ofLogin leaves out the program's policies, which may log the requests that they see: those of a login have secrets.
func ofLogin(options azcore.ClientOptions) azcore.ClientOptions {
	options.PerRetryPolicies = nil
	return options
}

func (w location) withToken(credential azcore.TokenCredential, options azcore.ClientOptions) (clients, error) {
	options.Cloud = w.cloud()
	tokens := newTokens(credential)
	options.PerCallPolicies = append(slices.Clone(options.PerCallPolicies), tokens)
	c, err := both(
		func() (*container.Client, error) {
			return container.NewClient(w.containerURL(), tokens, &container.ClientOptions{ClientOptions: options})
		},
		func() (*service.Client, error) {
			return service.NewClient(w.serviceURL(), tokens, &service.ClientOptions{ClientOptions: options})
		})
	c.tokens = tokens
	return c, err
}

func both(ofContainer func() (*container.Client, error), ofAccount func() (*service.Client, error)) (c clients, err error) {
	if c.container, err = ofContainer(); err != nil {
		return clients{}, err
	}
	if c.account, err = ofAccount(); err != nil {
		return clients{}, err
	}
	return c, nil
}

// cloud is the cloud whose identities have access to the endpoint. For other clouds,
// AZURE_AUTHORITY_HOST names the login server, as everywhere in azidentity.
func (w location) cloud() cloud.Configuration {
	switch address := w.serviceURL(); {
	case strings.HasSuffix(address, ".chinacloudapi.cn"):
		return cloud.AzureChina
	case strings.HasSuffix(address, ".usgovcloudapi.net"):
		return cloud.AzureGovernment
	default:
		return cloud.Configuration{}
	}
}
