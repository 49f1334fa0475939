/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: all runs of one FORGE_HOME together stay within the host's budget. There is
 * no daemon: the shares in use and the tickets of waiting runs are files (state/queue.h).
 *
 * Only the first run in the queue may take a share, so small runs never overtake a big
 * one for ever. The first few runs prepare while they wait. Each waiting run waits for a
 * ticket before its own; the first one watches the shares. When a supervisor ends or is
 * killed, the kernel closes its file, and that wakes only the runs that wait for it.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "spec/spec.h"

#include "base/error.h"
#include "config/budget.h"
#include "state/home.h"

struct forge_need {
	uint64_t memory_bytes, cpus_milli; /* FORGE_UNLIMITED: all there is */
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

/* A place in the queue. */
struct forge_ticket {
	const struct forge_home *home;
	struct forge_need need;
	struct forge_budget budget;
	uint64_t deadline;
	int dir_fd, fd; /* -1: none */
	int watch;	/* a ticket before ours */
	int shares;	/* inotify on the shares */
	bool was_woken; /* by a share, at the last wait */
	char name[NAME_MAX + 1];
	char watched[NAME_MAX + 1]; /* a ticket, or "." for the shares; "" nothing yet */
};
#define FORGE_TICKET_INIT                                                                \
	((struct forge_ticket){ .dir_fd = -1, .fd = -1, .watch = -1, .shares = -1 })

/* The need of a run, or of its post-process, which uses the same share, if larger. */
struct forge_need forge_admit_need(const struct forge_config *cfg,
				   const struct forge_spec *spec, unsigned slot);

/* -E2BIG: a run with this need can never be admitted; err says why. */
FORGE_MUST_CHECK int forge_admit_check(const struct forge_config *cfg,
				       const struct forge_need *need,
				       struct forge_error *err);
/* 0: *ret holds a share. 1: no room now. -E2BIG: there never is; err says why. */
FORGE_MUST_CHECK int forge_admit_try(const struct forge_home *home,
				     const struct forge_config *cfg,
				     const struct forge_need *need,
				     struct forge_share *ret, struct forge_error *err);
/* Takes a share whatever is in use: the run is running already. */
FORGE_MUST_CHECK int forge_admit_hold(const struct forge_home *home,
				      const struct forge_config *cfg,
				      const struct forge_need *need,
				      struct forge_share *ret, struct forge_error *err);
/*
 * Queues a run and waits until it is one of the first in the queue: one for every two CPUs
 * of the budget. 0: *ret holds a ticket, and the caller can prepare the run while it waits
 * for the share; -ECANCELED: signal_fd became readable; -ETIMEDOUT: queue.max_wait has passed.
 * In every case *ret must be passed to forge_admit_leave().
 */
FORGE_MUST_CHECK int forge_admit_queue(const struct forge_home *home,
				       const struct forge_config *cfg,
				       const struct forge_need *need, int signal_fd,
				       struct forge_ticket *ret, struct forge_error *err);
/* Waits until the ticket is the first in the queue, and then for the share. */
FORGE_MUST_CHECK int forge_admit_take(struct forge_ticket *t, int signal_fd,
				      struct forge_share *ret, struct forge_error *err);
/* Leaves the queue, with or without a share. Accepts FORGE_TICKET_INIT. The ticket can be used again. */
void forge_admit_leave(struct forge_ticket *t);
void forge_admit_release(struct forge_share *s);
/*
 * Why a queued run with this need waits: "waits for 1 CPU: 2 of 2 in use". Changes
 * nothing. Returns buf.
 */
#define FORGE_WHY_MAX 160
const char *forge_admit_why(const struct forge_home *home, const struct forge_config *cfg,
			    const struct forge_need *need, char buf[FORGE_WHY_MAX]);
/* What the runs of this host have and wait for now. Changes nothing. */
struct forge_load {
	struct forge_budget budget, used;
	uint64_t queued, oldest_wait_usec;
};
FORGE_MUST_CHECK int forge_admit_load(const struct forge_home *home,
				      const struct forge_config *cfg,
				      struct forge_load *ret, struct forge_error *err);
