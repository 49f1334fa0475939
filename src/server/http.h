/* SPDX-License-Identifier: Apache-2.0 */
/* Connections, by libmicrohttpd. http.c alone knows it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct forge_server;

/*
 * Starts to serve on listening sockets, which it takes over. It goes on in threads of its own until
 * forge_http_stop().
 */
struct forge_http;
FORGE_MUST_CHECK int forge_http_start(struct forge_server *sv, const int *listen_fds,
				      size_t n, struct forge_http **ret,
				      struct forge_error *err);
/* Ends all connections; followers get the end of their stream. */
void forge_http_stop(struct forge_http *h);
/* Ends connections whose client sends too slowly. To be called every second. */
void forge_http_tick(struct forge_http *h);
/* Requests that were answered, and those being answered now. */
struct forge_http_counts {
	uint64_t answered, refused, open;
};
void forge_http_counts(struct forge_http *h, struct forge_http_counts *ret);
