/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Live logs. A follower is one reader of one log: it turns new bytes of the file into events until the run is over. One
 * thread watches the directories of all runs that are followed, and wakes the followers whose run has written something;
 * followers themselves have no thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "state/home.h"

struct forge_follow; /* all of them */
struct forge_follower;

/* What followers ask; any thread may call it. */
struct forge_follow_ops {
	/* The record of the run as it is now, NULL: unknown. */
	json_t *(*record)(void *arg, const char *run_id);
	/* Its log as it is now; -1: there is none yet. */
	int (*open_log)(void *arg, const char *run_id, const char *stream);
	void *arg;
	const struct forge_home *home;
};
/* Starts the thread that watches. ops is borrowed. */
FORGE_MUST_CHECK int forge_follow_start(const struct forge_follow_ops *ops,
					struct forge_follow **ret,
					struct forge_error *err);
/* All followers must be freed before. */
void forge_follow_stop(struct forge_follow *f);
/* Every follower ends with its next read. */
void forge_follow_end_all(struct forge_follow *f);

#define FORGE_FOLLOWERS_MAX 512
/* Follows a log ("stdout", "stderr") from this offset on. -EMFILE: there are too many followers. */
FORGE_MUST_CHECK int forge_follower_new(struct forge_follow *f, const char *run_id,
					const char *stream, uint64_t offset,
					struct forge_follower **ret,
					struct forge_error *err);
/* Must be called before the first read. wake(arg): the follower whose last read gave 0 may have something. */
void forge_follower_attach(struct forge_follower *r, void (*wait)(void *arg),
			   void (*wake)(void *arg), void *arg);
/*
 * The next bytes of the stream of events, at most max; 0: none yet, and wake() will be called; -1: the end. Before it returns
 * 0 it calls wait(arg), with a lock held that keeps wake() away.
 */
ssize_t forge_follower_read(struct forge_follower *r, char *buf, size_t max);
/* Accepts NULL. */
void forge_follower_free(struct forge_follower *r);
