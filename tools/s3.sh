#!/usr/bin/env bash
# s3.sh builds versitygw, a server of S3's protocol, once, into .cache/versitygw-VERSION, and runs the tests of the driver on it:
# conformance with a crash, contention through a network that fails, doctor. It also builds a version that lets several conditional
# writes win, which the driver must refuse. The build takes two minutes; "s3.sh build" does no more. FLAGS go to go test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
go=${GO:-go}

# build VERSION prints the program's path.
build() {
	local folder=$PWD/.cache/versitygw-$1
	if [ ! -x "$folder/versitygw" ]; then
		echo "building versitygw $1 into $folder" >&2
		mkdir -p "$folder"
		GOBIN=$folder GOWORK=off CGO_ENABLED=0 "$go" -C / install -trimpath "github.com/versity/versitygw/cmd/versitygw@v$1" >&2
	fi
	echo "$folder/versitygw"
}

HOLDFAST_TEST_VERSITYGW=${HOLDFAST_TEST_VERSITYGW:-$(build 1.8.0)}
HOLDFAST_TEST_VERSITYGW_FAULTY=${HOLDFAST_TEST_VERSITYGW_FAULTY:-$(build 1.7.0)}
[ "${1:-}" != build ] || exit 0
export HOLDFAST_TEST_VERSITYGW HOLDFAST_TEST_VERSITYGW_FAULTY
"$go" -C drivers/aws test -count=1 -timeout 20m -run Gateway ${FLAGS:-} ./s3
