module github.com/holdfast-go/holdfast

go 1.25.0

require (
	github.com/alecthomas/kong v1.17.0 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	go.mongodb.org/mongo-driver/v2 v2.9.3 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
