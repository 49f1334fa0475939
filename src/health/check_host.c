/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the host's disks and memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "base/parse.h"
#include "health/kinds.h"

/* ---- disk ---- */

/* False: too little is free, and the report says so. */
static bool check_file_system(const struct forge_check_decl *d, const char *path,
			      struct forge_check_report *ret)
{
	char has[FORGE_FORMAT_MAX], least[FORGE_FORMAT_MAX];
	struct statvfs fs;

	if (statvfs(path, &fs) < 0) {
		forge_check_say(ret, false, "%s: %s", path, strerror(errno));
		return false;
	}
	uint64_t size = (uint64_t)fs.f_blocks * fs.f_frsize;
	uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	uint64_t min = forge_amount_of(&d->min_free, size);
	uint64_t min_inodes = forge_amount_of(&d->min_inodes, fs.f_files);
	json_decref(ret->numbers);
	ret->numbers = json_pack("{s:s, s:I, s:I, s:I, s:I}", "path", path, "free_bytes",
				 (json_int_t)free_bytes, "size_bytes", (json_int_t)size,
				 "free_inodes", (json_int_t)fs.f_favail, "inodes",
				 (json_int_t)fs.f_files);
	if (free_bytes < min) {
		forge_check_say(ret, false, "%s: %s free (%u %%), %s needed", path,
				forge_format_size(has, free_bytes),
				size ? (unsigned)(free_bytes * 100 / size) : 0,
				forge_format_size(least, min));
		return false;
	}
	/* A file system that counts no inodes has 0 of 0. */
	if (fs.f_files && fs.f_favail < min_inodes) {
		forge_check_say(ret, false, "%s: %llu files can be made, %llu needed",
				path, (unsigned long long)fs.f_favail,
				(unsigned long long)min_inodes);
		return false;
	}
	forge_check_say(ret, true, "%s: %s free (%u %%)", path,
			forge_format_size(has, free_bytes),
			size ? (unsigned)(free_bytes * 100 / size) : 0);
	return true;
}

void forge_workdirs_place(const char *workdirs, char buf[PATH_MAX])
{
	(void)snprintf(buf, PATH_MAX, "%.*s", (int)strcspn(workdirs, "{"), workdirs);
	for (char *slash; (slash = strrchr(buf, '/'));) {
		struct statvfs fs;
		slash[slash == buf] = '\0';
		if (slash == buf || statvfs(buf, &fs) == 0)
			return;
	}
}

FORGE_CHECK(forge_check_disk)
{
	char place[PATH_MAX];

	if (d->path) {
		(void)check_file_system(d, d->path, ret);
		return;
	}
	forge_workdirs_place(env->cfg->workdir, place);
	if (check_file_system(d, place, ret))
		(void)check_file_system(d, env->home->path, ret);
}

/* ---- memory ---- */

/* Thousandths of the last 10 s in which all tasks waited for memory; -1: the kernel does not say. */
static int pressure(void)
{
	char text[512];

	if (forge_read_at(AT_FDCWD, "/proc/pressure/memory", text, sizeof(text)) < 0)
		return -1;
	const char *full = strstr(text, "full avg10=");
	return full ? (int)(strtod(full + strlen("full avg10="), NULL) * 10) : -1;
}

FORGE_CHECK(forge_check_memory)
{
	char text[8192], has[FORGE_FORMAT_MAX], least[FORGE_FORMAT_MAX];
	(void)env; /* nothing of it is needed */
	ssize_t n = forge_read_at(AT_FDCWD, "/proc/meminfo", text, sizeof(text));
	uint64_t total = n < 0 ? 0 : forge_key_u64(text, "MemTotal:", 0) << 10;
	uint64_t available = n < 0 ? 0 : forge_key_u64(text, "MemAvailable:", 0) << 10;
	uint64_t min = forge_amount_of(&d->min_available, total);
	int waits = pressure();

	if (n < 0 || !total) {
		forge_check_say(ret, false, "/proc/meminfo cannot be read");
		return;
	}
	ret->numbers = json_pack("{s:I, s:I}", "available_bytes", (json_int_t)available,
				 "total_bytes", (json_int_t)total);
	if (waits >= 0)
		json_object_set_new(ret->numbers, "pressure",
				    json_real((double)waits / 1000));
	(void)forge_format_size(has, available);
	if (available < min)
		forge_check_say(ret, false, "%s available, %s needed", has,
				forge_format_size(least, min));
	else if (d->max_pressure.milli && waits < 0)
		forge_check_say(ret, false,
				"this kernel does not tell the pressure on memory");
	else if (d->max_pressure.milli && waits > (int)d->max_pressure.milli)
		forge_check_say(ret, false,
				"all programs waited for memory %d.%d %% of the time "
				"(%u.%u %% allowed)",
				waits / 10, waits % 10, d->max_pressure.milli / 10,
				d->max_pressure.milli % 10);
	else
		forge_check_say(ret, true, "%s available of %s", has,
				forge_format_size(least, total));
}
