package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/holdfast-go/holdfast/test/testservers"
)

// query runs statements with psql. The URL's password does not become an argument, which other users could read.
func query(ctx context.Context, at string, statements ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	bin, err := testservers.PostgresBin.Path(ctx)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(at)
	if err != nil || u.User == nil {
		return "", errors.New("the URL of a PostgreSQL needs a user")
	}
	password, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	args := []string{"-X", "-q", "-w", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", u.String()}
	for _, statement := range statements {
		args = append(args, "-c", statement)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "psql"), args...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password, "PGCONNECT_TIMEOUT=10")
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("psql: %s: %w: %s", strings.Join(statements, "; "), err, testservers.Tail([]byte(stderr.String())))
	}
	return strings.TrimSpace(stdout.String()), nil
}
