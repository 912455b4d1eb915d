package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/describe"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exitcode"
	"github.com/holdfast-go/holdfast/driver"
)

type dataCmd struct {
	Get dataGetCmd `cmd:"" usage:"[flags] NAME" help:"Write the data that are stored with a lock."`
	Set dataSetCmd `cmd:"" usage:"[flags] NAME [VALUE]" help:"Take a lock, replace its data, and release it."`
}

type dataGetCmd struct {
	Name string `arg:"" help:"Name of the lock."`
	JSON bool   `help:"Write one JSON object with the lock's record; data is base64, or null if there are none."`
}

// Help is shown above the flags.
func (*dataGetCmd) Help() string {
	return `Writes the bytes as they are, without a newline at the end. The lock need not be held. A lock without data writes nothing.`
}

// Validate is called by the parser.
func (d *dataGetCmd) Validate() error { return backends.CheckName(d.Name) }

// Run reads the data of one lock.
func (d *dataGetCmd) Run(a *app) error {
	return a.withClient(a.openToLook, func(ctx context.Context, client *holdfast.Client) error {
		record, err := client.Inspect(ctx, d.Name)
		if err != nil {
			return err
		}
		if record.State == driver.StateFree && record.Token == 0 {
			a.reportMissingStore(a.missingStore(ctx, client))
		}
		if d.JSON {
			return writeJSON(a.stdout, describe.JSON(record))
		}
		_, err = a.stdout.Write(record.Data)
		return err
	})
}

type dataSetCmd struct {
	Name  string  `arg:"" help:"Name of the lock."`
	Value *string `arg:"" optional:"" help:"The data. Without it, or with \"-\", they are read from standard input."`
	takeFlags
}

// Help is shown above the flags.
func (*dataSetCmd) Help() string {
	return `Only the holder may write the data of a lock. So this command waits for the lock, writes, and releases it; --try exits with 75 if
another holds it. The data replace all that was there. How much fits depends on the backend.`
}

// Validate is called by the parser.
func (d *dataSetCmd) Validate() error { return backends.CheckName(d.Name) }

// Run writes the data of one lock.
func (d *dataSetCmd) Run(a *app) error {
	var data []byte
	if d.Value != nil && *d.Value != "-" {
		data = []byte(*d.Value)
	} else {
		var err error
		if data, err = io.ReadAll(os.Stdin); err != nil { // before the lock is taken: a slow input does not keep it
			return exitcode.With(exitcode.Usage, err)
		}
	}
	return d.take(a, d.Name, func(r *runner, hold *holdfast.Hold) error {
		err := r.signals.During(func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, openTimeout)
			defer cancel()
			return hold.WriteData(ctx, data)
		})
		if errors.Is(err, errors.ErrUnsupported) {
			return errors.New("this backend stores no data with its locks")
		}
		return err
	})
}
