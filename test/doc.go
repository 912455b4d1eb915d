// Package test has only folders: what tests and measures the library, the drivers and the command. It is no part of the API and may
// change at any time. CONTRIBUTING.md has the list.
package test
