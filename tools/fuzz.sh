#!/usr/bin/env bash
# fuzz.sh TIME REGEXP runs each fuzz test of the module in the working directory whose name matches REGEXP, one after
# another, for TIME each. It stops at the first failure, whose input is then a file in the package's testdata/fuzz.
set -euo pipefail
go=${GO:-go}

files='{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}'
folders=$("$go" list -f "$files" ./... | xargs grep -l '^func Fuzz' | sed 's|/[^/]*$||' | sort -u)
for folder in $folders; do
	tests=$("$go" test -vet=off -list "$2" "$folder" | grep '^Fuzz' || true)
	for test in $tests; do
		printf '\n%s %s\n' "${folder#"$PWD"/}" "$test"
		"$go" test -vet=off -run '^$' -fuzz "^$test\$" -fuzztime "$1" -fuzzminimizetime 100x "$folder"
	done
done
