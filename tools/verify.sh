#!/usr/bin/env bash
# verify.sh [PART…] runs every check, or these parts of them, and says how long each takes. It goes on after a part that fails
# and ends with a list. It needs Docker for the part integration, and three hours on two processors.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
make=${MAKE:-make}
tools="$make -f tools/tools.mk"
all='gate long newest lint vet-tool bench-tool page adapters examples stress s3 dynamodb nats kubernetes model docs integration'

part() {
	case $1 in
	gate) .ci/run ;;
	long) long ;;                               # every test, with the race detector; also the build before beside today's
	newest) $make test-newest ;;                # the newest versions of other modules
	lint) $tools lint-all && $tools licences ;;  # all modules, for Linux, macOS and Windows
	vet-tool) $tools test-vet ;;
	bench-tool) $tools test-bench ;;
	page) $tools test-page ;;                    # the page in a browser
	adapters) $tools test-adapters ;;
	examples) $tools test-examples ;;
	stress) $make stress STRESS_COUNT="${STRESS_COUNT:-2}" STRESS_TIMEOUT=20m TESTFLAGS="-run='Promise|Random|Batch|Outage'" ;;
	s3) $tools test-s3 ;;                       # a real server of the protocol
	dynamodb) $tools test-dynamodb ;;           # another implementation of the protocol
	nats) $tools test-nats ;;
	kubernetes) $tools test-kubernetes ;;       # a real API server and its etcd: 7 minutes, and 10 more to build them once
	model) HEAP=1g $make spec-quick ;;
	docs) $make docs ;;
	integration) integration ;;                 # real backends in containers with real faults, and a minute of chaos
	*) echo "verify: no part $1; there are: $all" >&2; return 2 ;;
	esac
}

long() ( # NATS has no program that a test could fetch
	export CI=true # a test whose program is missing fails
	HOLDFAST_TEST_NATS_SERVER=$(tools/nats.sh build) && export HOLDFAST_TEST_NATS_SERVER &&
		$make test SHORT= && $tools test-full
)

integration() ( # joined by &&: the shell ignores set -e in a function that is called in a condition
	trap 'integration/images/engine.sh stop' EXIT
	integration/images/engine.sh start && exports=$(integration/images/engine.sh env) && eval "$exports" &&
		$make integration && $make chaos DURATION=60s
)

failed='' summary=''
for name in ${*:-$all}; do
	begin=$SECONDS
	printf '\n=== %s\n' "$name"
	if part "$name"; then result=passed; else
		result=FAILED
		failed="$failed $name"
	fi
	summary+=$(printf '%-12s %-6s %4s s' "$name" "$result" "$((SECONDS - begin))")$'\n'
done
printf '\n=== summary (%s s)\n%s' "$SECONDS" "$summary"
[ -z "$failed" ] || { echo "verify: failed:$failed"; exit 1; }
