package kubernetes

import (
	"encoding/json"

	"github.com/holdfast-go/holdfast/test/kubernetestest"
)

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// leaseAt decodes a Lease of the server.
func leaseAt(server *kubernetestest.Server, name string) (l lease) {
	_ = json.Unmarshal(server.Lease(name), &l)
	return l
}

func annotationOf(server *kubernetestest.Server, name string) string {
	return leaseAt(server, name).Metadata.Annotations[Annotation]
}
