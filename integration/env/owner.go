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

// ownerLabel is what containers and networks have the test process in that made
// them: HOST/PID.
const ownerLabel = "holdfast.integration.owner"

func owner() map[string]string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return map[string]string{ownerLabel: host + "/" + strconv.Itoa(os.Getpid())}
}

// sweep removes what test processes of this machine left that were killed, or that
// ran into the time limit of go test.
func (e *engine) sweep(ctx context.Context) error {
	labelled := make(client.Filters).Add("label", ownerLabel)
	containers, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: labelled})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range containers.Items {
		if left(c.Labels) {
			fmt.Printf("integration: removing container %.12s, whose test process is gone\n", c.ID)
			_, err := e.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			errs = append(errs, err)
		}
	}
	networks, err := e.NetworkList(ctx, client.NetworkListOptions{Filters: labelled})
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, n := range networks.Items {
		if left(n.Labels) {
			_, err := e.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// left reports whether the owner is a process of this machine that is gone.
func left(labels map[string]string) bool {
	host, pid, ok := strings.Cut(labels[ownerLabel], "/")
	n, err := strconv.Atoi(pid)
	mine, _, _ := strings.Cut(owner()[ownerLabel], "/")
	if !ok || err != nil || host != mine {
		return false
	}
	process, err := os.FindProcess(n)
	if err != nil {
		return false
	}
	return errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
