package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

func TestValidatePlace(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "app": "", "App-1_ü.x": "", "my locks": "", "a\u200cb": "", "😀\u200d😀": "", "a/b": "", "a\ufffdb": "",
		"app\n":       `with '\n' at its end`,
		"app\r\n":     `with '\r' in it`,
		"\tapp":       `with '\t' in it`,
		"app ":        `with ' ' at its end`,
		" app":        `with ' ' in it`,
		"a\u00a0b":    `with '\u00a0' in it`,
		"app\u3000":   `with '\u3000' at its end`,
		"app\u2028":   `with '\u2028' at its end`,
		"app\u200b":   `with '\u200b' at its end`,
		"app\ufeff":   `with '\ufeff' at its end`,
		"a\u202eb":    `with '\u202e' in it`,
		"app\x00":     `with '\x00' at its end`,
		"app\x7f":     `with '\x7f' at its end`,
		"a\u0085b":    `with '\u0085' in it`,
		"app\xff":     `with the byte 0xff at its end`,
		"app#x":       `with '#' in it`,
		`app"`:        `with '"' at its end`,
		"app'":        `with '\'' at its end`,
		"app`":        "with '`' at its end",
		`app\n`:       `with '\\' in it`,
		"a.b$c":       `with '$' in it`,
		"s3cr3t\tx":   `with '\t' in it`,
		"s3cr3t\xffx": `with the byte 0xff in it`,
	} {
		err := driver.ValidatePlace("table", name, "$")
		var invalid *driver.InvalidError
		if !errors.As(err, &invalid) && want == "" {
			continue
		}
		if invalid == nil || invalid.Field != "table" || invalid.Value != want || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}

func TestValidateURLEnds(t *testing.T) {
	t.Parallel()
	for url, valid := range map[string]bool{
		"mongodb://h/a b?x=y": true, "x:": true, "x:\n": false, " x:": false, "x:\u200b": false, "\ufeffx:": false,
	} {
		if err := driver.ValidateURLEnds(url); errors.Is(err, driver.ErrInvalid) == valid {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestValidateFolder(t *testing.T) {
	t.Parallel()
	for path, valid := range map[string]bool{
		"/var/lib/holdfast": true, "./my locks": true, "/C#/it's": true, `C:\locks`: true, "/a/": true, "": true, "/x\n": false, "/x\r": false,
		"/x ": false, "/x /y": false, "/ x": false, "/x\u00a0": false, "/a\ty/z": false, "/x\xff": false, "/x\x00": false,
	} {
		if err := driver.ValidateFolder("folder", path); errors.Is(err, driver.ErrInvalid) == valid {
			t.Errorf("%q: %v", path, err)
		}
	}
}
