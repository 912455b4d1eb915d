module github.com/holdfast-go/holdfast/otelholdfast

go 1.25.0

replace github.com/holdfast-go/holdfast => ../

require (
	github.com/holdfast-go/holdfast v0.0.0
	go.opentelemetry.io/otel v1.22.0
	go.opentelemetry.io/otel/metric v1.22.0
	go.opentelemetry.io/otel/sdk v1.22.0
	go.opentelemetry.io/otel/sdk/metric v1.22.0
	go.opentelemetry.io/otel/trace v1.22.0
)

require (
	github.com/go-logr/logr v1.4.1 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
