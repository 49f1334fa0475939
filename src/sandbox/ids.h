/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the host uid of a run. Each run of root gets one of its own from a range. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct forge_ids {
	uid_t uid;
	gid_t gid;
	bool privileged; /* we may map ids that are not ours */
	int lock_fd; /* reserves the uid against other state directories of root, or -1 */
};

/* Are we in the initial user namespace, with all ids of the host? */
bool forge_ids_is_initial(void);

/*
 * As root of the host: base + slot, or -EAGAIN when another FORGE_HOME uses that uid now. As
 * any other user, also as "root" of a user namespace without these ids: our own ids. Never uid
 * 0 of the host.
 */
FORGE_MUST_CHECK int forge_ids_choose(uid_t base, unsigned slot, struct forge_ids *ret,
				      struct forge_error *err);
void forge_ids_done(struct forge_ids *ids);
