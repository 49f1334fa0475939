/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The courier: a process that reports a run to the store. So a slow or hanging
 * store cannot keep the supervisor from enforcing limits, and the supervisor stays small.
 * It is a child of the supervisor, forked when there is something to report, and exits after a while without work.
 * The runs of a pipeline share one, which has the store open already and stores in one transaction what several of
 * them report at the same time. It exits when all of its sockets are closed. A supervisor whose shared courier is
 * gone starts one of its own.
 *
 *   supervisor -> courier   a header, then a batch of forge_store_apply() as JSON text
 *   courier -> supervisor   one reply for each batch, in order
 *
 * When the supervisor dies, the courier applies the batches it has received and exits.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/error.h"

struct forge_courier {
	const char *url; /* borrowed */
	pid_t pid;	 /* 0: not running, or shared */
	int fd;		 /* -1: there is none */
	unsigned in_flight;		  /* batches sent without a reply so far */
	struct forge_error error;	  /* of the first failed batch; code 0: none */
	char other_run[FORGE_RUN_ID_MAX]; /* -EEXIST: has the idempotency key */
	bool is_same;			  /* other_run has the same request as this run */
};
#define FORGE_COURIER_INIT ((struct forge_courier){ .fd = -1 })

/* Starts the courier, which connects to the store. A failure shows in the first send. */
void forge_courier_start(struct forge_courier *c);
/*
 * Sends a batch. Never waits longer than timeout_usec for a courier that does not read.
 * is_last: the courier may exit after this batch.
 */
void forge_courier_send(struct forge_courier *c, const json_t *batch, bool durable,
			bool is_last, uint64_t timeout_usec);
/*
 * Waits for the replies to all batches. 0: all of them are stored. Negative: c->error
 * says what failed, and the courier is stopped.
 */
FORGE_MUST_CHECK int forge_courier_wait(struct forge_courier *c, uint64_t timeout_usec,
					struct forge_error *err);
/* Ends the courier; with SIGKILL if a reply is missing. */
void forge_courier_stop(struct forge_courier *c);

/* ---- a courier for many runs ---- */

/* Its socket, on which it gets those of runs. It goes on until this one and all of those are closed. */
struct forge_shared_courier {
	pid_t pid;
	int fd; /* -1: none */
};
#define FORGE_SHARED_COURIER_INIT ((struct forge_shared_courier){ .fd = -1 })

/* Starts one, as a child of this process. Must be called before a store is opened. url is borrowed until then. */
FORGE_MUST_CHECK int forge_courier_share(const char *url,
					 struct forge_shared_courier *ret);
/* A socket for a run, for forge_run_request. Negative: there is none; never waits for a courier that is busy. */
FORGE_MUST_CHECK int forge_courier_connect(struct forge_shared_courier *s);
void forge_courier_unshare(struct forge_shared_courier *s);
