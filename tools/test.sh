#!/usr/bin/env bash
# test.sh MODULES FLAG… runs the tests of the root module, then those of the modules in the folders MODULES. With -short in the
# flags it is the short run, which is part of the check before every change.
#
# Tests that start servers or processes depend on the machine: of these, up to three that fail are run once more, and each is
# reported in a line that begins with FLAKY. Every other test is run once, and so is each whose name says that it is about
# exclusion, tokens, histories or secrets.
#
# A stage that fails does not keep the next ones from running. The last lines say which stages failed, and in which packages.
set -euo pipefail
go=${GO:-go} gotestsum=${GOTESTSUM:-gotestsum} modules=$1
shift
mkdir -p .cache
top=$PWD cache=$PWD/.cache
export GORACE="atexit_sleep_ms=0 ${GORACE:-}" # the race detector does not sleep for a second at the end of each process
started=$SECONDS
step() { printf -- '--- %s (%s s)\n' "$1" "$((SECONDS - started))"; }

# A test of one of these is never repeated.
promises='Conformance|OneWinner|Exclu|Rollout|Token|Guard|Fence|Replace|Secret|History|Promise'

# run NAME FLAG… runs tests, with gotestsum's flags before "--" and go test's after it.
run() {
	local name=$1
	shift
	"$gotestsum" --format=pkgname-and-test-fails --format-hide-empty-pkg --hide-summary=skipped --jsonfile="$cache/$name.json" "$@"
}

# crashed NAME succeeds if all that failed in this run are processes that the race detector ended inside testing/synctest: Go
# 1.26 sometimes does (golang.org/issue/78156 is of the same kind). A failed test, a data race and a panic are none of that.
crashed() {
	local results=$cache/$1.json
	! grep -q '"Action":"fail".*"Test":' "$results" && ! grep -qE 'DATA RACE|panic: |FAIL: ' "$results" &&
		grep -q 'internal/synctest\.Run' "$results" && grep -qE 'SIGSEGV|SIGBUS|signal: ' "$results"
}

# exact NAME PACKAGES FLAG… runs tests once. Only the packages of a crash of the race detector are repeated.
exact() {
	local name=$1 packages=$2
	shift 2
	run "$name" -- -vet=off "$@" $packages && return
	crashed "$name" || return 1
	packages=$(sed -nE 's/.*"Action":"fail","Package":"([^"]*)".*/\1/p' "$cache/$name.json" | sort -u)
	echo "the race detector crashed inside testing/synctest; once more:" $packages
	run "$name-again" -- -vet=off "$@" $packages
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

# packages KIND prints the packages of the module in the working directory whose tests start servers, or the others.
packages() {
	local want=${1/servers/yes}
	"$go" list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | awk -v want="${want/others/no}" '
		{ is = /\/test\/(serverprocess|mongotest|azuritetest|postgrestest|redistest|mysqltest|etcdtest|natstest|backendtest)/ ? "yes" : "no" }
		is == want { print $1 }'
}

failed=()

# stage WHAT NAME COMMAND… runs a stage, whose results are in the file of NAME.
stage() {
	local what=$1 name=$2
	shift 2
	step "$what"
	"$@" || failed+=("$what: $(sed -nE 's/.*"Action":"fail","Package":"([^"]*)".*/\1/p' "$cache/$name.json" | sort -u | tr '\n' ' ')")
}

case " $* " in
*' -short '*) race='' ;;
*) race=-race ;;
esac
for module in . $modules; do
	cd "$top/$module"
	names=$(packages others)
	[ -n "$names" ] || continue
	name=exact-${module//\//-} fresh=''
	[ "$module" = . ] || fresh=-count=1 # some read files of the root module, which Go's cache does not watch
	stage "$module: tests without servers, with the race detector" "$name" exact "$name" "$names" -race $fresh "$@"
done
for module in . $modules; do
	cd "$top/$module"
	names=$(packages servers)
	[ -n "$names" ] || continue
	name=promises-${module//\//-}
	stage "$module: tests with servers or processes: what is never repeated" "$name" \
		exact "$name" "$names" $race -count=1 -parallel=8 "$@" -run="$promises"
	name=servers-${module//\//-}
	stage "$module: tests with servers or processes: the rest" "$name" \
		repeatable "$name" --packages="$(echo $names)" -- -vet=off $race -count=1 -parallel=8 "$@" -skip="$promises"
done
if [ ${#failed[@]} -gt 0 ]; then
	step 'failed:'
	printf '    %s\n' "${failed[@]}"
	exit 1
fi
step 'all tests passed'
