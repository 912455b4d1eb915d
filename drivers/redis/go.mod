module github.com/holdfast-go/holdfast/drivers/redis

go 1.25.0

replace github.com/holdfast-go/holdfast => ../..

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/redis/go-redis/v9 v9.7.3
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/gofrs/flock v0.13.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
