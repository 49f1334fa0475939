/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside src/health only: one process (`forge __guard`) watches guarded files for all runs of a FORGE_HOME.
 * The supervisor of a run connects to its socket, FORGE_HOME/guard/socket, before the command starts, and
 * asks at the end what was changed meanwhile, and by which processes.
 *
 * Both directions: a length of four bytes, then JSON.
 *   > {run_id, word, workdir, set}      < {ok, unwatched: [{path, why}]} or {error}
 *   > {init}, at most once              < {ok}
 *   > {end}                             < {changes, lost?}
 * When one side ends, the other sees the end of the connection.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"
#include "health/guard_set.h"
#include "state/home.h"

#define FORGE_GUARD_DIR	   "guard"
#define FORGE_GUARD_SOCKET "socket"
#define FORGE_GUARD_LOCK   "lock"

/* 0 or -errno. -EPIPE: the other side is gone. */
FORGE_MUST_CHECK int forge_guard_send(int fd, const json_t *message);
FORGE_MUST_CHECK int forge_guard_receive(int fd, json_t **ret);
/* Connects to, or binds, the socket in this directory; a path may be too long for that. The fd or -errno. */
FORGE_MUST_CHECK int forge_guard_connect(int dir);
FORGE_MUST_CHECK int forge_guard_bind(int dir);
