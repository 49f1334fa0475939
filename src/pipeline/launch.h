/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task as a run, in a process of its own. Four kinds of processes work on a pipeline:
 *
 *	head         one for a pipeline; decides what runs, has the store open           head.c
 *	launcher     its child, made before the store is opened: SQLite does not survive a fork
 *	courier      child of the launcher, made with the first run: reports all runs to the store      record/courier.h
 *	supervisor   child of the launcher, one for each run, in a session of its own: it calls forge_run(), and goes on
 *	             when the head and the launcher are dead
 *
 * The head writes one line of JSON for each task to the launcher's socket, and with it the end of a pipe on which the
 * supervisor reports, a line of JSON for each message:
 *
 *	{"pid": N}                 first
 *	{"run_id": "..."}          the id that the run is going to have
 *	{"note": "..."}            it is queued, or the like
 *	{"warning": "..."}
 *	{"again": true}            another process had the lock of this key, and is done: look for its result
 *	{"record": {...}}          how it ended
 *	{"error": "...", "hint": "..."}   nothing was run
 *
 * With it comes the lock of the task's key (keylock.h), which the supervisor holds until it ends.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "pipeline/graph.h"
#include "pipeline/key.h"
#include "state/home.h"

struct forge_launcher {
	pid_t pid;
	int fd; /* -1: none */
};
#define FORGE_LAUNCHER_INIT ((struct forge_launcher){ .fd = -1 })

/* A script as it was when the pipeline was started: it may be edited while it runs. */
struct forge_script {
	char *text; /* NULL: the step has none */
	size_t len;
	char digest[FORGE_DIGEST_MAX];
	char *real; /* a notebook: its canonical path; NULL: another script */
};

/* What all tasks share. Borrowed. */
struct forge_launch_env {
	const struct forge_graph *g;
	const struct forge_config *cfg;
	const struct forge_home *home;
	const char *store;		    /* URL */
	const struct forge_script *scripts; /* of each step */
};

/* One task to run. All pointers are borrowed. */
struct forge_launch {
	unsigned task;
	const char *key;
	const struct forge_task_files *files;
	const json_t *step;	    /* for the record */
	struct forge_limits limits; /* all that are set go before the step's */
	unsigned attempt;	    /* 1: the first */
	const char *previous;	    /* the attempt before; NULL: none */
	/* [{path, sha256}]: files of the checkpoint directory, below it; NULL: none */
	const json_t *checkpoint;
	int lock_fd; /* of the key; -1: another process has it, and this one only waits */
	const char
		*kept_run; /* a run whose kept workdir has the checkpoint; NULL: none */
};

/* Must be called before a store is opened. */
FORGE_MUST_CHECK int forge_launcher_start(const struct forge_launch_env *env,
					  struct forge_launcher *ret,
					  struct forge_error *err);
/* *ret_fd: the end of the pipe to read the messages from. */
FORGE_MUST_CHECK int forge_launcher_run(struct forge_launcher *l,
					const struct forge_launch *job, int *ret_fd,
					struct forge_error *err);
/* The supervisors go on. Accepts FORGE_LAUNCHER_INIT. */
void forge_launcher_stop(struct forge_launcher *l);

/* ---- supervisor.c ---- */

/*
 * The process of one run: reports to fd, and does not return. job is the line; lock_fd is -1: it only waits;
 * courier_fd is negative: it starts a courier of its own.
 */
_Noreturn void forge_supervise_task(const struct forge_launch_env *env, const json_t *job,
				    int fd, int lock_fd, int courier_fd);
/* The name of a script's interpreter, by its ending; NULL: not known. */
const char *forge_script_interpreter(const char *script);
bool forge_script_is_notebook(const char *script);
/* Whether a run of this task collects a file with this path. */
bool forge_task_may_leave(const struct forge_task *t, const char *path);
