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
	int lock_fd;     /* holds the slot of the range, -1 when none is needed */
};

/*
 * As root of the host: the first free id of [base, base + count), claimed by a lock on a file
 * in lock_dir that dies with us. As anybody else, also as "root" of a user namespace that has
 * no such ids: our own. Never uid 0 of the host.
 */
FORGE_MUST_CHECK int forge_ids_choose(const char *lock_dir, uid_t base, uid_t count,
				      struct forge_ids *ret, struct forge_error *err);
/* The same without claiming anything, for a dry run. */
void forge_ids_preview(uid_t base, struct forge_ids *ret);
void forge_ids_done(struct forge_ids *ids);
