// Command build makes local stand-ins for the images of the integration suite and
// the examples, for machines that cannot pull the official ones. They contain the real
// servers, fetched like those of the unit tests, and have names of their own, so that they are
// not mistaken for the official images.
//
//	go run ./images/build            # builds what is missing or out of date
//	go run ./images/build -force     # builds all
//	go run ./images/build -list      # prints which image stands in for which: the variable, the official image, the local one
//
// It needs a Linux machine with a Docker engine, Node.js and busybox-static.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// label is the image label with the digest of the contents.
const label = "holdfast.contents"

// image is an image to build. fill adds its files to an empty tree.
type image struct {
	name string
	// The variable that names the image of a server to test with, and its default, for which the image stands in.
	variable, official string
	fill               func(ctx context.Context, root *tree) error
	config             []string // Dockerfile instructions: entry point, ports, environment
}

var images = []image{mongoImage, postgresImage, azuriteImage, workerImage}

func main() {
	force := flag.Bool("force", false, "also build images that are up to date")
	list := flag.Bool("list", false, "print which image stands in for which")
	flag.Parse()
	if *list {
		for _, img := range images {
			if img.official != "" {
				fmt.Println(img.variable, img.official, img.name)
			}
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := build(ctx, *force)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, force bool) error {
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return err
	}
	defer func() { _ = docker.Close() }()
	version, err := docker.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return fmt.Errorf("no Docker engine answers (%w); start one, for example with integration/images/engine.sh start", err)
	}
	fmt.Printf("Docker engine %s\n", version.Version)
	for _, img := range images {
		if err := img.build(ctx, docker, force); err != nil {
			return fmt.Errorf("%s: %w", img.name, err)
		}
	}
	return nil
}

func (img image) build(ctx context.Context, docker *client.Client, force bool) error {
	start := time.Now()
	root := newTree()
	if err := img.fill(ctx, root); err != nil {
		return err
	}
	digest, err := root.digest(img.config)
	if err != nil {
		return err
	}
	old, err := docker.ImageInspect(ctx, img.name)
	switch {
	case err == nil && !force && old.Config != nil && old.Config.Labels[label] == digest:
		fmt.Printf("%-32s is up to date, %s\n", img.name, old.ID)
		return nil
	case err != nil && !errdefs.IsNotFound(err):
		return err
	}
	read, write := io.Pipe()
	go func() { write.CloseWithError(root.write(write)) }()
	defer func() { _ = read.Close() }() // ends the goroutine if the engine did not read everything
	answer, err := docker.ImageImport(ctx, client.ImageImportSource{Source: read, SourceName: "-"}, img.name, client.ImageImportOptions{
		Message: "local stand-in of Holdfast's integration suite, not an official image",
		Changes: append([]string{"LABEL " + label + "=" + digest}, img.config...),
	})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	if err := readImportResult(answer); err != nil {
		return err
	}
	made, err := docker.ImageInspect(ctx, img.name)
	if err != nil {
		return err
	}
	fmt.Printf("%-32s built in %s, %d MB, %s\n", img.name, time.Since(start).Round(100*time.Millisecond), made.Size/1e6, made.ID)
	return nil
}

// readImportResult reads the engine's answer to its end, since it may contain an error.
func readImportResult(answer io.Reader) error {
	for d := json.NewDecoder(answer); ; {
		var output struct{ Error string }
		if err := d.Decode(&output); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if output.Error != "" {
			return errors.New(output.Error)
		}
	}
}
