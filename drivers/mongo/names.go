package mongo

import (
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/holdfast-go/holdfast/driver"
)

// The longest names: of a database, and of a collection with its database and the dot between them.
const (
	maxDatabase  = 63
	maxNamespace = 255
)

// checkNames refuses names that the server refuses, and those that it takes without a word for those of another database or
// collection ([driver.ValidatePlace]). The fields say where the names come from.
func checkNames(databaseField, collectionField, database, collection string) error {
	if err := driver.ValidatePlace(databaseField, database, `/. $`); err != nil {
		return err
	}
	if database == "" || len(database) > maxDatabase {
		return driver.Invalid(databaseField, fmt.Sprintf("of %d bytes", len(database)), "of "+driver.ByteRange(1, maxDatabase))
	}
	if err := driver.ValidatePlace(collectionField, collection, `$`); err != nil {
		return err
	}
	longest := maxNamespace - len(database) - len(".")
	switch {
	case collection == "" || len(collection) > longest:
		return driver.Invalid(collectionField, fmt.Sprintf("of %d bytes", len(collection)), "of "+driver.ByteRange(1, longest)+
			" in a database with this name")
	case strings.HasPrefix(collection, ".") || strings.HasPrefix(collection, "system."):
		return driver.Invalid(collectionField, "with a dot or system. at its beginning", "another name: MongoDB keeps these for itself")
	}
	return nil
}

// checkCollectionNames is checkNames for a collection of the program.
func checkCollectionNames(c *mongo.Collection) error {
	return checkNames("database", "collection", c.Database().Name(), c.Name())
}
