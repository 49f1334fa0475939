/* SPDX-License-Identifier: Apache-2.0 */
/* Checks in a sandbox whether a runtime works; saves and stores the result. */
#pragma once

#include "base/error.h"
#include "config/config.h"
#include "run/runtime_identity.h"
#include "store/store.h"

/* Stores the result of a probe, and saves that it is stored. */
FORGE_MUST_CHECK int forge_runtime_store(const struct forge_home *home,
					 struct forge_store *st,
					 const struct forge_runtime *rt,
					 struct forge_runtime_state *s,
					 struct forge_error *err);
/* Called when a probe waits for something; call may be NULL. */
struct forge_probe_listener {
	void (*call)(void *arg, const struct forge_error *warning);
	void *arg;
};
/*
 * Runs the probe in a sandbox now and saves its result. 0: *ret has the result, which may
 * be "broken". Negative: the probe could not run at all. The result is also stored if the
 * store can be reached; the store is closed when this returns. A failure while packages
 * of the host are being installed is retried after that, within bounds.
 */
FORGE_MUST_CHECK int forge_runtime_probe(const struct forge_config *cfg,
					 const struct forge_home *home, const char *store,
					 const struct forge_runtime *rt,
					 const struct forge_probe_listener *listener,
					 struct forge_runtime_state *ret,
					 struct forge_error *err);
/* For a run: the saved result, or a new probe. Concurrent runs start only one. */
FORGE_MUST_CHECK int forge_runtime_ensure(
	const struct forge_config *cfg, const struct forge_home *home, const char *store,
	const struct forge_runtime *rt, const struct forge_probe_listener *listener,
	struct forge_runtime_state *ret, struct forge_error *err);
