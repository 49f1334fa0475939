/* SPDX-License-Identifier: Apache-2.0 */
/* The contract of an action of `forge setup`. Only setup.c calls through this table. */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "doctor/setup.h"

struct forge_setup_file {
	char *path; /* absolute, as the host will see it */
	char *text;
	mode_t mode;
};

/* What one row wants of this host. */
struct forge_setup_step {
	struct forge_setup_result *result;
	struct forge_setup_file *files; /* owned; the first is what the others serve */
	size_t n_files;
	bool is_blocked; /* the first is somebody else's, so nothing is done */
	json_t *live;	 /* object: what apply changed, for undo; owned */
};

struct forge_setup_host {
	const struct forge_config *cfg;
	const struct forge_setup_request *req;
	const char *root;	 /* "" or the directory that stands for "/" */
	struct forge_strv users; /* those of earlier setups too */
	int lock_fd;		 /* of the setup that is running, -1: none */
	bool has_made_dir; /* the one of lock and manifest; removed when it is empty */
	json_t *manifest;  /* owned */
};

struct forge_setup_row {
	const char *name;
	/*
	 * required: sets state (UNNEEDED, PENDING or CANNOT) and text, and adds the files.
	 * Looks below host->root only, and changes nothing.
	 */
	int (*plan)(struct forge_setup_host *host, struct forge_setup_step *step,
		    struct forge_error *err);
	/* optional: is it in force now? Without it, written is in force. */
	bool (*is_live)(struct forge_setup_host *host, struct forge_setup_step *step);
	/* optional: puts it in force, after the files are written. Not with --root. */
	int (*apply)(struct forge_setup_host *host, struct forge_setup_step *step,
		     struct forge_error *err);
	/*
	 * optional: takes it out of force, before the files are removed. Not with
	 * --root.
	 */
	int (*retract)(struct forge_setup_host *host, const json_t *live,
		       struct forge_error *err);
	/* optional: after the files are removed. Not with --root. */
	void (*settle)(struct forge_setup_host *host);
};
extern const struct forge_setup_row forge_setup_rows[]; /* ends with a NULL name */

/* For the rows. */
/* A path of the host as we see it: below root. NULL when out of memory. */
char *forge_setup_path(const struct forge_setup_host *host, const char *path);
bool forge_setup_exists(const struct forge_setup_host *host, const char *path);
/* The whole file, NUL-terminated; NULL when it cannot be read. The caller frees. */
char *forge_setup_read(const struct forge_setup_host *host, const char *path);
/* Takes text, which may be NULL (out of memory). */
FORGE_MUST_CHECK int forge_setup_add_file(struct forge_setup_step *step, const char *path,
					  mode_t mode, char *text);
/*
 * Runs a program without standard input; its output is ours. Its status, -errno: not
 * run.
 */
int forge_setup_run(const char *const argv[]);
/* Sets the state and the sentence. */
void forge_setup_say(struct forge_setup_step *step, enum forge_setup_state state,
		     const char *fmt, ...) FORGE_PRINTF(3, 4);
/* Running, or, for another root, installed there. */
bool forge_setup_has_systemd(const struct forge_setup_host *host);
/* The first line of what is written. */
#define FORGE_SETUP_HEADER "# Written by forge setup; forge setup --undo removes it.\n"

/* The rows that have a file of their own. */
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
