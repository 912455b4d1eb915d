#!/usr/bin/env bash
# Runs schedules of the simulator: sim.sh DURATION SCHEDULES SEED PROCESSES. Each process runs one schedule at a time, so
# that one core is busy with it. SCHEDULES, unless 0, goes before DURATION.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
duration=$1 schedules=$2 seed=$3 processes=$4
mkdir -p .cache/sim
${GO:-go} -C sim test -c -o ../.cache/sim/sim.test .
[ "$seed" != 0 ] || seed=$(date +%s)0000
args=(-sim.duration="$duration")
[ "$schedules" = 0 ] || args=(-sim.count=$(((schedules + processes - 1) / processes)))
echo "seeds from $seed, in $processes processes"
pids=()
for i in $(seq 0 $((processes - 1))); do
	GOMAXPROCS=1 GOGC=1000 .cache/sim/sim.test -test.run='^TestSchedules$' -test.timeout=0 \
		-sim.seed=$((seed + i)) -sim.stride="$processes" "${args[@]}" &
	pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
	wait "$pid" || status=1
done
exit $status
