package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/doctor"
)

// The helper is this test's binary as a process of its own, in namespaces or as a user of its own.
const (
	envHelper = "HOLDFAST_DOCTOR_HELPER" // a file for the reports
	envURL    = "HOLDFAST_DOCTOR_URL"
	envSecond = "HOLDFAST_DOCTOR_SECOND" // the URL of the second check; the first one's if empty
	envMount  = "HOLDFAST_DOCTOR_MOUNT"  // the type of a FUSE file system to mount at HOLDFAST_DOCTOR_AT
	envAt     = "HOLDFAST_DOCTOR_AT"
	envApply  = "HOLDFAST_DOCTOR_APPLY" // a script that applies the remedies without a command
)

// helper examines the backend, applies the remedies and examines it again.
func helper() {
	if err := help(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func help() error {
	if kind := os.Getenv(envMount); kind != "" {
		unmount, err := mountFUSE(kind, os.Getenv(envAt))
		if err != nil {
			return err
		}
		defer unmount()
	}
	url := os.Getenv(envURL)
	first, err := doctor.Run(context.Background(), url)
	if err != nil {
		return err
	}
	script := os.Getenv(envApply)
	for _, f := range first.Findings {
		if f.Level >= driver.LevelDoubtful && f.Command != "" && script == "" {
			if out, err := exec.Command("sh", "-ec", f.Command).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w %s", f.Command, err, out)
			}
		}
	}
	if script != "" {
		if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w %s", script, err, out)
		}
	}
	if second := os.Getenv(envSecond); second != "" {
		url = second
	}
	second, err := doctor.Run(context.Background(), url)
	if err != nil {
		return err
	}
	out, err := json.Marshal([]*doctor.Report{first, second})
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv(envHelper), out, 0o666) //nolint:gosec // another user reads it
}
