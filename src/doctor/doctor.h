/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out what this host can enforce, by attacking each promise in a throw-away sandbox. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "config/config.h"

enum forge_doctor_state {
	FORGE_DOCTOR_PASS,   /* attacked and held */
	FORGE_DOCTOR_CANNOT, /* this host cannot enforce it; fix says how to change that */
	FORGE_DOCTOR_BROKEN, /* the mechanism is there and the attack still succeeded */
};

struct forge_doctor_check {
	const char *promise; /* "memory" ... one word or two */
	const char *about;   /* a short sentence: what is promised */
	enum forge_doctor_state state;
	char mechanism[96]; /* "cgroup v1 memory.limit_in_bytes" */
	char detail[256];   /* the result of the attack */
	char fix[512];	    /* "" when there is nothing to do */
};

struct forge_doctor_report {
	struct forge_doctor_check *checks; /* owned */
	size_t n;
	const char *level; /* "full", "partial", or "container" when all that it promises holds */
};

/*
 * executor: where the attacks run, NULL: on this machine. Elsewhere an attack on what only a sandbox of our own
 * promises may succeed: that is FORGE_DOCTOR_CANNOT, and level says "container".
 */
FORGE_MUST_CHECK int forge_doctor(const struct forge_config *cfg, const char *executor,
				  struct forge_doctor_report *ret,
				  struct forge_error *err);
void forge_doctor_report_done(struct forge_doctor_report *r);
