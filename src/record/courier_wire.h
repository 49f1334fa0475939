/* SPDX-License-Identifier: Apache-2.0 */
/* For courier.c and courier_serve.c, and for no other file: what goes through the socket, and the serving side. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"

/* Before the text of each batch. */
struct forge_courier_header {
	uint32_t len;
	bool durable, is_last;
};

/* One for each batch, in order. */
struct forge_courier_reply {
	int rc;
	struct forge_error error;
	char other_run[FORGE_RUN_ID_MAX];
	bool is_same; /* other_run has the same request */
};

/*
 * The process of a courier: does not return. fd is the socket of its run or, with is_shared, that of the launcher,
 * on which the sockets of runs come.
 */
_Noreturn void forge_courier_serve(int fd, bool is_shared, const char *url);
