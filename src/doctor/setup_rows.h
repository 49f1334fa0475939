/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of an action of `forge setup`. Only setup_apply.c calls through this table. */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "doctor/setup.h"

struct forge_setup_file {
	char *path; /* absolute, as the host will see it */
	char *text;
	mode_t mode;
};

/* What one row wants to change on this host. */
struct forge_setup_step {
	struct forge_setup_result *result;
	struct forge_setup_file *files; /* owned; the others serve the first */
	size_t n_files;
	bool is_blocked; /* the first was not written by forge, so nothing is done */
	json_t *live;	 /* object: what apply changed, for undo; owned */
};

struct forge_setup_host {
	const struct forge_config *cfg;
	const struct forge_setup_request *req;
	const char *root;	 /* "" or the directory that stands for "/" */
	struct forge_strv users; /* with those of earlier setups */
	int lock_fd;		 /* the lock of the running setup, -1: none */
	/*
	 * This setup made the directory of the lock and the manifest; it is removed when it is
	 * empty.
	 */
	bool has_made_dir;
	json_t *manifest; /* owned */
};

struct forge_setup_row {
	const char *name;
	/*
	 * required: sets state (UNNEEDED, PENDING or CANNOT) and text, and adds the files.
	 * Reads only below host->root, and changes nothing.
	 */
	int (*plan)(struct forge_setup_host *host, struct forge_setup_step *step,
		    struct forge_error *err);
	/* optional: is it in force now? Without this op, written files are in force. */
	bool (*is_live)(struct forge_setup_host *host, struct forge_setup_step *step);
	/* optional: puts it in force, after the files are written. Not called with --root. */
	int (*apply)(struct forge_setup_host *host, struct forge_setup_step *step,
		     struct forge_error *err);
	/* optional: undoes apply, before the files are removed. Not called with --root. */
	int (*retract)(struct forge_setup_host *host, const json_t *live,
		       struct forge_error *err);
	/* optional: called after the files are removed. Not called with --root. */
	void (*settle)(struct forge_setup_host *host);
};
extern const struct forge_setup_row forge_setup_rows[]; /* ends with a NULL name */

/* For the rows. */
/* A path of the host with root in front. NULL when out of memory. */
char *forge_setup_path(const struct forge_setup_host *host, const char *path);
bool forge_setup_exists(const struct forge_setup_host *host, const char *path);
/* Reads a whole file, NUL-terminated; NULL when it cannot be read. The caller frees it. */
char *forge_setup_read(const struct forge_setup_host *host, const char *path);
/* Takes text, which may be NULL (out of memory). */
FORGE_MUST_CHECK int forge_setup_add_file(struct forge_setup_step *step, const char *path,
					  mode_t mode, char *text);
/*
 * Runs a program without standard input; its output goes to our standard error. Returns its
 * exit status, or -errno when it could not be run.
 */
int forge_setup_run(const char *const argv[]);
/* Sets the state and the text. */
void forge_setup_say(struct forge_setup_step *step, enum forge_setup_state state,
		     const char *fmt, ...) FORGE_PRINTF(3, 4);
/* Is systemd running or, for another root, installed there? */
bool forge_setup_has_systemd(const struct forge_setup_host *host);
/* The first line of every file that setup writes. */
#define FORGE_SETUP_HEADER "# Written by forge setup; forge setup --undo removes it.\n"

/* The rows that have their own source file. */
int forge_setup_plan_delegation(struct forge_setup_host *host,
				struct forge_setup_step *step, struct forge_error *err);
bool forge_setup_is_delegation_live(struct forge_setup_host *host,
				    struct forge_setup_step *step);
int forge_setup_apply_delegation(struct forge_setup_host *host,
				 struct forge_setup_step *step, struct forge_error *err);
int forge_setup_retract_delegation(struct forge_setup_host *host, const json_t *live,
				   struct forge_error *err);
void forge_setup_settle_delegation(struct forge_setup_host *host);
#define FORGE_SETUP_DELEGATION                                                           \
	{                                                                                \
		.name = "delegation", .plan = forge_setup_plan_delegation,               \
		.is_live = forge_setup_is_delegation_live,                               \
		.apply = forge_setup_apply_delegation,                                   \
		.retract = forge_setup_retract_delegation,                               \
		.settle = forge_setup_settle_delegation,                                 \
	}
int forge_setup_plan_quota(struct forge_setup_host *host, struct forge_setup_step *step,
			   struct forge_error *err);
bool forge_setup_is_quota_live(struct forge_setup_host *host,
			       struct forge_setup_step *step);
int forge_setup_apply_quota(struct forge_setup_host *host, struct forge_setup_step *step,
			    struct forge_error *err);
int forge_setup_retract_quota(struct forge_setup_host *host, const json_t *live,
			      struct forge_error *err);
#define FORGE_SETUP_QUOTA                                                                \
	{                                                                                \
		.name = "workdir-quota", .plan = forge_setup_plan_quota,                 \
		.is_live = forge_setup_is_quota_live, .apply = forge_setup_apply_quota,  \
		.retract = forge_setup_retract_quota,                                    \
	}
