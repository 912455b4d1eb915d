package env

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/moby/client"
)

// ownerLabel is the label of containers and networks that names the test process that created
// them, as HOST/PID.
const ownerLabel = "holdfast.integration.owner"

func ownerLabels() map[string]string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return map[string]string{ownerLabel: host + "/" + strconv.Itoa(os.Getpid())}
}

// removeLeftovers removes the containers and networks of test processes of this machine that were
// killed or timed out.
func (e *engine) removeLeftovers(ctx context.Context) error {
	labelled := make(client.Filters).Add("label", ownerLabel)
	containers, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: labelled})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers.Items {
		if ownerGone(c.Labels) {
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
		if ownerGone(n.Labels) {
			_, err := e.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ownerGone reports whether the owner is a process of this machine that has ended.
func ownerGone(labels map[string]string) bool {
	host, pid, ok := strings.Cut(labels[ownerLabel], "/")
	n, err := strconv.Atoi(pid)
	mine, _, _ := strings.Cut(ownerLabels()[ownerLabel], "/")
	if !ok || err != nil || host != mine {
		return false
	}
	process, err := os.FindProcess(n)
	if err != nil {
		return false
	}
	return errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
