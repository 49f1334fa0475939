/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc. */
#include "base/proc.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/sha256.h"

const char *forge_boot_id(char buf[FORGE_BOOT_ID_MAX])
{
	if (forge_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", buf,
			  FORGE_BOOT_ID_MAX) < 0)
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return buf;
}

const char *forge_machine_id(char buf[FORGE_BOOT_ID_MAX])
{
	char text[64], digest[FORGE_DIGEST_MAX];
	struct forge_sha256 h;

	buf[0] = '\0';
	if (forge_read_at(AT_FDCWD, "/etc/machine-id", text, sizeof(text)) <= 0)
		return buf;
	forge_sha256_init(&h);
	forge_sha256_add(&h, "forge", 5);
	forge_sha256_add(&h, text, strcspn(text, "\n"));
	(void)snprintf(buf, FORGE_BOOT_ID_MAX, "%.32s",
		       forge_sha256_done(&h, digest) + 7);
	return buf;
}

uint64_t forge_pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

/* A field of /proc/PID/stat by its number in proc(5), from 3 on. */
static uint64_t stat_field(pid_t pid, int wanted, bool also_dead)
{
	char path[32], text[1024];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (forge_read_at(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	/* The name, in parentheses, may contain any character; after it come plain fields. */
	char *p = strrchr(text, ')');
	/*
	 * A zombie, for which its parent has not waited yet; in a container that can last
	 * forever.
	 */
	if (p && !also_dead && (p[2] == 'Z' || p[2] == 'X'))
		return 0;
	for (int field = 2; p && field < wanted; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

uint64_t forge_proc_start_time(pid_t pid)
{
	return stat_field(pid, 22, false);
}

pid_t forge_proc_parent(pid_t pid)
{
	return (pid_t)stat_field(pid, 4, true);
}
