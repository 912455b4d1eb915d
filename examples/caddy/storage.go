package main

import (
	"context"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/certmagiclock"
	_ "github.com/holdfast-go/holdfast/drivers/mongo" // for mongodb: URLs
)

func init() { caddy.RegisterModule(Storage{}) }

// Storage is the Caddy module caddy.storage.holdfast: the storage of a cluster in a folder that all
// instances share, with locks of Holdfast. In a Caddyfile:
//
//	{
//		storage holdfast /shared "mongodb://db1,db2,db3/caddy?replicaSet=rs0"
//	}
type Storage struct {
	// Folder is shared by all instances.
	Folder string `json:"folder"`
	// URL is that of Holdfast's MongoDB driver, for the locks.
	URL string `json:"url"`

	client  *holdfast.Client
	storage certmagic.Storage
}

// CaddyModule makes Storage a module of Caddy.
func (Storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.holdfast", New: func() caddy.Module { return new(Storage) }}
}

// UnmarshalCaddyfile reads the line of a Caddyfile.
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.AllArgs(&s.Folder, &s.URL) {
		return d.ArgErr()
	}
	return nil
}

// Provision connects to MongoDB. Caddy calls it for each configuration that it loads.
func (s *Storage) Provision(ctx caddy.Context) error {
	url, err := caddy.NewReplacer().ReplaceOrErr(s.URL, true, true) // for {env.NAME}
	if err != nil {
		return err
	}
	folder, err := caddy.NewReplacer().ReplaceOrErr(s.Folder, true, true)
	if err != nil {
		return err
	}
	if s.client, err = holdfast.Open(ctx, url); err != nil {
		return err
	}
	locker, err := certmagiclock.NewLocker(s.client)
	if err != nil {
		return err
	}
	s.storage, err = certmagiclock.NewStorage(&certmagic.FileStorage{Path: folder}, locker)
	return err
}

// CertMagicStorage gives Caddy the storage.
func (s *Storage) CertMagicStorage() (certmagic.Storage, error) { return s.storage, nil }

// Cleanup disconnects. Caddy has stopped what used the storage.
func (s *Storage) Cleanup() error {
	if s.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.client.Shutdown(ctx); err != nil {
		return fmt.Errorf("storage %s: %w", s.CaddyModule().ID, err)
	}
	return nil
}

var (
	_ caddy.Provisioner      = (*Storage)(nil)
	_ caddy.CleanerUpper     = (*Storage)(nil)
	_ caddy.StorageConverter = (*Storage)(nil)
	_ caddyfile.Unmarshaler  = (*Storage)(nil)
)
