// Package rivals measures Holdfast beside other locks and elections of programs that use PostgreSQL, in one run on one
// server: pglock, River's elector, and session advisory locks. It is a module of its own, for their sake.
//
//	go test -run '^$' -bench . -benchtime 1x -timeout 10m
package rivals
