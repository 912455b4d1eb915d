// Package promises has a test file for each promise of package holdfast, named for it. The table
// in the documentation of package holdfast says which function keeps which promise.
package promises
