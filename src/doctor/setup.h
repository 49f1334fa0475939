/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes once, as root, what `forge doctor` finds missing on a host. Each action is a row of
 * setup_rows.c. A manifest lists what was written, so that it can be undone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"

struct forge_setup_request {
	struct forge_strv users; /* ordinary users who are to run forge */
	const char *root;      /* write below this directory and apply nothing; NULL: "/" */
	uint64_t quota_bytes;  /* a file system for workdirs with quotas; 0: none is wanted */
	const char *quota_dir; /* its mount point; NULL: the usual one */
	bool dry_run;
};

enum forge_setup_state {
	FORGE_SETUP_UNNEEDED, /* this host has it already, or it was not asked for */
	FORGE_SETUP_DONE,     /* an earlier setup has made it */
	FORGE_SETUP_PENDING,     /* would be made, without --dry-run */
	FORGE_SETUP_MADE,
	FORGE_SETUP_REMOVED, /* by --undo */
	FORGE_SETUP_LEFT,    /* changed since, or never written by forge: not touched */
	FORGE_SETUP_CANNOT,  /* text says why, and what to do */
	FORGE_SETUP_STATES,
};
extern const char *const forge_setup_state_names[FORGE_SETUP_STATES];

struct forge_setup_result {
	const char *name;
	enum forge_setup_state state;
	char text[512];		 /* what is, was or would be done */
	struct forge_strv files; /* written, to be written or removed */
};

struct forge_setup_report {
	struct forge_setup_result *results; /* owned */
	size_t n;
	bool is_complete; /* nothing CANNOT */
};

FORGE_MUST_CHECK int forge_setup(const struct forge_config *cfg,
				 const struct forge_setup_request *req,
				 struct forge_setup_report *ret, struct forge_error *err);
/* Removes everything that is unchanged since it was made, and reports what it left. */
FORGE_MUST_CHECK int forge_setup_undo(const struct forge_setup_request *req,
				      struct forge_setup_report *ret,
				      struct forge_error *err);
void forge_setup_report_done(struct forge_setup_report *r);
