/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `forge serve`: an HTTP view of the store and of FORGE_HOME, and a door to start and end runs. It holds no state of its own: what it
 * shows is read when it is asked for, runs are started by executing `forge submit`, and killing it touches no run.
 *
 *	target.h   what a request says, as text           token.h    who may ask
 *	http.c     connections, by libmicrohttpd          listen.h   sockets
 *	route.c    which function answers which path      follow.h   live logs
 *	api_*.c    the functions                          command.h  forge as a program, for what starts or ends runs
 *	view.h     runs as JSON                           metrics.h  numbers for Prometheus
 *	shared.h   what all requests share                answer.h   requests and answers
 *
 * `forge mcp` (mcp*.c) stands beside it and shares nothing with it.
 *
 * Threads: a pool of libmicrohttpd answers what is quick; a request that may wait for a disk or another program
 * has a thread of its own (route.c says which), of which there are FORGE_SLOW_MAX at most. Each has its own connection
 * to the store while it asks.
 */
#pragma once

#include "server/shared.h"

#define FORGE_SERVER_PORT "8765"

/*
 * Serves until SIGTERM or SIGINT. Sockets that a service manager passes (sd_listen_fds(3)) are used
 * instead of options.listen.
 */
FORGE_MUST_CHECK int forge_server_run(const struct forge_config *cfg,
				      const struct forge_server_options *options,
				      struct forge_error *err);
