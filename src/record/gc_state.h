/* SPDX-License-Identifier: Apache-2.0 */
/* For gc.c and gc_runs.c: what one garbage collection knows. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"
#include "record/gc.h"
#include "state/home.h"
#include "store/store.h"

struct forge_gc {
	const struct forge_config *cfg;
	struct forge_home home;
	struct forge_store *store; /* NULL: unreachable */
	const char *url;
	FILE *say;
	int log_fd;
	bool dry_run;
	time_t now;
	int done;
	struct forge_strv references; /* digests, sorted before use */
	struct forge_strv failures;   /* one message each */
	char (*stored)
		[FORGE_RUN_ID_MAX]; /* runs of this user that the store has, sorted; may be too few */
	size_t n_stored;
	bool is_blind; /* a record could not be read, and may point to any object */
};

/* A failure does not stop the rest of the work; it is reported at the end. */
FORGE_PRINTF(2, 3) void forge_gc_failed(struct forge_gc *g, const char *fmt, ...);
/* Reports and logs a change. False: dry run, the change must not be made. */
bool forge_gc_may_change(struct forge_gc *g, const char *what, const char *name,
			 uint64_t bytes);
bool forge_gc_is_older(const struct forge_gc *g, time_t then, uint64_t usec);
/* At the end of a listing; a directory that does not exist counts as empty. */
void forge_gc_check_end(struct forge_gc *g, const struct forge_entries *d,
			const char *name);
/* Removes a file, which may be gone. */
void forge_gc_unlink(struct forge_gc *g, int dir, const char *name);
/* Files of forge_replace_file(), named ".<name>.<pid>", whose process was killed. */
void forge_gc_sweep_unfinished(struct forge_gc *g, int dir, const char *in);

/* Notes the digests of the outputs as references. */
FORGE_MUST_CHECK int forge_gc_keep_outputs(struct forge_gc *g, const json_t *record);
/* Which runs the store has: asked once, before other processes have to wait for this one. */
void forge_gc_list_stored(struct forge_gc *g);
/* Closes, stores again, and removes logs and kept workdirs that are too old. Notes all references of runs. */
FORGE_MUST_CHECK int forge_gc_sweep_runs(struct forge_gc *g, struct forge_error *err);
