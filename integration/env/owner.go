package env

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/holdfast-go/holdfast/internal/owner"
)

// removeLeftovers removes the containers and networks of test processes of this machine that were
// killed or timed out.
func (e *engine) removeLeftovers(ctx context.Context) error {
	labelled := make(client.Filters).Add("label", owner.Label)
	containers, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: labelled})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers.Items {
		if owner.Gone(c.Labels) {
			fmt.Printf("integration: removing container %.12s, whose test process has ended\n", c.ID)
			_, err := e.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			errs = append(errs, err)
		}
	}
	networks, err := e.NetworkList(ctx, client.NetworkListOptions{Filters: labelled})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, n := range networks.Items {
		if owner.Gone(n.Labels) {
			_, err := e.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
