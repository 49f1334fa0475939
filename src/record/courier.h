/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The courier: a child process that tells the store about one run, so that a slow or hanging
 * store can never keep the supervisor from its limits, and so that the supervisor stays small. It
 * is forked when there is something to tell and goes away when there has been nothing for a while.
 *
 *   supervisor -> courier   a header, then a batch of forge_store_apply() as JSON text
 *   courier -> supervisor   one reply a batch, in order
 *
 * When the supervisor dies the courier finishes what it has received and ends.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/error.h"

struct forge_courier {
	const char *url; /* borrowed */
	pid_t pid;	 /* 0: none at the moment */
	int fd;
	unsigned in_flight;	  /* sent, not answered */
	struct forge_error error; /* of the first batch that failed; code 0: none */
	char other_run[FORGE_RUN_ID_MAX]; /* -EEXIST: who has the idempotency key */
	bool is_same;			  /* other_run was asked for the same as ours */
};
#define FORGE_COURIER_INIT ((struct forge_courier){ .fd = -1 })

/* Starts one and lets it connect already; a failure shows when something is sent. */
void forge_courier_start(struct forge_courier *c);
/*
 * Hands a batch over; never waits longer than timeout_usec for a courier that does not take it.
 * is_last: it may go home afterwards.
 */
void forge_courier_send(struct forge_courier *c, const json_t *batch, bool durable,
			bool is_last, uint64_t timeout_usec);
/*
 * Waits until everything sent is answered. 0: all is in the store. Negative: c->error says what
 * was not; the courier is gone then.
 */
FORGE_MUST_CHECK int forge_courier_wait(struct forge_courier *c, uint64_t timeout_usec,
					struct forge_error *err);
/* Ends it, at once if it is in the middle of something. */
void forge_courier_stop(struct forge_courier *c);
