// Command report writes what benchmarks measured into docs/performance.md, and
// draws its pictures:
//
//	go test -run '^$' -bench . ./... | go -C bench run ./report
//
// It replaces what stands between a line "<!-- measured: NAME -->" and the next
// "<!-- end -->". What was not measured this time stays as it is. "make bench-report"
// runs it after all benchmarks at their full length.
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
	page := flag.String("page", filepath.Join("..", "docs", "performance.md"), "the page; pictures go beside it")
	flag.Parse()
	if err := run(os.Stdin, *page, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, page string, log io.Writer) error {
	measured, err := parse(in)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	content, missing, err := fill(old, measured)
	if err != nil {
		return err
	}
	for _, what := range missing {
		fmt.Fprintln(log, "report:", what, "was not measured, and stays as it was")
	}
	if err := os.WriteFile(page, content, 0o644); err != nil { //nolint:gosec // a public page
		return err
	}
	return drawAll(measured, filepath.Dir(page), log)
}

const (
	opening = "<!-- measured: "
	closing = " -->"
	ending  = "<!-- end -->"
)

// fill replaces the blocks of a page. missing are the names of those for which the
// benchmarks are not there.
func fill(page []byte, measured results) (out []byte, missing []string, err error) {
	for {
		before, rest, found := bytes.Cut(page, []byte(opening))
		out = append(out, before...)
		if !found {
			return out, missing, nil
		}
		name, rest, named := bytes.Cut(rest, []byte(closing+"\n"))
		old, rest, ended := bytes.Cut(rest, []byte(ending))
		write := blocks[string(name)]
		if !named || !ended || write == nil {
			return nil, nil, fmt.Errorf("the block %q is not known, or has no end", name)
		}
		text, err := write(measured)
		var absent *absentError
		switch {
		case errors.As(err, &absent):
			missing = append(missing, fmt.Sprintf("%s (%s)", name, absent.what))
			text = string(old)
		case err != nil:
			return nil, nil, err
		}
		out = append(out, fmt.Sprintf("%s%s%s\n%s%s", opening, name, closing, text, ending)...)
		page = rest
	}
}
