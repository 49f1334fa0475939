/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a runtime, and what the last probe found; kept in $FORGE_HOME. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "runtime/runtime.h"
#include "spec/spec.h"
#include "state/home.h"

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
/* What a record says about the runtime of a run; NULL: out of memory. */
json_t *forge_runtime_describe(const struct forge_spec *s,
			       const struct forge_runtime_state *state);
/* The digest of the runtime now, when it is not that of s->runtime_json; NULL: it is the same. */
const char *forge_runtime_changed(const struct forge_spec *s,
				  const struct forge_home *home,
				  char digest[FORGE_DIGEST_MAX]);
