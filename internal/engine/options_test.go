package engine_test

import (
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// narrow has the limits of an Azure blob lease.
type narrow struct{ holdfast.Locker }

func (narrow) Limits() driver.Limits {
	return driver.Limits{MinTTL: 15 * time.Second, MaxTTL: time.Minute, TTLStep: time.Second, MaxName: 10, MaxOwner: 10, MaxData: 4, TTLNote: "elsewhere it is less"}
}
