/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in quarantine. */
#include "state/quarantine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"

#define DIR_NAME "quarantine"

int forge_quarantine_add(const struct forge_home *home, const char *run_id,
			 struct forge_error *err)
{
	forge_auto_close int dir = forge_home_subdir(home, DIR_NAME, err);
	forge_auto_close int fd =
		dir < 0 ? -1 : openat(dir, run_id, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (dir < 0)
		return dir;
	if (fd < 0 || fsync(dir) < 0 || fsync(home->fd) < 0)
		return forge_fail_errno(err, errno, "put run %s in quarantine", run_id);
	return 0;
}

int forge_quarantine_remove(const struct forge_home *home, const char *run_id,
			    struct forge_error *err)
{
	forge_auto_close int dir = openat(
		home->fd, DIR_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (!forge_run_id_is_valid(run_id))
		return forge_fail(err, EINVAL, "'%s' is no run id", run_id);
	if (dir < 0 && errno == ENOENT)
		return 1;
	if (dir >= 0 && unlinkat(dir, run_id, 0) == 0)
		return fsync(dir) < 0 ? forge_fail_errno(err, errno, "clear %s", run_id)
				      : 0;
	return dir >= 0 && errno == ENOENT
		       ? 1
		       : forge_fail_errno(err, errno, "clear run %s", run_id);
}

int forge_quarantine_first(const struct forge_home *home, char ret[FORGE_RUN_ID_MAX],
			   struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_open(&d, home->fd, DIR_NAME);

	ret[0] = '\0';
	if (rc == -ENOENT)
		return 0;
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));)
		if (forge_run_id_is_valid(name) && (!ret[0] || strcmp(name, ret) < 0))
			(void)snprintf(ret, FORGE_RUN_ID_MAX, "%s", name);
	return d.error ? forge_fail_errno(err, -d.error, "read %s/" DIR_NAME, home->path)
		       : ret[0] != '\0';
}

int forge_quarantine_count(const struct forge_home *home, uint64_t *ret,
			   struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = forge_entries_open(&d, home->fd, DIR_NAME);
	uint64_t n = 0;

	if (rc == 0)
		for (const char *name; (name = forge_entries_next(&d));)
			n += forge_run_id_is_valid(name);
	if (d.error && d.error != -ENOENT)
		return forge_fail_errno(err, -d.error, "read %s/" DIR_NAME, home->path);
	*ret = n;
	return 0;
}
