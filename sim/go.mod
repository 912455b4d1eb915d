module github.com/holdfast-go/holdfast/sim

go 1.25.7

replace github.com/holdfast-go/holdfast => ../

require github.com/holdfast-go/holdfast v0.0.0

require golang.org/x/sys v0.37.0 // indirect
