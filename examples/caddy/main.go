// Caddy is a Caddy whose instances share certificates and keys in a folder, and locks in MongoDB.
// Its storage module is in storage.go; README.md shows how to run it.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	// The parts of Caddy that this example needs. A program for production imports
	// modules/standard instead.
	_ "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
)

func main() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "probe",
		Short: "Succeeds if this machine's Caddy serves localhost by TLS: a health check for an image without curl",
		Func:  probe,
	})
	caddycmd.Main()
}

func probe(caddycmd.Flags) (int, error) {
	port := os.Getenv("HTTPS_PORT")
	if port == "" {
		port = "8443"
	}
	// It only matters that there is a certificate, not who signed it.
	dialer := &tls.Dialer{Config: &tls.Config{ServerName: "localhost", InsecureSkipVerify: true}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("localhost", port))
	if err != nil {
		return 1, fmt.Errorf("probe: %w", err)
	}
	return 0, conn.Close()
}
