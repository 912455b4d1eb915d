module github.com/holdfast-go/holdfast/test/sim

go 1.25.7

replace github.com/holdfast-go/holdfast => ../../

require (
	github.com/holdfast-go/holdfast v0.0.0
	github.com/tetratelabs/wazero v1.12.0
)

require golang.org/x/sys v0.46.0 // indirect
