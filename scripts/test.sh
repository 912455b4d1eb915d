#!/usr/bin/env bash
# test.sh MODULES FLAG… runs the tests of the root module, and of the modules in folders MODULES beside them. The results of
# those come last.
set -euo pipefail
go=${GO:-go} modules=$1
shift
progress=$(mktemp -d)
trap 'rm -rf "$progress"' EXIT
"$go" build -o "$progress" ./internal/progress
pids=()
for module in $modules; do
	"$go" -C "$module" test -json "$@" ./... >"$progress/${module//\//-}.json" 2>&1 &
	pids+=($!)
done
status=0
"$go" test -json "$@" ./... | "$progress/progress" || status=1
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
for module in $modules; do
	echo "$module:"
	"$progress/progress" <"$progress/${module//\//-}.json" || status=1
done
exit "$status"
