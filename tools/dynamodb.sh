#!/usr/bin/env bash
# dynamodb.sh installs moto, another implementation of DynamoDB's protocol, once, into .cache/moto-VERSION, and runs the tests of the driver
# on it: conformance, contention through a network that fails, transactions, doctor. "dynamodb.sh build" does no more than install. It
# needs Python 3.10 or later. FLAGS go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
go=${GO:-go} version=5.2.5

# build prints the path of a Python that has moto.
build() {
	local folder=$PWD/.cache/moto-$version
	if [ ! -e "$folder/installed" ]; then
		echo "installing moto $version into $folder" >&2
		rm -rf "$folder"
		python3 -m venv "$folder" >&2
		"$folder/bin/pip" install --quiet --disable-pip-version-check "moto[server]==$version" >&2
		touch "$folder/installed"
	fi
	echo "$folder/bin/python"
}

HOLDFAST_TEST_MOTO=${HOLDFAST_TEST_MOTO:-$(build)}
[ "${1:-}" != build ] || exit 0
export HOLDFAST_TEST_MOTO
"$go" -C drivers/aws test -count=1 -timeout 20m -run Moto ${FLAGS:-} ./dynamodb/...
