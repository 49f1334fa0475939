/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets on which the server listens. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

#define FORGE_LISTEN_MAX 8
struct forge_listen {
	int fd[FORGE_LISTEN_MAX];
	size_t n;
	char address[300]; /* "127.0.0.1:8765", of the first one */
	bool is_loopback;  /* all of them */
};

/*
 * The sockets that a service manager has passed (sd_listen_fds(3)), otherwise one bound to this address ("127.0.0.1:8765", "[::1]:0";
 * port 0: any free one).
 */
FORGE_MUST_CHECK int forge_listen_open(const char *address, struct forge_listen *ret,
				       struct forge_error *err);
void forge_listen_close(struct forge_listen *l);
