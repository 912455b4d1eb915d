// Command report writes the results of benchmarks to docs/performance.md and measured.txt, and draws the page's pictures:
//
//	go test -run '^$' -bench . ./... | go -C test/bench/rivals run ./draw/report
//
// It replaces the text between a line "<!-- measured: NAME -->" and the next "<!-- end -->".
// Blocks that were not measured stay as they are. "make -f tools/tools.mk bench-report" runs it after all
// benchmarks at their full length.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	page := flag.String("page", filepath.Join("..", "..", "..", "docs", "performance.md"),
		"the page to update; pictures are written to its folder")
	all := flag.String("all", filepath.Join("..", "measured.txt"), "the file with all tables")
	flag.Parse()
	if err := run(os.Stdin, []string{*page, *all}, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// run updates the files, and draws the pictures into the folder of the first.
func run(in io.Reader, files []string, log io.Writer) error {
	measured, err := parse(in)
	if err != nil {
		return err
	}
	for _, file := range files {
		old, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		content, missing, err := fill(old, measured)
		if err != nil {
			return err
		}
		for _, what := range missing {
			fmt.Fprintln(log, "report:", what, "was not measured and is unchanged")
		}
		if err := os.WriteFile(file, content, 0o644); err != nil { //nolint:gosec // public figures
			return err
		}
	}
	return drawAll(measured, filepath.Dir(files[0]), log)
}

const (
	blockStart   = "<!-- measured: "
	blockNameEnd = " -->"
	blockEnd     = "<!-- end -->"
)

// fill replaces the blocks of a page. missing names the blocks whose benchmarks are missing.
func fill(page []byte, measured results) (out []byte, missing []string, err error) {
	for {
		before, rest, found := bytes.Cut(page, []byte(blockStart))
		out = append(out, before...)
		if !found {
			return out, missing, nil
		}
		name, rest, named := bytes.Cut(rest, []byte(blockNameEnd+"\n"))
		old, rest, ended := bytes.Cut(rest, []byte(blockEnd))
		write := blocks[string(name)]
		if !named || !ended || write == nil {
			return nil, nil, fmt.Errorf("the block %q is unknown or has no end", name)
		}
		text, err := write(measured)
		var missingErr *missingError
		switch {
		case errors.As(err, &missingErr):
			missing = append(missing, fmt.Sprintf("%s (%s)", name, missingErr.what))
			text = string(old)
		case err != nil:
			return nil, nil, err
		}
		out = append(out, fmt.Sprintf("%s%s%s\n%s%s", blockStart, name, blockNameEnd, text, blockEnd)...)
		page = rest
	}
}
