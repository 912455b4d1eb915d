// Package integration is the suite that tests Holdfast against real backends and
// real faults; README.md tells how to run it.
package integration
