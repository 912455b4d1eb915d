// Package rivals measures Holdfast beside other locks and elections, each in one run: on PostgreSQL pglock, River's elector, and session
// advisory locks, on MariaDB GET_LOCK, on Redis redsync and redislock, and on etcd the mutex of its own client. It is a module of its own,
// for their sake.
//
//	go test -run '^$' -bench . -benchtime 1x -timeout 10m
package rivals
