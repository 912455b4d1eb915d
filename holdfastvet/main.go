// Holdfastvet reports misuse of Holdfast's locks that the compiler accepts: a function under a
// lock that ignores its context, a hold that is never released, half a fence, calls that would
// deadlock, and locks inside transactions. It does not need the checked program to run.
//
//	go install github.com/holdfast-go/holdfast/holdfastvet@latest
//	go vet -vettool=$(which holdfastvet) ./...
//	go run github.com/holdfast-go/holdfast/holdfastvet@latest ./...
//
// docs/holdfastvet.md of the library shows each check with an example. "holdfastvet help"
// lists the checks and their flags. A comment //nolint:NAME on the reported line, where NAME is
// the check or holdfastvet, silences a report.
package main

import (
	"golang.org/x/tools/go/analysis/multichecker"

	"github.com/holdfast-go/holdfast/holdfastvet/checks"
)

func main() { multichecker.Main(checks.Analyzers()...) }
