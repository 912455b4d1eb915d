package kubernetes

import (
	"encoding/json"
)

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// leases are those of an API server, as kubectl shows and changes them.
type leases interface {
	Lease(name string) []byte
	Edit(name, patch string) error
}

// leaseAt decodes a Lease of the server.
func leaseAt(server leases, name string) (l lease) {
	_ = json.Unmarshal(server.Lease(name), &l)
	return l
}

func annotationOf(server leases, name string) string {
	return leaseAt(server, name).Metadata.Annotations[Annotation]
}
