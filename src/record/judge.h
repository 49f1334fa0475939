/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verdict: maps the facts of an ended run to status, reason and one sentence. Pure
 * functions; docs has the table.
 */
#pragma once

#include "config/limits.h"
#include "executor/executor.h"

struct forge_verdict {
	const char *
		status; /* "succeeded", "failed", "killed", "cancelled", "lost", "rejected" */
	const char *reason; /* one of forge_reasons, "" */
	char notes[1100];   /* completion_notes */
	int exit_status;    /* of forge run */
	int exit_code;	    /* of the command, -1: it did not exit */
	int signal;	    /* that the command died of, 0: none */
};

/* Every reason that a verdict can have, as forge-run(1) lists them; ends with NULL. */
extern const char *const forge_reasons[];

void forge_judge(const struct forge_outcome *o, const struct forge_limits *limits,
		 struct forge_verdict *ret);
/* The command succeeded, but the collecting of its outputs was cancelled. */
void forge_judge_uncollected(size_t n_stored, struct forge_verdict *v);
/* A step of a pipeline succeeded with something else than its key says: reason is "input" or "runtime". */
void forge_judge_other_facts(const char *reason, const char *text,
			     struct forge_verdict *v);
/* The command succeeded, but not all its outputs are there. */
void forge_judge_missing_output(const char *problem, struct forge_verdict *v);
/* Appends a sentence to the notes, or nothing if there is no room for all of it. */
FORGE_PRINTF(2, 3)
void forge_judge_add(struct forge_verdict *v, const char *fmt, ...);
/* A run that was never admitted: rc is forge_admit_try()'s, _queue()'s or _take()'s. */
void forge_judge_not_admitted(int rc, const struct forge_error *err,
			      struct forge_verdict *ret);
/* A run that had started when the supervisor could not go on. */
void forge_judge_unwatched(const struct forge_error *err, struct forge_verdict *ret);
/* A run that a check of the host's health keeps from starting. */
void forge_judge_unhealthy(const char *why, struct forge_verdict *ret);
/* The run has done damage, whatever else it did: the verdict up to now becomes a part of the notes. */
void forge_judge_corrupted(const char *what, struct forge_verdict *v);
/* A run that the executor refused to start. */
void forge_judge_refused(const struct forge_error *err, struct forge_verdict *ret);
