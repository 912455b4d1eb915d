#!/usr/bin/env bash
# certify.sh URL|IMAGE runs "holdfast certify" on a backend, and leaves its report in .cache/certified/NAME.json.
# For an image, such as mongo:8 or holdfast-local/postgres:18.6, it starts a server in a container, which it removes at the end: a replica
# set of one member, or a database. DURATION is that of a soak, by default none. A URL of a backend that only the full build has needs
# TAGS=full.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
what=${1:?usage: tools/certify.sh URL|IMAGE}
docker=${DOCKER:-docker} container='' tags=${TAGS:-} password=for3minutes # in no table's name, or the report would show a secret
port=$((20000 + RANDOM % 10000)) # a member of a replica set has the same one inside the container and outside
image=${what##*/}
case $what in *://* | file:* | kubernetes:*) image='' ;; esac # a URL may end like an image
name=${image/:/-}
trap 'rm -f "bin/certify-$name"; [ -z "$container" ] || "$docker" rm --force --volumes "$container" >/dev/null' EXIT
ready() { # COMMAND…: repeats it inside the container until it succeeds
	for _ in $(seq 120); do
		if "$docker" exec "$container" "$@" >/dev/null 2>&1; then return; fi
		sleep 1
	done
	"$docker" logs --tail 20 "$container" >&2
	echo "certify.sh: the server of $what did not start within two minutes" >&2
	return 1
}
case $image in
mongo:[0-9]*)
	container=$("$docker" run --detach --publish "127.0.0.1:$port:$port" "$what" --replSet rs0 --port "$port")
	shell=(mongosh --quiet "mongodb://127.0.0.1:$port/?directConnection=true" --eval)
	ready "${shell[@]}" 'db.hello()'
	"$docker" exec "$container" "${shell[@]}" "rs.initiate({_id: 'rs0', members: [{_id: 0, host: '127.0.0.1:$port'}]})" >/dev/null
	ready sh -c '"$@" | grep true' - "${shell[@]}" 'db.hello().isWritablePrimary'
	export HOLDFAST_BACKEND="mongodb://127.0.0.1:$port/certify?replicaSet=rs0"
	;;
postgres:[0-9]*)
	container=$("$docker" run --detach --publish "127.0.0.1:$port:5432" --env POSTGRES_PASSWORD=$password "$what")
	ready pg_isready --quiet --host 127.0.0.1 # while it is set up, the server listens on a socket alone
	export HOLDFAST_BACKEND="postgres://postgres:$password@127.0.0.1:$port/postgres?sslmode=disable"
	;;
mysql:[0-9]* | mariadb:[0-9]*)
	tags=full
	container=$("$docker" run --detach --publish "127.0.0.1:$port:3306" --env MYSQL_RANDOM_ROOT_PASSWORD=yes --env MYSQL_DATABASE=app \
		--env MYSQL_USER=app --env MYSQL_PASSWORD=$password "$what")
	# While it is set up, the server has a socket alone.
	ready "${image%%:*}" --host 127.0.0.1 --user app --password=$password --execute 'SELECT 1' app
	export HOLDFAST_BACKEND="mysql://app:$password@127.0.0.1:$port/app"
	;;
redis:[0-9]*)
	tags=full
	container=$("$docker" run --detach --publish "127.0.0.1:$port:6379" "$what" redis-server --appendonly yes)
	ready sh -c 'redis-cli ping | grep PONG'
	export HOLDFAST_BACKEND="redis://127.0.0.1:$port/0"
	;;
'') name=${what%%:*} HOLDFAST_BACKEND=$what && export HOLDFAST_BACKEND ;;
*) echo "certify.sh: $what is neither a URL nor a version of mongo, postgres, mysql, mariadb or redis" >&2; exit 2 ;;
esac
mkdir -p .cache/certified
CGO_ENABLED=0 ${GO:-go} -C cmd/holdfast build -trimpath -tags "$tags" -o "$PWD/bin/certify-$name" . # there may be several at once
code=0
"bin/certify-$name" certify --for "${DURATION:-0s}" --json >".cache/certified/$name.json" || code=$?
echo ".cache/certified/$name.json: code $code"
# A single server is doubtful: it has nobody to fail over to.
[ "$code" = 0 ] || [ "$code" = 3 ]
