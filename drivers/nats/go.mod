module github.com/holdfast-go/holdfast/drivers/nats

go 1.25.0

replace github.com/holdfast-go/holdfast => ../..

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/nats-io/nats.go v1.41.1
	github.com/nats-io/nkeys v0.4.9
)

require (
	github.com/gofrs/flock v0.13.0 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	go.uber.org/goleak v1.2.0 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
