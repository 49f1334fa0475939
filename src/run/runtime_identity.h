/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a runtime and the result of its last probe, in $FORGE_HOME. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "runtime/runtime.h"
#include "spec/spec.h"
#include "state/home.h"

/* The result of a probe, in $FORGE_HOME/runtimes/<name>.json. */
enum forge_health { FORGE_UNCHECKED, FORGE_HEALTHY, FORGE_BROKEN };

struct forge_runtime_state {
	enum forge_health health;
	char digest[FORGE_DIGEST_MAX]; /* of the current packages */
	json_t *versions;     /* {"python3": "3.11.2", "numpy": "1.24.2"}; may be NULL */
	char checked_at[32];  /* "" never */
	char probe_run[27];   /* the run id of the probe, "" none */
	char problem[384];    /* broken: why */
	int64_t checked_unix; /* seconds, 0 never */
	bool is_stored;	      /* the result is in the store */
};
void forge_runtime_state_done(struct forge_runtime_state *s);

/*
 * The digest of the runtime's content. It is cached by the names, sizes and times of the
 * files, so that a repeated call costs a few stats.
 */
FORGE_MUST_CHECK int forge_runtime_digest(const struct forge_home *home,
					  const struct forge_runtime *rt,
					  char ret[FORGE_DIGEST_MAX],
					  struct forge_error *err);
/*
 * {"numpy": "1.24.2 py311_0", ...}: the packages that have this digest, if it was computed in this FORGE_HOME. NULL:
 * not known, or no digest. The digest may come from a store.
 */
json_t *forge_runtime_packages_of(const struct forge_home *home, const char *digest);
/* The result of the last probe, if it was for this content and declaration. */
FORGE_MUST_CHECK int forge_runtime_state(const struct forge_home *home,
					 const struct forge_runtime *rt,
					 struct forge_runtime_state *ret,
					 struct forge_error *err);
/* How long a failed probe counts: the machine may have been the cause. */
#define FORGE_BROKEN_SECONDS 60
/* Whether a probe failed so recently that another one would show nothing new. */
bool forge_runtime_is_known_broken(const struct forge_runtime_state *s);
/* The name of a file about a runtime, in "runtimes" of FORGE_HOME. Returns buf. */
#define FORGE_RUNTIME_FILE_MAX 224
const char *forge_runtime_file(const struct forge_runtime *rt, const char *ending,
			       char buf[FORGE_RUNTIME_FILE_MAX]);
/* Saves the result of a probe. */
FORGE_MUST_CHECK int forge_runtime_save(const struct forge_home *home,
					const struct forge_runtime *rt,
					const struct forge_runtime_state *s,
					struct forge_error *err);
/* The description of a run's runtime for its record; NULL: out of memory. */
json_t *forge_runtime_describe(const struct forge_spec *s,
			       const struct forge_runtime_state *state);
/*
 * The current digest of the runtime if it differs from s->runtime_json, "unknown" if it
 * cannot be computed; NULL: it is the same.
 */
const char *forge_runtime_changed(const struct forge_spec *s,
				  const struct forge_home *home,
				  char digest[FORGE_DIGEST_MAX]);
