#!/usr/bin/env bash
# test.sh MODULES FLAG… runs the tests of the root module, then those of the modules in the folders MODULES. With -short in the
# flags it is the short run, which is part of the check before every change.
#
# Tests that start servers or processes depend on the machine: of these, up to three that fail are run once more, and each is
# reported in a line that begins with FLAKY. Every other test is run once, and so is each whose name says that it is about
# exclusion, tokens, histories or secrets.
set -euo pipefail
go=${GO:-go} gotestsum=${GOTESTSUM:-gotestsum} modules=$1
shift
mkdir -p .cache
cache=$PWD/.cache
export GORACE="atexit_sleep_ms=0 ${GORACE:-}" # the race detector does not sleep for a second at the end of each process
started=$SECONDS
step() { printf -- '--- %s (%s s)\n' "$1" "$((SECONDS - started))"; }

# A test of one of these is never repeated.
promises='Conformance|OneWinner|Exclu|Rollout|Token|Guard|Fence|Replace|Secret|History|Promise'

# run NAME FLAG… runs tests, with gotestsum's flags before "--" and go test's after it.
run() {
	local name=$1
	shift
	"$gotestsum" --format=pkgname-and-test-fails --format-hide-empty-pkg --jsonfile="$cache/$name.json" "$@"
}

# crashed NAME succeeds if all that failed in this run are processes that the race detector ended inside testing/synctest: Go
# 1.26 sometimes does (golang.org/issue/78156 is of the same kind). A failed test, a data race and a panic are none of that.
crashed() {
	local results=$cache/$1.json
	! grep -q '"Action":"fail".*"Test":' "$results" && ! grep -qE 'DATA RACE|panic: |FAIL: ' "$results" &&
		grep -q 'internal/synctest\.Run' "$results" && grep -qE 'SIGSEGV|SIGBUS|signal: ' "$results"
}

# exact NAME FLAG… runs tests once. Only the packages of a crash of the race detector are repeated.
exact() {
	local name=$1
	run "$@" && return
	crashed "$name" || return 1
	local packages
	packages=$(sed -nE 's/.*"Action":"fail","Package":"([^"]*)".*/\1/p' "$cache/$name.json" | sort -u)
	echo "the race detector crashed inside testing/synctest; once more:" $packages
	local flags=()
	shift
	for flag in "$@"; do case $flag in ./* | . | github.com/*) ;; *) flags+=("$flag") ;; esac; done
	run "$name-again" "${flags[@]}" $packages
}

# repeatable NAME FLAG… runs tests with servers; what failed first and passed then is reported.
repeatable() {
	local name=$1 status=0 report=$cache/$1.flaky
	shift
	: >"$report"
	run "$name" --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-abort-on-data-race --rerun-fails-report="$report" "$@" || status=$?
	[ ! -s "$report" ] || sed 's/^/FLAKY /' "$report"
	return "$status"
}

# The packages of this module whose tests start servers.
servers=$("$go" list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... |
	awk '/internal\/(serverprocess|mongotest|azuritetest)/ {print $1}')
others=$("$go" list ./... | grep -vxF "$servers")

step 'tests without servers, with the race detector'
exact exact -- -vet=off -race "$@" $others
for module in $modules; do
	[ "$module" != cmd/holdfast ] || continue
	step "$module, with the race detector"
	(cd "$module" && exact "${module//\//-}" -- -vet=off -race "$@" ./...)
done

case " $* " in
*' -short '*) race='' ;;
*) race=-race ;;
esac
step 'tests with servers: what is never repeated'
exact promises -- -vet=off $race -parallel=8 "$@" -run="$promises" $servers
step 'tests with servers: the rest'
repeatable servers --packages="$(echo $servers)" -- -vet=off $race -parallel=8 "$@" -skip="$promises"
case " $modules " in
*' cmd/holdfast '*)
	step 'the command'
	(cd cmd/holdfast && repeatable command --packages=./... -- -vet=off $race -parallel=6 "$@")
	;;
esac
step 'all tests passed'
