#!/usr/bin/env bash
# Runs schedules of the simulator: sim.sh DURATION SCHEDULES SEED PROCESSES [RECORD]. Each process runs one schedule at a time,
# so that one core is busy with it. SCHEDULES, unless 0, goes before DURATION. What has run is appended to the file RECORD, if
# there is one; then the sum of its lines is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
duration=$1 schedules=$2 seed=$3 processes=$4 record=${5-}
mkdir -p .cache/sim
commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
if [ -n "$record" ]; then record=$(realpath -m "$record"); fi
# The compiler gets a profile of the simulator, which makes a schedule a tenth cheaper.
profile=$PWD/.cache/sim/profile
if [ ! -s "$profile" ]; then
	${GO:-go} -C test/sim test -c -o ../../.cache/sim/sim.test .
	GOMAXPROCS=1 .cache/sim/sim.test -test.run='^TestSchedules$' -test.cpuprofile="$profile" -sim.count=500 >/dev/null || rm -f "$profile"
fi
pgo=off
if [ -s "$profile" ]; then pgo=$profile; fi
${GO:-go} -C test/sim test -c -pgo="$pgo" -o ../../.cache/sim/sim.test .
[ "$seed" != 0 ] || seed=$(date +%s)0000
args=(-sim.duration="$duration")
[ "$schedules" = 0 ] || args=(-sim.count=$(((schedules + processes - 1) / processes)))
echo "seeds from $seed, in $processes processes"
pids=()
for i in $(seq 0 $((processes - 1))); do
	GODEBUG=adaptivestackstart=1 GOMAXPROCS=1 GOGC=off GOMEMLIMIT=500MiB .cache/sim/sim.test -test.run='^TestSchedules$' \
		-test.timeout=0 -sim.seed=$((seed + i)) -sim.stride="$processes" "${args[@]}" -sim.record="$record" -sim.commit="$commit" &
	pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
if [ -n "$record" ] && [ -f "$record" ]; then
	awk -F'[:,}]' '{ for (i = 1; i < NF; i++) { if ($i ~ /"schedules"/) n += $(i+1);
		if ($i ~ /"minutes"/) m += $(i+1); if ($i ~ /"violations"/) v += $(i+1) } }
		END { printf "in all %d schedules, %d minutes of one process, %d violations\n", n, m, v }' "$record"
fi
exit $status
