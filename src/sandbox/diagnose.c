/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out why namespaces and mounts are refused; see diagnose.h. */
#include "sandbox/diagnose.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "sandbox/ids.h"

/* Does the sysctl exist and have this value? */
static bool sysctl_is(const char *path, uint64_t value)
{
	uint64_t now;

	return forge_read_u64_at(AT_FDCWD, path, &now) == 0 && now == value;
}

/* Is there a seccomp filter on us? It is not our own, which is set later. */
static bool is_filtered(void)
{
	char buf[8192];

	if (forge_read_at(AT_FDCWD, "/proc/self/status", buf, sizeof(buf)) <= 0)
		return false;
	return strstr(buf, "\nSeccomp:\t2\n") != NULL;
}

/* The AppArmor profile that is enforced on us, or NULL. */
static const char *enforced_profile(char *buf, size_t size)
{
	if (forge_read_at(AT_FDCWD, "/proc/self/attr/current", buf, size) <= 0)
		return NULL;
	char *mode = strstr(buf, " (enforce)");
	if (!mode)
		return NULL;
	*mode = '\0';
	return buf;
}

/*
 * Copies the mount point of the first of our mounts for which wanted() holds. The lines of
 * mountinfo are "id parent dev root mountpoint options ...".
 */
static bool find_mount(bool (*wanted)(const char *), char *ret, size_t size)
{
	forge_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool is_found = false;

	while (f && !is_found && getline(&line, &room, f) > 0) {
		char *p = line;
		for (int field = 0; field < 4 && p; field++)
			p = strchr(p + 1, ' ');
		if (!p)
			continue;
		p++;
		p[strcspn(p, " ")] = '\0';
		is_found = wanted(p);
		if (is_found)
			(void)snprintf(ret, size, "%s", p);
	}
	free(line);
	return is_found;
}

static bool is_below_proc(const char *path)
{
	return strncmp(path, "/proc/", 6) == 0 &&
	       strcmp(path, "/proc/sys/fs/binfmt_misc") != 0;
}

static bool is_root_dir(const char *path)
{
	return strcmp(path, "/") == 0;
}

/* After a chroot into a directory that is no mount point, we see no mount on "/". */
static bool is_in_chroot(void)
{
	char path[8];

	return access("/proc/self/mountinfo", R_OK) == 0 &&
	       !find_mount(is_root_dir, path, sizeof(path));
}

int forge_diagnose_refused(int rc, struct forge_error *err)
{
	bool is_ordinary = geteuid() != 0 || !forge_ids_is_initial();
	char buf[256];
	const char *profile;

	if (is_ordinary && sysctl_is("/proc/sys/kernel/unprivileged_userns_clone", 0))
		return forge_hint(err, rc,
				  "This host keeps user namespaces for root: sysctl "
				  "kernel.unprivileged_userns_clone=1, or forge setup "
				  "--user NAME as root (docs/HOSTS.md)");
	if (is_ordinary &&
	    sysctl_is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1))
		return forge_hint(
			err, rc,
			"AppArmor restricts user namespaces: give forge a profile with "
			"'userns,' (forge setup --user NAME does, as root; "
			"docs/HOSTS.md), or sysctl "
			"kernel.apparmor_restrict_unprivileged_userns=0");
	if (is_filtered())
		return forge_hint(
			err, rc,
			"A seccomp filter is on forge itself: in a container run it with "
			"--security-opt seccomp=unconfined, in a service without "
			"SystemCallFilter= and RestrictNamespaces= (docs/HOSTS.md)");
	profile = enforced_profile(buf, sizeof(buf));
	if (profile)
		return forge_hint(
			err, rc,
			"The AppArmor profile '%s' is enforced on forge: in a container "
			"run it with --security-opt apparmor=unconfined (docs/HOSTS.md)",
			profile);
	if (is_in_chroot())
		return forge_hint(err, rc,
				  "The kernel refuses user namespaces in a chroot: use "
				  "pivot_root or a container instead");
	return forge_hint(err, rc,
			  "A security module of this host refuses it: look at its log "
			  "(dmesg, journalctl -k) and at docs/HOSTS.md");
}

static const char *const kinds[] = { "user", "mnt", "pid", "ipc", "uts", "net" };

/* Each kind of namespace has a limit, in every user namespace from ours up to the host's. */
static int diagnose_full(int rc, struct forge_error *err)
{
	char path[64];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(kinds); i++) {
		(void)snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces",
			       kinds[i]);
		if (sysctl_is(path, 0))
			return forge_hint(
				err, rc,
				"sysctl user.max_%s_namespaces=15000 (it is 0), "
				"or forge setup as root",
				kinds[i]);
	}
	return forge_hint(
		err, rc,
		"One of the sysctls user.max_*_namespaces is used up, here or in "
		"a user namespace around this one: raise it");
}

static int diagnose_absent(int rc, struct forge_error *err)
{
	char path[32];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(kinds); i++) {
		(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
		if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return forge_hint(err, rc,
					  "This kernel was built without %s namespaces",
					  kinds[i]);
	}
	return rc;
}

int forge_diagnose_clone(int rc, struct forge_error *err)
{
	if (rc == -ENOSPC || rc == -EUSERS)
		return diagnose_full(rc, err);
	if (rc == -EPERM || rc == -EACCES)
		return forge_diagnose_refused(rc, err);
	return rc == -EINVAL ? diagnose_absent(rc, err) : rc;
}

int forge_diagnose_proc(int rc, struct forge_error *err)
{
	char path[128];

	if (!find_mount(is_below_proc, path, sizeof(path)))
		return is_filtered()
			       ? forge_diagnose_refused(rc, err)
			       : forge_hint(err, rc,
					    "The kernel refuses a new /proc where no "
					    "whole, writable one is mounted: mount one "
					    "on /proc");
	return forge_hint(err, rc,
			  "The kernel refuses a new /proc where parts of the old one are "
			  "covered, here %s: run the container with --security-opt "
			  "systempaths=unconfined (podman: unmask=ALL), or forge outside "
			  "of it",
			  path);
}
