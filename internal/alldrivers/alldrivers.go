// Package alldrivers registers every driver of this module: for the command, and for tests of all backends.
// A driver that is a module of its own is imported beside it, in cmd/holdfast/main.go.
package alldrivers

import (
	"reflect"
	"runtime"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	_ "github.com/holdfast-go/holdfast/drivers/azblob" // each registers its schemes
	_ "github.com/holdfast-go/holdfast/drivers/etcd"
	_ "github.com/holdfast-go/holdfast/drivers/file"
	_ "github.com/holdfast-go/holdfast/drivers/memory"
	_ "github.com/holdfast-go/holdfast/drivers/mongo"
)

// PackageOf returns the import path of a driver: the package of its function Open.
func PackageOf(d driver.Description) string {
	name := runtime.FuncForPC(reflect.ValueOf(d.Open).Pointer()).Name() // such as example.com/drivers/mongo.init.0.func1
	folder := strings.LastIndexByte(name, '/') + 1
	last, _, _ := strings.Cut(name[folder:], ".")
	return name[:folder] + last
}
