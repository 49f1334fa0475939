/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside: Landlock as a second barrier. The mounts already make things read-only; Landlock
 * enforces the same by another mechanism: reading and executing everywhere in the new root,
 * writing only below the workdir, /tmp and /dev/shm. Scopes keep signals and abstract sockets
 * inside.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/sys.h"
#include "sandbox/child.h"
#include "sandbox/landlock.h"

/* The kernel's interface, spelled out: Debian 12's headers end at ABI 2. */
#define LL_CREATE_RULESET 444
#define LL_ADD_RULE	  445
#define LL_RESTRICT_SELF  446
#define LL_VERSION	  (1U << 0)
#define LL_PATH_BENEATH	  1

#define LL_EXECUTE    (1ULL << 0)
#define LL_WRITE_FILE (1ULL << 1)
#define LL_READ_FILE  (1ULL << 2)
#define LL_READ_DIR   (1ULL << 3)
#define LL_REFER      (1ULL << 13) /* ABI 2 */
#define LL_TRUNCATE   (1ULL << 14) /* ABI 3 */
#define LL_IOCTL_DEV  (1ULL << 15) /* ABI 5 */
#define LL_ABI1_ALL   ((1ULL << 13) - 1)
#define LL_SCOPE_ALL  3ULL /* ABI 6: abstract sockets, signals */

struct ll_ruleset {
	uint64_t fs, net, scoped;
};

struct ll_beneath {
	uint64_t access;
	int32_t fd;
} __attribute__((packed));

int forge_landlock_abi(void)
{
	long abi = syscall(LL_CREATE_RULESET, NULL, 0, LL_VERSION);

	return abi < 0			      ? 0
	       : abi > FORGE_LANDLOCK_MAX_ABI ? FORGE_LANDLOCK_MAX_ABI
					      : (int)abi;
}

static uint64_t all_rights(int abi)
{
	return LL_ABI1_ALL | (abi >= 2 ? LL_REFER : 0) | (abi >= 3 ? LL_TRUNCATE : 0) |
	       (abi >= 5 ? LL_IOCTL_DEV : 0);
}

static void allow(int rules, const char *path, uint64_t access, int report)
{
	struct ll_beneath rule = { .access = access };

	rule.fd = open(path, O_PATH | O_CLOEXEC);
	if (rule.fd < 0 || syscall(LL_ADD_RULE, rules, LL_PATH_BENEATH, &rule, 0) < 0)
		forge_child_die(report, FORGE_STAGE_LANDLOCK, path);
	close(rule.fd);
}

/* A path may be absent, in an image. */
static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

int forge_child_landlock_begin(int abi, int report)
{
	uint64_t all = all_rights(abi);
	struct ll_ruleset set = { .fs = all };
	size_t size = sizeof(set);

	if (abi < 4)
		size = sizeof(set.fs);
	else if (abi < 6)
		size = sizeof(set.fs) + sizeof(set.net);
	else
		set.scoped = LL_SCOPE_ALL;
	int rules = (int)syscall(LL_CREATE_RULESET, &set, size, 0);
	if (rules < 0)
		forge_child_die(report, FORGE_STAGE_LANDLOCK, "ruleset");
	allow(rules, "/", LL_EXECUTE | LL_READ_FILE | LL_READ_DIR, report);
	return rules;
}

void forge_child_landlock_allow(int rules, int abi, const char *path, bool is_device,
				int report)
{
	uint64_t all = all_rights(abi);
	uint64_t file_write =
		LL_READ_FILE | LL_WRITE_FILE | (all & (LL_TRUNCATE | LL_IOCTL_DEV));

	if (is_there(path))
		allow(rules, path, is_device ? file_write : all, report);
}

void forge_child_landlock_end(int rules, int report)
{
	if (syscall(LL_RESTRICT_SELF, rules, 0) < 0)
		forge_child_die(report, FORGE_STAGE_LANDLOCK, "restrict");
	close(rules);
}

void forge_child_landlock_plan(const struct forge_plan *p, int report)
{
	int rules = forge_child_landlock_begin(p->landlock_abi, report);

	for (size_t i = 0; i < p->n_mounts; i++) {
		const struct forge_mount *m = &p->mounts[i];
		if (m->type == FORGE_MOUNT_RW || m->type == FORGE_MOUNT_TMPFS ||
		    m->type == FORGE_MOUNT_DEV)
			forge_child_landlock_allow(rules, p->landlock_abi, m->target,
						   m->type == FORGE_MOUNT_DEV, report);
	}
	forge_child_landlock_end(rules, report);
}
