package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// EnvArtifacts names the variable that says where failing histories are stored.
const EnvArtifacts = "HOLDFAST_ARTIFACTS"

// Save stores lines and what was found in them in a new folder of dir, whose name
// begins with name: history.jsonl, which [Load] reads, report.txt, and for each
// register that is not linearizable a picture for a browser, register-KEY.html. It
// returns the folder.
func Save(dir, name string, lines []Line, r *Report) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(dir, name+"-")
	if err != nil {
		return "", err
	}
	text := r.String()
	if err := r.Err(); err != nil {
		text += "\n" + err.Error() + "\n"
	}
	errs := []error{
		os.WriteFile(filepath.Join(folder, "report.txt"), []byte(text), 0o600),
		writeLines(filepath.Join(folder, "history"+suffix), lines),
	}
	for _, reg := range r.registers {
		errs = append(errs, picture(filepath.Join(folder, "register-"+reg.key+".html"), reg))
	}
	return folder, errors.Join(errs...)
}

func writeLines(path string, lines []Line) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(f)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

func picture(path string, r register) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := r.draw(f); err != nil {
		return errors.Join(fmt.Errorf("draw %q: %w", r.key, err), f.Close())
	}
	return f.Close()
}
