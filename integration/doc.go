// Package integration tests Holdfast against real backends and real faults. README.md
// says how to run it.
package integration
