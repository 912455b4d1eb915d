package integration

// The suite's dependencies, so that go.mod names them all from the start.
import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	_ "github.com/Shopify/toxiproxy/v2"
	_ "github.com/anishathalye/porcupine"
	_ "github.com/holdfast-go/holdfast"
	_ "github.com/holdfast-go/holdfast/drivers/azblob"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
	_ "github.com/holdfast-go/holdfast/internal/mongotest"
	_ "github.com/testcontainers/testcontainers-go"
	_ "github.com/testcontainers/testcontainers-go/modules/azure/azurite"
	_ "github.com/testcontainers/testcontainers-go/modules/mongodb"
	_ "go.mongodb.org/mongo-driver/v2/mongo"
	_ "go.uber.org/goleak"
)
