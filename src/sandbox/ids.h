/* SPDX-License-Identifier: Apache-2.0 */
/* Which host uid a run has. Root's runs get one each from a range of their own. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct forge_ids {
	uid_t uid;
	gid_t gid;
	bool privileged; /* we may map ids that are not ours */
	int lock_fd;	 /* keeps the uid from other state directories of root, or -1 */
};

/* Do we see the ids of the whole host, or are we in a user namespace? */
bool forge_ids_is_initial(void);

/*
 * As root of the host: base + slot, or -EAGAIN when another FORGE_HOME uses that one now. As anybody else, also as "root" of a user namespace that
 * has no such ids: our own. Never uid 0 of the host.
 */
FORGE_MUST_CHECK int forge_ids_choose(uid_t base, unsigned slot, struct forge_ids *ret,
				      struct forge_error *err);
void forge_ids_done(struct forge_ids *ids);
