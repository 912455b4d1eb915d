#!/usr/bin/env bash
# A Docker engine for the integration suite on a Linux machine that has none.
#
#   engine.sh start   use a running engine, or install one with apt-get and start it
#   engine.sh env     pull the images, or build local ones; print the variables that make the suite use them:
#                     eval "$(integration/images/engine.sh env)"
#   engine.sh stop    stop the engine, if "start" started it
#
# Its files are in .cache/docker, or in HOLDFAST_DOCKER_DIR.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=${HOLDFAST_DOCKER_DIR:-$root/.cache/docker}
pidfile=$dir/dockerd.pid
log=$dir/dockerd.log

as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo -n); fi

say() { echo "engine: $*" >&2; }

answers() { timeout 20 docker version --format '{{.Server.Version}}' 2>/dev/null; }

# install PACKAGE… with apt-get.
install() {
	if [ $# = 0 ]; then return; fi
	if ! command -v apt-get >/dev/null; then
		say "missing: $*; cannot install without apt-get"
		return 1
	fi
	say "installing $*"
	"${as_root[@]}" apt-get update -qq &&
		"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

start() {
	local version missing=()
	# Only two things need these: the test of docker-compose.yml, and building local images.
	command -v docker-compose >/dev/null || docker compose version >/dev/null 2>&1 || missing+=(docker-compose)
	command -v busybox >/dev/null || missing+=(busybox-static)
	install "${missing[@]}" || say "continuing without ${missing[*]}"
	if ! answers >/dev/null; then
		missing=()
		command -v dockerd >/dev/null || missing+=(docker.io)
		command -v docker >/dev/null || missing+=(docker.io)
		command -v iptables >/dev/null || missing+=(iptables)
		install "${missing[@]}"
	fi
	if version=$(answers); then # it was running, or installing the package has started it
		say "Docker engine $version answers"
		return
	fi
	mkdir -p "$dir"
	"${as_root[@]}" rm -f "$pidfile"
	"${as_root[@]}" setsid dockerd --group "$(id -gn)" --data-root "$dir/data" --exec-root "$dir/exec" -p "$pidfile" \
		>"$log" 2>&1 </dev/null &
	for _ in $(seq 120); do
		if version=$(answers); then
			say "Docker engine $version started, its data is in $dir"
			return
		fi
		sleep 0.5
	done
	say "the Docker engine does not answer after a minute; its log ends with:"
	tail -n 20 "$log" >&2
	return 1
}

stop() {
	if [ ! -f "$pidfile" ]; then return; fi
	local pid
	pid=$(cat "$pidfile")
	"${as_root[@]}" kill "$pid" 2>/dev/null || true
	for _ in $(seq 60); do
		if ! "${as_root[@]}" kill -0 "$pid" 2>/dev/null; then
			say 'Docker engine stopped'
			return
		fi
		sleep 0.5
	done
	say "the Docker engine, process $pid, does not stop"
	return 1
}

# has IMAGE: succeeds if the image is present or can be pulled.
has() {
	docker image inspect "$1" >/dev/null 2>&1 || timeout 300 docker pull -q "$1" >/dev/null 2>&1
}

# choose VARIABLE OFFICIAL LOCAL: prints the export of the image to use: the one that the variable names, else the
# official one if it is available, else the local one.
choose() {
	local image=${!1:-}
	if [ -z "$image" ]; then
		if has "$2"; then
			image=$2
		else
			image=$3
			local_images=1
		fi
	fi
	say "$1=$image"
	echo "export $1=$image"
}

environment() {
	local local_images=0 list variable official own
	if ! answers >/dev/null; then return; fi # the suite reports this and says what to do
	list=$(cd "$root/integration" && go run ./images/build -list)
	while read -r variable official own; do choose "$variable" "$official" "$own"; done <<<"$list"
	if [ "$local_images" = 1 ]; then
		say 'an official image cannot be pulled: building local ones'
		(cd "$root/integration" && go run ./images/build) >&2
	fi
	# testcontainers removes containers of killed tests with a container of its own (ryuk), which needs an image. It also
	# detects the host of published ports, and fails if this machine looks like a container without being one.
	if ! has testcontainers/ryuk:0.14.0; then echo 'export TESTCONTAINERS_RYUK_DISABLED=true'; fi
	if [ -e /.dockerenv ] && [ -z "${DOCKER_HOST:-}" ]; then echo 'export TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1'; fi
}

case ${1:-} in
start) start ;;
stop) stop ;;
env) environment ;;
*)
	sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
	exit 2
	;;
esac
