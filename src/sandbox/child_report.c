/* SPDX-License-Identifier: Apache-2.0 */
/* Inside: how a failure before execve is reported. */
#include "sandbox/child.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

const char *const forge_stage_names[FORGE_STAGE_COUNT] = {
	[FORGE_STAGE_NONE] = "nothing",
	[FORGE_STAGE_SYNC] = "wait for the supervisor",
	[FORGE_STAGE_CGROUP] = "enter cgroup",
	[FORGE_STAGE_PROPAGATION] = "make mounts private",
	[FORGE_STAGE_ROOT] = "make the new root",
	[FORGE_STAGE_MKDIR] = "make mount point",
	[FORGE_STAGE_OPEN] = "open",
	[FORGE_STAGE_CHANGED] = "verify (it changed while the run was prepared)",
	[FORGE_STAGE_READ_ONLY] = "make read-only",
	[FORGE_STAGE_MOUNT] = "mount",
	[FORGE_STAGE_ATTACH] = "attach mount",
	[FORGE_STAGE_WRITE] = "write",
	[FORGE_STAGE_PIVOT] = "pivot_root",
	[FORGE_STAGE_LOOPBACK] = "bring up loopback",
	[FORGE_STAGE_HOSTNAME] = "set host name",
	[FORGE_STAGE_IDS] = "change user and group",
	[FORGE_STAGE_CAPS] = "drop capabilities",
	[FORGE_STAGE_RLIMIT] = "set resource limit",
	[FORGE_STAGE_CGROUP_NS] = "unshare cgroup namespace",
	[FORGE_STAGE_FORK] = "start process",
	[FORGE_STAGE_STDIO] = "connect standard streams",
	[FORGE_STAGE_CHDIR] = "enter workdir",
	[FORGE_STAGE_LANDLOCK] = "enforce Landlock",
	[FORGE_STAGE_SECCOMP] = "enforce seccomp filter",
	[FORGE_STAGE_EXEC] = "execute",
};

_Noreturn void forge_child_die(int report, enum forge_stage stage, const char *what)
{
	struct forge_child_report r = { .stage = (int32_t)stage, .error = errno };
	size_t len = strlen(what);

	if (len >= sizeof(r.what))
		len = sizeof(r.what) - 1;
	memcpy(r.what, what, len);
	(void)!write(report, &r, sizeof(r)); /* a failure cannot be reported */
	_exit(125);
}
