package mongo

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const backend = "mongodb"

// limits: MongoDB could store names and data of nearly 16 MB. Names are limited to the length
// that an index entry had before MongoDB 4.2. Data are small enough not to burden the oplog
// and an initial sync. $$NOW has millisecond precision, and a TTL below a tenth of a second
// would be spent waiting for the majority's acknowledgement.
var limits = driver.Limits{
	MinTTL:   100 * time.Millisecond,
	MaxTTL:   24 * time.Hour,
	TTLStep:  time.Millisecond,
	MaxName:  1024,
	MaxOwner: 1024,
	MaxData:  1 << 20,
	Poll:     time.Second,
}

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
