/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a host's health (section "health") and the files that no run may change
 * (section "guard"), as declared. src/health/ carries them out.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strv.h"

/* A part of something: an absolute number, or thousandths of the whole. Both 0: not given. */
struct forge_amount {
	uint64_t absolute;
	unsigned milli; /* 5 % is 50 */
};

/* One check. Which fields a kind uses is in the table in health.c. */
struct forge_check_decl {
	char *name, *kind;
	char *severity;	 /* "block" or "warn" */
	char *when;	 /* "pre", "post", "both" or "demand" */
	char *if_failed; /* what a blocked run does: "reject" or "wait" */
	uint64_t timeout_usec;
	uint64_t every_usec; /* a younger result is reused; 0: none is */
	char *path;	     /* disk, sqlite, unix; NULL for disk: where forge works */
	struct forge_amount min_free, min_inodes; /* disk */
	struct forge_amount min_available;	  /* memory */
	struct forge_amount max_pressure;	  /* memory: of the time */
	bool is_thorough;	    /* sqlite: integrity_check; postgres: amcheck */
	char *url;		    /* postgres, http; may hold a secret */
	struct forge_strv tables;   /* postgres, sqlite: which must exist */
	struct forge_strv count;    /* postgres: tables whose number of rows must stay */
	struct forge_strv contents; /* postgres: tables whose rows must stay the same */
	uint64_t status;	    /* http: expected, 0: 200 to 399 */
	char *body;		    /* http: a text that the answer must have */
	char *address;		    /* tcp: host:port */
	char *process;		   /* process: name of a command, or path of a pid file */
	char *unit;		   /* systemd */
	char *runtime;		   /* runtime */
	char *command;		   /* command: one line for sh */
	struct forge_strv paths;   /* files: what is guarded */
	struct forge_strv exclude; /* files */
	bool is_hashed;		   /* files: snapshots contain digests */
	char *file;		   /* where it was declared; NULL: built in */
	unsigned line;
};

/* How guarded files are observed. */
enum forge_guard_mode {
	FORGE_GUARD_AUTO, /* watch where it is possible, else snapshot */
	FORGE_GUARD_WATCH,
	FORGE_GUARD_SNAPSHOT,
	FORGE_GUARD_OFF,
};
extern const char *const forge_guard_modes[4];

/* What a change means that cannot be attributed to a process. */
enum forge_unattributed {
	FORGE_UNATTRIBUTED_AUTO, /* corrupted if the run was alone on the host, else warn */
	FORGE_UNATTRIBUTED_CORRUPTED,
	FORGE_UNATTRIBUTED_WARN,
};
extern const char *const forge_unattributed_words[3];

struct forge_health_config {
	struct forge_check_decl *checks; /* always has disk and memory */
	size_t n_checks;
	enum forge_guard_mode mode;	      /* guard.mode */
	enum forge_unattributed unattributed; /* guard.unattributed */
	char *guarded_by; /* the outermost file that guards something; NULL: none does */
	bool holds;	  /* guard.hold: runs wait after a corruption */
};

void forge_health_done(struct forge_health_config *h);
/* The same as JSON, which may hold secrets, and back. -EINVAL: it is of another version. */
json_t *forge_health_json(const struct forge_health_config *h);
int forge_health_restore(const json_t *j, struct forge_health_config *ret);
/* The check of this name, or NULL. */
const struct forge_check_decl *forge_health_find(const struct forge_health_config *h,
						 const char *name);
