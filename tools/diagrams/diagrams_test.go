package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// The pictures in docs/ are the ones that this program draws.
func TestPicturesAreCurrent(t *testing.T) {
	for name, want := range pictures() {
		got, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil || strings.ReplaceAll(string(got), "\r\n", "\n") != want {
			t.Errorf("docs/%s is out of date (%v): make -f tools/tools.mk docs-diagrams", name, err)
		}
	}
}

// Every picture is well-formed XML, and its texts do not reach over its edges.
func TestTextsFit(t *testing.T) {
	const letter = 0.56 * textSize // the mean width of a letter, rounded up
	for name, picture := range pictures() {
		d := xml.NewDecoder(strings.NewReader(picture))
		var x int
		anchor := ""
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				anchor = ""
				for _, a := range token.Attr {
					switch {
					case token.Name.Local == "text" && a.Name.Local == "text-anchor":
						anchor = a.Value
					case a.Name.Local == "x":
						x, _ = strconv.Atoi(a.Value)
					}
				}
			case xml.CharData:
				length := float64(utf8.RuneCount(token)) * letter
				from, to := float64(x), float64(x)
				switch anchor {
				case "":
					continue
				case "start":
					to += length
				case "middle":
					from, to = from-length/2, to+length/2
				case "end":
					from -= length
				}
				if from < 4 || to > width-4 {
					t.Errorf("%s: %q reaches from %.0f to %.0f of %d", name, token, from, to, width)
				}
				anchor = ""
			}
		}
	}
}
