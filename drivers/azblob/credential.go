package azblob

import (
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/holdfast-go/holdfast/driver"
)

// The environment variables with credentials; the names are those of Azure's own command.
const (
	envConnectionString = "AZURE_STORAGE_CONNECTION_STRING"
	envKey              = "AZURE_STORAGE_KEY"
	envSAS              = "AZURE_STORAGE_SAS_TOKEN"
)

// connect creates the client and returns the kind of its credential. The URL takes precedence
// over the environment, and there the more specific variable.
func (w location) connect(options azcore.ClientOptions) (client *container.Client, kind string, err error) {
	o := &container.ClientOptions{ClientOptions: options}
	connection, key, sas := os.Getenv(envConnectionString), os.Getenv(envKey), os.Getenv(envSAS)
	switch {
	case w.account == emulator:
		client, err = w.withKey(emulatorAccount, emulatorKey, o)
		return client, "the emulator's shared key", err
	case w.clientID != "":
		client, err = w.withManagedIdentity(options)
		return client, "managed identity with the URL's client_id", err
	case connection != "":
		return w.withConnectionString(connection, o)
	case key != "":
		client, err = w.withKey(w.account, key, o)
		return client, "shared key of " + envKey, err
	case sas != "":
		client, err = w.withSAS(sas, o)
		return client, "SAS of " + envSAS, err
	default:
		client, err = w.withDefaultChain(options)
		return client, "azidentity's default chain", err
	}
}

// withConnectionString uses the credential of the connection string and, unless the URL has an
// endpoint, its address. The SDK's own function would use the account of the string, even if
// the URL names another.
func (w location) withConnectionString(connection string, o *container.ClientOptions) (*container.Client, string, error) {
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
		return nil, "", driver.Invalid(envConnectionString, "of account "+quoteSafe(account), "of the URL's account, "+w.account)
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
			return nil, "", driver.Invalid(envConnectionString, "with an address that is not shown", "one whose BlobEndpoint, or EndpointSuffix, gives an address such as https://ACCOUNT.blob.core.windows.net")
		}
	}
	switch key, sas := fields["accountkey"], fields["sharedaccesssignature"]; {
	case key != "":
		client, err := w.withKey(w.account, key, o)
		return client, "shared key of " + envConnectionString, err
	case sas != "":
		client, err := w.withSAS(sas, o)
		return client, "SAS of " + envConnectionString, err
	default:
		return nil, "", driver.Invalid(envConnectionString, "not shown", "one with AccountKey or SharedAccessSignature")
	}
}

func (w location) withSAS(sas string, o *container.ClientOptions) (*container.Client, error) {
	return container.NewClientWithNoCredential(w.containerURL()+"?"+strings.TrimPrefix(sas, "?"), o)
}

func (w location) withManagedIdentity(options azcore.ClientOptions) (*container.Client, error) {
	credential, err := azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
		ClientOptions: options, ID: azidentity.ClientID(w.clientID)})
	if err != nil {
		return nil, err
	}
	return w.withToken(credential, options)
}

func (w location) withDefaultChain(options azcore.ClientOptions) (*container.Client, error) {
	options.Cloud = w.cloud()
	credential, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: options})
	if err != nil {
		return nil, err
	}
	return w.withToken(credential, options)
}

func (w location) withToken(credential azcore.TokenCredential, options azcore.ClientOptions) (*container.Client, error) {
	options.Cloud = w.cloud()
	return container.NewClient(w.containerURL(), credential, &container.ClientOptions{ClientOptions: options})
}

// cloud is the cloud whose identities have access to the endpoint. For other clouds,
// AZURE_AUTHORITY_HOST names the login server, as everywhere in azidentity.
func (w location) cloud() cloud.Configuration {
	switch url := w.serviceURL(); {
	case strings.HasSuffix(url, ".chinacloudapi.cn"):
		return cloud.AzureChina
	case strings.HasSuffix(url, ".usgovcloudapi.net"):
		return cloud.AzureGovernment
	default:
		return cloud.Configuration{}
	}
}
