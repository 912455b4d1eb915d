// Package integration tests the adapters with the libraries that they are for. It is a module of
// its own, so that programs that use an adapter do not require the other libraries.
package integration
