/* SPDX-License-Identifier: Apache-2.0 */
/* Inside: ids, limits and capabilities of init and of everything it starts. */
#include "sandbox/child.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"

void forge_child_set_ids(const struct forge_child *c)
{
	/*
	 * In an ordinary user's namespace this is not permitted; then the groups stay, without
	 * power inside.
	 */
	if (setgroups(0, NULL) < 0 && c->plan->privileged)
		forge_child_die(c->report, FORGE_STAGE_IDS, "setgroups");
	/* No uid 0 exists inside, so the kernel does not clear our capabilities here. */
	if (setresgid(FORGE_INSIDE_GID, FORGE_INSIDE_GID, FORGE_INSIDE_GID) < 0)
		forge_child_die(c->report, FORGE_STAGE_IDS, "setresgid");
	if (setresuid(FORGE_INSIDE_UID, FORGE_INSIDE_UID, FORGE_INSIDE_UID) < 0)
		forge_child_die(c->report, FORGE_STAGE_IDS, "setresuid");
	/*
	 * The command has our uid. It must not read our memory, which is a copy of the
	 * supervisor's.
	 */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		forge_child_die(c->report, FORGE_STAGE_IDS, "dumpable");
	umask(022);
	/* Whatever the caller's personality was, the address layout is random again. */
	(void)personality(PER_LINUX);
}

/*
 * Sets the soft and the hard limit, never above our own hard limit: root may lack
 * CAP_SYS_RESOURCE.
 */
static void limit(const struct forge_child *c, int resource, uint64_t value,
		  const char *name)
{
	struct rlimit now, want;

	if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
		forge_child_die(c->report, FORGE_STAGE_RLIMIT, name);
	want.rlim_cur = want.rlim_max =
		value == FORGE_UNLIMITED ? now.rlim_max : (rlim_t)value;
	if (now.rlim_max != RLIM_INFINITY && want.rlim_max > now.rlim_max)
		want.rlim_cur = want.rlim_max = now.rlim_max;
	if (setrlimit((__rlimit_resource_t)resource, &want) < 0)
		forge_child_die(c->report, FORGE_STAGE_RLIMIT, name);
}

static void set_limits(const struct forge_child *c)
{
	const struct forge_limits *l = &c->plan->limits;

	/*
	 * A limit of 0 does not stop a core_pattern that pipes to a program of the host. At 1
	 * the kernel writes no core file and starts no such program.
	 */
	limit(c, RLIMIT_CORE, 1, "core");
	/*
	 * One file can never exceed the whole disk budget; the supervisor measures the tree
	 * from outside.
	 */
	limit(c, RLIMIT_FSIZE, l->disk_bytes, "fsize");
	limit(c, RLIMIT_MEMLOCK, 8 << 20, "memlock");
	limit(c, RLIMIT_MSGQUEUE, 819200, "msgqueue");
	limit(c, RLIMIT_SIGPENDING, 4096, "sigpending");
	limit(c, RLIMIT_NICE, 0, "nice");
	limit(c, RLIMIT_RTPRIO, 0, "rtprio");
}

void forge_child_limit_files(const struct forge_child *c)
{
	limit(c, RLIMIT_NOFILE, c->plan->limits.open_files, "nofile");
}

static void drop_capabilities(const struct forge_child *c)
{
	struct __user_cap_header_struct hdr = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	int cap = 0;

	while (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
		cap++;
	/* EINVAL: past the last one this kernel knows */
	if (errno != EINVAL || cap <= CAP_AUDIT_READ)
		forge_child_die(c->report, FORGE_STAGE_CAPS, "bounding set");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		forge_child_die(c->report, FORGE_STAGE_CAPS, "ambient set");
	if (prctl(PR_SET_SECUREBITS,
		  SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_SETUID_FIXUP |
			  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_NOROOT |
			  SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
			  SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
		  0, 0, 0) < 0)
		forge_child_die(c->report, FORGE_STAGE_CAPS, "securebits");
	if (syscall(SYS_capset, &hdr, none) < 0)
		forge_child_die(c->report, FORGE_STAGE_CAPS, "capset");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		forge_child_die(c->report, FORGE_STAGE_CAPS, "no_new_privs");
}

void forge_child_confine(const struct forge_child *c)
{
	/*
	 * Not part of clone3: CLONE_NEWCGROUP together with CLONE_INTO_CGROUP would root the
	 * namespace in the supervisor's cgroup.
	 */
	if (unshare(CLONE_NEWCGROUP) < 0)
		forge_child_die(c->report, FORGE_STAGE_CGROUP_NS, "cgroup");
	if (c->plan->n_cpus &&
	    sched_setaffinity(0, sizeof(c->plan->cpus), &c->plan->cpus) < 0)
		forge_child_die(c->report, FORGE_STAGE_RLIMIT, "affinity");
	set_limits(c);
	drop_capabilities(c);
	/*
	 * The id changes above would reset PDEATHSIG, so it comes last. It is a second
	 * safeguard; the control socket is the first.
	 */
	(void)prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0);
}
