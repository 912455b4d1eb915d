# Starts a PostgreSQL server in folder $1 at port $2. If the file $3 has a new line "HOST PORT NAME NUMBER", it
# first becomes a copy of the server there, and its standby. PGPASSWORD is the superuser's password, ADMIN the
# superuser.
# A process that is killed loses nothing that it has written, so nothing is forced to the disk.
set -e
mkdir -p "$1"
export PGDATA="$1/data"
if [ -s "$3" ] && ! [ "$(cat "$3")" = "$(cat "$1/followed" 2>/dev/null)" ]; then
	read -r host port name _ <"$3"
	while
		rm -rf "$PGDATA"
		! pg_basebackup --pgdata "$PGDATA" --write-recovery-conf --wal-method stream --checkpoint fast --no-sync \
			--dbname "host=$host port=$port user=$ADMIN application_name=$name connect_timeout=5"
	do sleep 0.2; done
	# The primary's own setting is copied, too: it names this server.
	echo "synchronous_standby_names = ''" >>"$PGDATA/postgresql.auto.conf"
	cat "$3" >"$1/followed"
elif [ ! -e "$PGDATA/PG_VERSION" ]; then
	echo "$PGPASSWORD" >"$1/password"
	initdb --username "$ADMIN" --pwfile "$1/password" --auth scram-sha-256 --encoding UTF8 --locale C --no-sync --no-instructions
	printf 'host all all all scram-sha-256\nhost replication all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
fi
exec postgres -p "$2" -c listen_addresses="${LISTEN:-*}" -c unix_socket_directories= -c max_connections=500 -c shared_buffers=32MB \
	-c max_wal_size=256MB -c fsync=off -c hot_standby_feedback=on -c wal_receiver_status_interval=1s -c wal_retrieve_retry_interval=200ms
