// Package endtoend holds tests of the whole: real processes that elect, contend and
// hand over on a real MongoDB replica set, while its primary is killed and holders
// are stopped. The processes are this package's test binary, run again.
package endtoend
