package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go/log"
)

// engine is the Docker engine that runs the containers.
type engine struct{ *client.Client }

// connect finds the engine and prints its version. It pulls missing images, so that a run that
// cannot work fails at once.
func connect(ctx context.Context) (*engine, error) {
	docker, err := client.New(client.FromEnv)
	if err != nil {
		return nil, noEngineError(err)
	}
	e := &engine{docker}
	answers, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	version, err := e.ServerVersion(answers, client.ServerVersionOptions{})
	if err != nil {
		return nil, errors.Join(noEngineError(err), e.close())
	}
	fmt.Printf("integration: Docker engine %s, API %s, %s/%s\n", version.Version, version.APIVersion, version.Os, version.Arch)
	for variable, image := range map[string]string{
		MongoImageVariable: MongoImage(), PostgresImageVariable: PostgresImage(), AzuriteImageVariable: AzuriteImage(),
	} {
		id, err := e.image(ctx, image)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the image %s is missing and cannot be pulled: %w; "+
				"set %s to another image, or build local ones: make -f tools/tools.mk images", image, err, variable), e.close())
		}
		fmt.Printf("integration: image %s, %s\n", image, id)
	}
	log.SetDefault(discardLog{})
	if err := e.removeLeftovers(ctx); err != nil {
		fmt.Println("integration: cannot remove everything that killed runs left:", err)
	}
	return e, nil
}

// discardLog replaces the log of testcontainers. The suite prints what matters of it.
type discardLog struct{}

// Printf prints nothing.
func (discardLog) Printf(string, ...any) {}

func noEngineError(err error) error {
	return fmt.Errorf("no Docker engine answers: %w; start one (on Linux: integration/images/engine.sh start), "+
		"or set HOLDFAST_TEST_MONGODB_URI, HOLDFAST_TEST_POSTGRES_URL or HOLDFAST_TEST_AZBLOB_URL to backends of your own, "+
		"or set %s=%s to test against local processes", err, ModeVariable, Processes)
}

// image returns the ID of an image, which it pulls if necessary.
func (e *engine) image(ctx context.Context, name string) (string, error) {
	found, err := e.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		pulled, pullErr := e.ImagePull(ctx, name, client.ImagePullOptions{})
		if pullErr != nil {
			return "", pullErr
		}
		if _, err := io.Copy(io.Discard, pulled); err != nil {
			return "", errors.Join(err, pulled.Close())
		}
		if err := pulled.Close(); err != nil {
			return "", err
		}
		found, err = e.ImageInspect(ctx, name)
	}
	return found.ID, err
}

func (e *engine) close() error {
	if e == nil {
		return nil
	}
	return e.Close()
}
