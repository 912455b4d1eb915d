package registers

import (
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/test/history"
)

// EnvArtifacts is the environment variable that names the folder for failing histories.
const EnvArtifacts = "HOLDFAST_ARTIFACTS"

// drawTimeout is the time limit for drawing one picture.
const drawTimeout = time.Minute

// Save stores the lines of a history and its report in a new folder of dir, and returns the
// folder. Its name begins with name. It contains history.jsonl, which [history.Load] reads, report.txt,
// and for each register a picture for a browser, register-KEY.html, with the KEY escaped as in a URL.
func Save(dir, name string, lines []history.Line, r *history.Report) (string, error) {
	h, err := history.Merge(lines)
	if err != nil {
		return "", err
	}
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
		create(filepath.Join(folder, "history"+history.Suffix), func(w io.Writer) error { return history.WriteLines(w, lines) }),
	}
	for key, ops := range operations(h) {
		path := filepath.Join(folder, "register-"+url.PathEscape(key)+".html")
		errs = append(errs, create(path, func(w io.Writer) error { return draw(h, w, ops, drawTimeout) }))
	}
	return folder, errors.Join(errs...)
}

// create makes a file with what write writes.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
