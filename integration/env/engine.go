package env

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
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

// server is a container on a network of its own, at a fixed address.
type server struct {
	engine  *engine
	ctr     testcontainers.Container
	network *network
	addr    string // host:port
}

func (s *server) kill(ctx context.Context) error {
	_, err := s.engine.ContainerKill(ctx, s.ctr.GetContainerID(), client.ContainerKillOptions{Signal: "SIGKILL"})
	return errors.Join(err, s.awaitStopped(ctx))
}

// stop shuts the server down cleanly.
func (s *server) stop(ctx context.Context) error {
	_, err := s.engine.ContainerKill(ctx, s.ctr.GetContainerID(), client.ContainerKillOptions{Signal: "SIGINT"})
	return errors.Join(err, s.awaitStopped(ctx))
}

// awaitStopped waits until the container does not run.
func (s *server) awaitStopped(ctx context.Context) error {
	return retry(ctx, func() error {
		state, err := s.engine.ContainerInspect(ctx, s.ctr.GetContainerID(), client.ContainerInspectOptions{})
		if err == nil && state.Container.State.Running {
			err = errors.New("the container still runs")
		}
		return err
	})
}

// start starts a stopped container, and waits until it accepts connections.
func (s *server) start(ctx context.Context) error {
	if _, err := s.engine.ContainerStart(ctx, s.ctr.GetContainerID(), client.ContainerStartOptions{}); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

// pause stops all processes of a container. On a busy machine the engine may give up before the kernel has stopped them.
func (s *server) pause(ctx context.Context) error {
	for tries := 1; ; tries++ {
		_, err := s.engine.ContainerPause(ctx, s.ctr.GetContainerID(), client.ContainerPauseOptions{})
		if err == nil || tries == 10 || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
	}
}

func (s *server) resume(ctx context.Context) error {
	_, err := s.engine.ContainerUnpause(ctx, s.ctr.GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

// awaitReady waits until the server accepts connections at its address.
func (s *server) awaitReady(ctx context.Context) error {
	err := retry(ctx, func() error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		return fmt.Errorf("container %.12s does not answer at %s: %w; %s (containers are reached at their own addresses. "+
			"That works if the engine runs on this Linux machine, but not with Docker Desktop; there, set %s=%s)",
			s.ctr.GetContainerID(), s.addr, err, s.state(), ModeVariable, Processes)
	}
	return nil
}

// state describes the state of the container, for an error.
func (s *server) state() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	found, err := s.engine.ContainerInspect(ctx, s.ctr.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return err.Error()
	}
	state := found.Container.State
	description := fmt.Sprintf("its state is %s, exit code %d, %s", state.Status, state.ExitCode, state.Error)
	logs, err := s.engine.ContainerLogs(ctx, s.ctr.GetContainerID(), client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true,
		Tail: "3"})
	if err != nil {
		return description
	}
	defer func() { _ = logs.Close() }()
	text, _ := io.ReadAll(io.LimitReader(logs, 2000))
	return description + fmt.Sprintf(", its log ends with %q", text)
}

func (s *server) terminate() error {
	if s == nil || s.ctr == nil {
		return nil
	}
	return testcontainers.TerminateContainer(s.ctr, testcontainers.StopTimeout(0))
}

// retry calls attempt until it succeeds, for at most three minutes. On a busy machine Azurite can
// take more than one minute to start.
func retry(ctx context.Context, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}
