module github.com/holdfast-go/holdfast/drivers/mysql

go 1.25.0

replace github.com/holdfast-go/holdfast => ../..

require (
	github.com/go-sql-driver/mysql v1.8.1
	github.com/holdfast-go/holdfast v0.0.0
)

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	github.com/gofrs/flock v0.13.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
