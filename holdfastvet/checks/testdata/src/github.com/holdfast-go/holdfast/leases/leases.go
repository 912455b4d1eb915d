package leases

import "github.com/holdfast-go/holdfast"

type (
	LeaseManager struct{}
	Option       any
)

func New(client *holdfast.Client, opts ...Option) (*LeaseManager, error) { return nil, nil }
