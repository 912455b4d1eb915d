package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

// The command does without Apache Arrow, on which a newer SDK for Azure depends for listings that Holdfast does not use: the program would
// be a quarter larger, and the first download half as large again.
func TestNoArrow(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("the test does not know its modules")
	}
	for _, m := range info.Deps {
		if strings.HasPrefix(m.Path, "github.com/apache/arrow") {
			t.Errorf("%s %s is linked: require azblob v1.8.0 in go.mod", m.Path, m.Version)
		}
	}
}
