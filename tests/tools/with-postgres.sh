#!/bin/bash
# with-postgres.sh COMMAND...: runs the command beside a PostgreSQL server of its own, whose URL is
# in $FORGE_TEST_PG, and stops the server afterwards, whatever happened. The command can also
# hurt it:
#   with-postgres.sh --kill       SIGKILL to all of the server
#   with-postgres.sh --start      starts it again
#   with-postgres.sh --stop       an orderly stop
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
. "$(dirname "$(realpath "$0")")/../lib/postgres.bash"

case ${1:-} in
--kill | --start | --stop)
    : "${FORGE_PG_DIR:?there is no server of with-postgres.sh}"
    "pg_${1#--}"
    exit
    ;;
'')
    echo "usage: with-postgres.sh COMMAND..." >&2
    exit 2
    ;;
esac

trap pg_remove EXIT
# A signal must end the command too, and the trap above does the rest.
trap 'exit 130' INT
trap 'exit 143' TERM HUP
pg_make || exit 1
"$@" &
command=$!
trap 'kill "$command" 2>/dev/null; wait "$command"; exit 143' INT TERM HUP
wait "$command"
