#!/usr/bin/env bash
# newest.sh MODFILE PACKAGE… writes a copy of go.mod to MODFILE in which every required module has its newest version.
# go.mod itself requires the oldest versions that work, for the sake of the library's users. A version is skipped, and
# the next older one tried, if it needs a newer Go or a module that cannot be downloaded.
set -euo pipefail
file=$1
shift
export GOTOOLCHAIN=local

mkdir -p "$(dirname "$file")"
cp go.mod "$file"
cp go.sum "${file%.mod}.sum"
for module in $(go list -m -f '{{if not (or .Main .Indirect .Replace)}}{{.Path}}{{end}}' all); do
	for version in $(go list -m -versions -f '{{join .Versions "\n"}}' "$module" | grep -v -e '-' | tail -n 5 | sed '1!G;h;$!d'); do
		cp "$file" "$file.was"
		if go get -modfile="$file" "$module@$version" >"$file.log" 2>&1 &&
			go list -mod=mod -modfile="$file" -deps -test "$@" >>"$file.log" 2>&1; then
			echo "$module $version"
			break
		fi
		echo "$module $version cannot be used: $(tail -n 1 "$file.log")"
		cp "$file.was" "$file"
	done
done
