// Package endtoend holds tests of the whole system: real processes that elect a leader, contend
// for locks and hand them over. They run on real servers, whose primary is killed, and holders are
// paused.
package endtoend
