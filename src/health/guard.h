/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guarded files during one run: who changed which. Root watches them (guard_watch.h). Elsewhere, and where a
 * file system cannot be watched, a process takes a snapshot before the run and compares after it. When the
 * watch was lost, the times of the files decide.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "state/home.h"

struct forge_guard;

/* All pointers are borrowed. */
struct forge_guard_spec {
	const struct forge_health_config *config;
	const struct forge_home *home;
	const char *run_id;
	const char *workdir;  /* NULL: not on this host */
	const char *workdirs; /* the template of all; NULL: not known */
	/* Starts the process that watches, if there is none. */
	int (*start_watcher)(const struct forge_home *home, struct forge_error *err);
	int stop_fd; /* -ECANCELED when it becomes readable; -1: none */
};

/*
 * Before the command starts. *ret is NULL when nothing is guarded. Fails when guard.mode asks for a watch, and
 * there cannot be one.
 */
FORGE_MUST_CHECK int forge_guard_begin(const struct forge_guard_spec *spec,
				       struct forge_guard **ret, struct forge_error *err);
/*
 * Processes below this one are the run's: those of a container descend from the engine. Before the command
 * starts. What fails is seen at the end: then the watch was lost.
 */
void forge_guard_note_init(struct forge_guard *g, pid_t init);
/*
 * When all processes of the run are gone. *ret is
 *   {mode: "watch" | "snapshot" | "both" | "times", note?, by_run, by_others, unattributed, files}
 * A file that only warns has "warns": true. note: why something was not observed as it was meant to be. Negative: nothing is known.
 */
FORGE_MUST_CHECK int forge_guard_end(struct forge_guard *g, int stop_fd, json_t **ret,
				     struct forge_error *err);
void forge_guard_free(struct forge_guard *g);

/* What another process needs for forge_guard_since(), should this one die. NULL: out of memory. */
json_t *forge_guard_saved(const struct forge_guard *g);
/*
 * For a run whose supervisor died: what has changed from its begin until now, by the times of the files. As
 * above, with "until_now": true. Whatever the configuration says by now, the files are those of the begin.
 * Negative: nothing is known, e.g. for the disk has not answered in time.
 */
FORGE_MUST_CHECK int forge_guard_since(const json_t *saved, uint64_t wait_usec,
				       json_t **ret, struct forge_error *err);
/*
 * How guarded files are observed here, and how many there are: {mode, why?, files, beside_workdirs?} or NULL: none is
 * guarded. beside_workdirs: a guarded path on the file system of the workdirs, where runs notice a watch most.
 */
FORGE_MUST_CHECK int forge_guard_describe(const struct forge_guard_spec *spec,
					  json_t **ret, struct forge_error *err);
