/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: all runs of one FORGE_HOME together stay within the host's budget. No daemon: those
 * who run and those who wait are locked files in queue/, so the kernel itself says who is dead.
 *
 *   s-<memory>-<cpus>-<run id>              a share that is in use
 *   w-<priority>-<time>-<run id>            a ticket; names sort in the order of service
 *
 * Only the first in line may take a share, so a big run is never overtaken for ever. Each waiter
 * waits for the end of the one before it; the first watches the shares. When anybody ends or is
 * killed, the kernel closes its file, and that wakes exactly the one whom it concerns.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "state/home.h"

struct forge_need {
	uint64_t bytes, milli; /* FORGE_UNLIMITED: all there is */
	int priority;
	const char *run_id;
	unsigned slot; /* in active/; only its holder uses spare/<slot>.* */
};

struct forge_share {
	int dir_fd, fd; /* -1: none */
	unsigned slot;
	char name[NAME_MAX + 1];
};
#define FORGE_SHARE_INIT ((struct forge_share){ .dir_fd = -1, .fd = -1 })

struct forge_budget {
	uint64_t bytes, milli, runs;
};

/* A place in line. */
struct forge_ticket {
	const struct forge_home *home;
	struct forge_need need;
	struct forge_budget budget;
	uint64_t deadline;
	int dir_fd, fd; /* -1: none */
	int watch; /* the ticket before ours, or inotify on the shares; readable: look again */
	bool was_told; /* of a share, just now */
	char name[NAME_MAX + 1];
	char watched[NAME_MAX + 1]; /* a ticket, or "." for the shares; "" nothing yet */
};
#define FORGE_TICKET_INIT ((struct forge_ticket){ .dir_fd = -1, .fd = -1, .watch = -1 })

void forge_budget_of(const struct forge_config *cfg, struct forge_budget *ret);

/* -E2BIG: a run with this need can never be admitted; err has the sentence. */
FORGE_MUST_CHECK int forge_admit_check(const struct forge_config *cfg,
				       const struct forge_need *need,
				       struct forge_error *err);
/*
 * 0: *ret is held. 1: there is no room now. -E2BIG: there never can be; err has the sentence.
 */
FORGE_MUST_CHECK int forge_admit_try(const struct forge_home *home,
				     const struct forge_config *cfg,
				     const struct forge_need *need,
				     struct forge_share *ret, struct forge_error *err);
/*
 * Waits in line until nobody is before us. 0: *ret is held, and while we wait for the share there is
 * time to prepare; -ECANCELED: a signal of signal_fd came; -ETIMEDOUT: longer than
 * queue.max_wait. *ret is to be left in any case.
 */
FORGE_MUST_CHECK int forge_admit_queue(const struct forge_home *home,
				       const struct forge_config *cfg,
				       const struct forge_need *need, int signal_fd,
				       struct forge_ticket *ret, struct forge_error *err);
/* Waits for the share, as the first in line. */
FORGE_MUST_CHECK int forge_admit_take(struct forge_ticket *t, int signal_fd,
				      struct forge_share *ret, struct forge_error *err);
/* Out of the line, with the share or without. Accepts FORGE_TICKET_INIT. */
void forge_admit_leave(struct forge_ticket *t);
void forge_admit_release(struct forge_share *s);
/*
 * Why a queued run with this need waits: "waits for 1 CPU: 2 of 2 in use". Looks only. Returns buf.
 */
#define FORGE_WHY_MAX 160
const char *forge_admit_why(const struct forge_home *home, const struct forge_config *cfg,
			    const struct forge_need *need, char buf[FORGE_WHY_MAX]);
/* Asks remove of each file that a dead one left, and does as it says. */
FORGE_MUST_CHECK int forge_admit_sweep(const struct forge_home *home,
				       bool (*remove)(void *arg, const char *name),
				       void *arg, struct forge_error *err);
