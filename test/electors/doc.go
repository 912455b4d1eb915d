// Package electors tests the driver for Kubernetes beside the real elector of client-go, on one Lease, and measures both. It is a module
// of its own, for the sake of client-go. The API server is that of package kubernetestest, or that of the variable
// [kubernetestest.EnvURL]:
//
//	go test -for 60s
//	go test -run '^$' -bench . -benchtime 1x -timeout 10m
package electors
