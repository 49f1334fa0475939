/* SPDX-License-Identifier: Apache-2.0 */
/* The attacks of `forge doctor` as a table; doctor.c carries them out. */
#pragma once

#include <stdbool.h>

#include "config/config.h"

/* What must happen for the promise to hold. */
enum forge_doctor_want {
	FORGE_WANT_HELD,   /* the probe itself reports that its attack failed */
	FORGE_WANT_REASON, /* the run is ended for this reason */
	FORGE_WANT_SHARE,  /* the run got no more CPU time than its share */
	FORGE_WANT_GONE,   /* no process that it started is left */
};

struct forge_doctor_row {
	const char *promise;
	const char *about;
	const char *attack[6]; /* arguments of the probe; see below */
	enum forge_doctor_want want;
	const char *reason;  /* FORGE_WANT_REASON */
	const char *network; /* NULL: none */
	struct forge_limits limits;
	unsigned needs; /* mechanisms without which the promise cannot hold, 1u << ... */
	const char *mechanism;
	bool is_own; /* only a sandbox of our own promises it, a container does not */
};

/* Placeholders in attack that doctor.c replaces. */
#define FORGE_DOCTOR_PROBE  "@probe"  /* the probe's path: a read-only input */
#define FORGE_DOCTOR_SECRET "@secret" /* a host file the run must not reach */
#define FORGE_DOCTOR_MARK   "@mark"   /* the content of that file */
#define FORGE_DOCTOR_FIFO   "@fifo"   /* a named pipe of the host in a read-only input */
#define FORGE_DOCTOR_SOCKET "@socket" /* name of an abstract socket of the host */
#define FORGE_DOCTOR_HOME   "@home"   /* the caller's home directory */
#define FORGE_DOCTOR_PID    "@pid"    /* our own process id */

extern const struct forge_doctor_row forge_doctor_rows[]; /* ends with promise NULL */
