/* SPDX-License-Identifier: Apache-2.0 */
/* The state of commands about runs: configuration, repair, state directory, store. */
#pragma once

#include <stdint.h>
#include <time.h>

#include "base/strv.h"
#include "cli/cli.h"
#include "config/config.h"
#include "record/view.h"
#include "state/home.h"
#include "store/store.h"

struct forge_session {
	struct forge_config *cfg;
	struct forge_home home;
	char *url;
	struct forge_store *store; /* NULL: it cannot be reached; has_warned is set */
	bool is_unconfirmed;	   /* the verdict is not from the store */
};
#define FORGE_SESSION_INIT ((struct forge_session){ .home = FORGE_HOME_INIT })

/* --config, of all these commands. */
extern const char *forge_session_config;
#define FORGE_CONFIG_ROW                                                                 \
	FORGE_STRING(0, "config", "FILE", &forge_session_config,                         \
		     "Read this configuration")

/* How errors in the configuration are handled; set before a session is opened. */
enum forge_session_rule {
	FORGE_SESSION_STRICT, /* the command stops */
	/*
	 * For commands that only show: an error in ./forge.yaml is a warning, and the
	 * other files are used, unless ./forge.yaml may name the store. Runs of another
	 * store would be wrong results.
	 */
	FORGE_SESSION_LOOKS,
	FORGE_SESSION_FORGIVES, /* any error is a warning: the command must always work */
};
extern enum forge_session_rule forge_session_rule;

/* Opens everything. Without need_store an unreachable store is only a warning. */
FORGE_MUST_CHECK int forge_session_open(struct forge_session *s, bool need_store,
					struct forge_error *err);
/*
 * The same for a command that observes: it repairs nothing and delivers nothing, so that what a crashed run
 * left is seen. An unreachable store is a warning.
 */
FORGE_MUST_CHECK int forge_session_watch(struct forge_session *s,
					 struct forge_error *err);
void forge_session_close(struct forge_session *s);
#define forge_auto_session FORGE_CLEANUP(forge_session_close)

/*
 * The record of the run that word names: "last", a run id, the prefix of one, or an
 * analysis id, which means its newest run.
 */
FORGE_MUST_CHECK int forge_session_record(struct forge_session *s, const char *word,
					  json_t **ret, struct forge_error *err);
/*
 * Opens s and finds the runs that the words name, each once. A word with * or ? means all
 * runs of this user whose analysis id matches; open_only: only those that are not over. A
 * positive result is the exit status of wrong use.
 */
FORGE_MUST_CHECK int forge_session_runs(struct forge_session *s,
					const struct forge_cmd *cmd, int argc,
					char **argv, bool open_only,
					struct forge_strv *ret_ids,
					struct forge_error *err);
/* The same for one run only. */
FORGE_MUST_CHECK int forge_session_only_run(struct forge_session *s,
					    const struct forge_cmd *cmd, int argc,
					    char **argv, bool need_store, json_t **ret,
					    struct forge_error *err);
/* Loads the record again, after it may have changed. */
FORGE_MUST_CHECK int forge_session_reload(struct forge_session *s, json_t **record,
					  struct forge_error *err);
/*
 * The attempt after a run that is over. 1: it takes the place of *record; 0: there is none, or it was removed;
 * -EAGAIN: it is not recorded yet, and err is not set.
 */
FORGE_MUST_CHECK int forge_session_next(struct forge_session *s, json_t **record,
					struct forge_error *err);
/* The last attempt that is recorded. *ret_is_pending: one more is about to start. */
FORGE_MUST_CHECK int forge_session_last(struct forge_session *s, json_t **record,
					bool *ret_is_pending, struct forge_error *err);
/*
 * Sets "damaged" of the outputs in the record that forge verify has marked, in the FORGE_HOME that
 * has them. The record is for output only.
 */
void forge_session_note_damage(const struct forge_session *s, json_t *record);
/* Prints the error. Returns FORGE_EXIT_FAILED. */
int forge_session_fail(const struct forge_error *err);

/*
 * The name of a run for messages: "fit (01m7...)", or its id alone without a label
 * (--id). Returns buf.
 */
#define FORGE_RUN_NAME_MAX 128
const char *forge_record_name(const json_t *record, char buf[FORGE_RUN_NAME_MAX]);
/* The label alone; NULL: there is none, or it is not a valid label. */
const char *forge_record_label(const json_t *record);
/* The exit status that `forge run` would have had. */
int forge_record_exit_status(const json_t *record);
enum forge_colour forge_status_colour(const char *status);
