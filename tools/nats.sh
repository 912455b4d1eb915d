#!/usr/bin/env bash
# nats.sh builds nats-server once, into .cache/nats-server-VERSION, and runs the tests of the driver on it: conformance, crashes,
# contention through a network that fails, a cluster of three. The build takes two minutes; "nats.sh build" does no more and prints the
# program's path. FLAGS go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
go=${GO:-go} version=2.15.3

build() {
	local folder=$PWD/.cache/nats-server-$version
	if [ ! -x "$folder/nats-server" ]; then
		echo "building nats-server $version into $folder" >&2
		mkdir -p "$folder"
		GOBIN=$folder GOWORK=off CGO_ENABLED=0 "$go" -C / install -trimpath "github.com/nats-io/nats-server/v2@v$version" >&2
	fi
	echo "$folder/nats-server"
}

HOLDFAST_TEST_NATS_SERVER=${HOLDFAST_TEST_NATS_SERVER:-$(build)}
if [ "${1:-}" = build ]; then
	echo "$HOLDFAST_TEST_NATS_SERVER"
	exit 0
fi
export HOLDFAST_TEST_NATS_SERVER
"$go" -C drivers/nats test -count=1 -timeout 20m ${FLAGS:-} .
