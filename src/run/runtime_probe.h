/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a runtime works: tried in a sandbox, kept in $FORGE_HOME, reported to the store. */
#pragma once

#include "base/error.h"
#include "config/config.h"
#include "run/runtime_identity.h"
#include "store/store.h"

/* Stores what a probe found, and keeps that it is stored. */
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
/* For a run: what is known of it, or else a probe; many runs at once start one probe. */
FORGE_MUST_CHECK int forge_runtime_ensure(
	const struct forge_config *cfg, const struct forge_home *home, const char *store,
	const struct forge_runtime *rt, const struct forge_probe_listener *who,
	struct forge_runtime_state *ret, struct forge_error *err);
