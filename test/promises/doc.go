// Package promises has one test file for each promise of package holdfast, named after it. The table
// in the documentation of package holdfast lists the function that keeps each promise.
//
// The tests run on the memory backend, with failures injected and on the time of testing/synctest. The
// parts that a backend must keep are tested by package lockertest, and against real servers by the
// tests of the drivers and of integration/.
package promises
