/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the runtime of a run ready: identified (runtime_identity.c), known to be healthy (runtime_probe.c)
 * and activated (runtime_activation.c). src/runtime/ says what runtimes are; here is what has to be run to
 * know about one.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "config/config.h"
#include "runtime/runtime.h"
#include "state/home.h"
#include "spec/spec.h"
#include "state/home.h"
#include "store/store.h"

/* What a probe found; kept in $FORGE_HOME/runtimes/<name>.json. */
enum forge_health { FORGE_UNCHECKED, FORGE_HEALTHY, FORGE_BROKEN };

struct forge_runtime_state {
	enum forge_health health;
	char digest[FORGE_DIGEST_MAX]; /* of the packages, now */
	json_t *versions;     /* {"python3": "3.11.2", "numpy": "1.24.2"}; may be NULL */
	char checked_at[32];  /* "" never */
	char probe_run[27];   /* the run that found it out, "" none */
	char problem[384];    /* broken: why */
	int64_t checked_unix; /* seconds, 0 never */
	bool is_stored;	      /* the store has it */
};
void forge_runtime_state_done(struct forge_runtime_state *s);

/*
 * The digest of what the runtime consists of. Remembered by what the files look like (names, sizes,
 * times), so that asking again costs a few stats.
 */
FORGE_MUST_CHECK int forge_runtime_digest(const struct forge_home *home,
					  const struct forge_runtime *rt,
					  char ret[FORGE_DIGEST_MAX],
					  struct forge_error *err);
/* What the last probe said, if it was about this very content and declaration. */
FORGE_MUST_CHECK int forge_runtime_state(const struct forge_home *home,
					 const struct forge_runtime *rt,
					 struct forge_runtime_state *ret,
					 struct forge_error *err);
/* How long a failed probe is believed: it may have been the machine's fault. */
#define FORGE_BROKEN_SECONDS 60
/* Whether it failed just now, so that trying again would tell nothing new. */
bool forge_runtime_is_known_broken(const struct forge_runtime_state *s);
/* The name of a file about a runtime, in "runtimes" of the state directory. Returns buf. */
#define FORGE_RUNTIME_FILE_MAX 224
const char *forge_runtime_file(const struct forge_runtime *rt, const char *ending,
			       char buf[FORGE_RUNTIME_FILE_MAX]);
/* Keeps what a probe found. */
FORGE_MUST_CHECK int forge_runtime_save(const struct forge_home *home,
					const struct forge_runtime *rt,
					const struct forge_runtime_state *s,
					struct forge_error *err);
/* Tells the store what a probe found, and keeps that it was told. */
FORGE_MUST_CHECK int forge_runtime_store(const struct forge_home *home,
					 struct forge_store *st,
					 const struct forge_runtime *rt,
					 struct forge_runtime_state *s,
					 struct forge_error *err);
/* Who is told that a probe waits for something; call may be NULL. */
struct forge_probe_listener {
	void (*call)(void *arg, const struct forge_error *warning);
	void *arg;
};
/*
 * Runs the probe in a sandbox, now, and keeps what it found. 0: *ret says how it is, which may be
 * broken. Negative: it could not be run at all. The store is told if it can be reached, and is
 * closed again when this returns. What fails while packages of the host are installed is tried again
 * when that is over, within bounds.
 */
FORGE_MUST_CHECK int forge_runtime_probe(const struct forge_config *cfg,
					 const struct forge_home *home, const char *store,
					 const struct forge_runtime *rt,
					 const struct forge_probe_listener *who,
					 struct forge_runtime_state *ret,
					 struct forge_error *err);
/* Ended by somebody, or never begun: then it says nothing about what was to be tried. */
bool forge_probe_is_about_runtime(const json_t *record);
/* A quiet run in a runtime, to find out about it. */
struct forge_run_request forge_probe_request(const struct forge_runtime *rt,
					     const char *store, char **argv,
					     uint64_t wall_usec);
/* For a run: what is known of it, or else a probe; many runs at once start one probe. */
FORGE_MUST_CHECK int forge_runtime_ensure(
	const struct forge_config *cfg, const struct forge_home *home, const char *store,
	const struct forge_runtime *rt, const struct forge_probe_listener *who,
	struct forge_runtime_state *ret, struct forge_error *err);
/*
 * The activated environment: env is changed. Scripts of the environment are sourced once, in a
 * sandbox; what they change is remembered by their content. workdir: of the run to come. Lines for the
 * user are added to warnings.
 */
FORGE_MUST_CHECK int forge_runtime_enter(const struct forge_config *cfg,
					 const struct forge_home *home, const char *store,
					 const struct forge_runtime *rt,
					 const char *workdir, struct forge_strv *env,
					 struct forge_strv *warnings,
					 struct forge_error *err);

/* ---- for the door ---- */

/*
 * Refuses a runtime that is not healthy; probes one that has not been checked. s->runtime_json is then what
 * the record says about it. Without a runtime there is nothing to do.
 */
FORGE_MUST_CHECK int forge_ready_runtime(struct forge_spec *s,
					 const struct forge_config *cfg,
					 const struct forge_run_request *req,
					 const struct forge_home *home, const char *store,
					 struct forge_error *err);
/* The complete environment, with the runtime activated. */
FORGE_MUST_CHECK int forge_ready_environment(struct forge_spec *s,
					     const struct forge_config *cfg,
					     const struct forge_run_request *req,
					     const struct forge_home *home,
					     const char *store, struct forge_error *err);
/* After a run: the digest of the runtime now, when it has changed; NULL: it is the same. */
const char *forge_ready_runtime_changed(const struct forge_spec *s,
					const struct forge_home *home,
					char digest[FORGE_DIGEST_MAX]);
