package main

import (
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/backends"
	"github.com/holdfast-go/holdfast/driver"
)

// hostPattern matches what may be the address of a server: what looksLikeHost is asked about.
var hostPattern = regexp.MustCompile(`(?i)\[[0-9a-f:.]+\]:\d{2,5}|[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*\b(%\w+)?|\blookup [^\s:]+|` +
	`\b[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*(:\d{2,5}\b)?`)

var (
	fourNumbers = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){3}$`)
	onlyDigits  = regexp.MustCompile(`^v?\d+$`)
	topLevel    = regexp.MustCompile(`(?i)^([a-z]{2,}|xn--[a-z0-9-]+)$`)
	metricName  = regexp.MustCompile(`^holdfast\.(acquire|client|events|fence|guard|held|hold|leader|losses|overruns|partitions|release|` +
		`renewal|waiting)\b`)
)

// fileEndings are those of the files that errors of servers and drivers name. Those of countries, such as .sh, are hosts.
var fileEndings = []string{
	"c", "cert", "cfg", "cnf", "conf", "cpp", "crl", "crt", "dll", "exe", "go", "h", "ini", "js", "json", "jsonl", "key", "lock", "log", "pem",
	"pid", "sock", "sql", "tmp", "toml", "txt", "xml", "yaml", "yml",
}

// looksLikeHost decides about a text that hostPattern has found.
func looksLikeHost(found string) bool {
	switch {
	case strings.HasPrefix(found, "["), strings.HasPrefix(strings.ToLower(found), "lookup "):
		return true
	case strings.Count(found, ":") > 1:
		address, err := netip.ParseAddr(found)
		return err == nil && !address.IsUnspecified()
	}
	name, _, hasPort := strings.Cut(found, ":")
	name = strings.TrimSuffix(name, ".")
	labels := strings.Split(name, ".")
	last := labels[len(labels)-1]
	switch {
	case len(labels) > 1 && slices.Contains(fileEndings, strings.ToLower(last)), metricName.MatchString(name):
		return false
	case fourNumbers.MatchString(name):
		return true
	case onlyDigits.MatchString(labels[0]) && (len(labels) < 3 || onlyDigits.MatchString(labels[1])): // a time or a version
		return false
	case hasPort:
		return true
	case len(labels) < 2 || strings.Contains(name, "_") || !topLevel.MatchString(last):
		return false
	}
	return len(labels) > 2 || name == strings.ToLower(name) || name == strings.ToUpper(name) // context.DeadlineExceeded is of Go
}

// hideHosts takes the place of a backend, addresses, and the name of this machine, which owners of locks have, out of a text.
func hideHosts(text, backend string) string {
	for _, part := range placesOf(backend) {
		if strings.Trim(part, "/") != "" {
			text = backends.AsWord(part).ReplaceAllString(text, "…")
		}
	}
	return hostPattern.ReplaceAllStringFunc(text, func(found string) string {
		if !looksLikeHost(found) {
			return found
		}
		return "…"
	})
}

// placesOf returns what names the place of a backend: its hosts, those in parameters of its URL, and this machine.
func placesOf(backend string) []string {
	_, place, _ := strings.Cut(backends.Display(backend), ":")
	parts := []string{place}
	if address, isServer := strings.CutPrefix(place, "//"); isServer {
		parts = append(parts, hostsOf(address)...)
	}
	if about, _ := driver.Describe(backend); about.Reach == driver.ReachMachine {
		parts = append(parts, foldersOf(backend)...)
	}
	_, query, _ := strings.Cut(backend, "?")
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(value); err == nil {
			value = plain
		}
		if _, address, isURL := strings.Cut(value, "://"); isURL {
			parts = append(parts, hostsOf(address)...)
		} else if strings.HasSuffix(strings.ToLower(name), "host") {
			parts = append(parts, hostsOf(value)...)
		}
	}
	if own, err := os.Hostname(); err == nil {
		parts = append(parts, own)
	}
	return parts
}

// foldersOf returns the folder of a backend as its driver opens it, which the URL can write in other ways, and those above it. The first
// one, such as /home, says nothing.
func foldersOf(backend string) (all []string) {
	u, err := url.Parse(backend)
	if err != nil {
		return nil
	}
	folder := u.Path
	if u.Opaque != "" { // relative
		folder, _ = url.PathUnescape(u.Opaque)
	}
	if folder != "" && filepath.VolumeName(folder[1:]) != "" { // /C:/locks
		folder = folder[1:]
	}
	if folder, err = filepath.Abs(filepath.FromSlash(folder)); err != nil {
		return nil
	}
	all = append(all, folder)
	for above := filepath.Dir(folder); filepath.Dir(above) != filepath.Dir(filepath.Dir(above)); above = filepath.Dir(above) {
		all = append(all, above)
	}
	return all
}

// hostsOf returns the hosts before the path of an address, with their ports and without.
func hostsOf(address string) (all []string) {
	hosts, _, _ := strings.Cut(address, "/")
	for host := range strings.SplitSeq(hosts[strings.LastIndexByte(hosts, '@')+1:], ",") {
		name, _, _ := strings.Cut(host, ":")
		all = append(all, host, name)
	}
	return all
}
