/* SPDX-License-Identifier: Apache-2.0 */
/* Results that were taken from other users. */
#include "state/reused.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "state/objects.h"

#define DIR_NAME "reused"
#define FILE_MAX (64u << 20)
#define NAME_LEN 64

/* The digits of the key; NULL: it is none. */
static const char *name_of(const char *key)
{
	return forge_objects_is_digest(key) ? key + strlen("sha256:") : NULL;
}

static bool is_name(const char *name)
{
	return strlen(name) == NAME_LEN && strspn(name, "0123456789abcdef") == NAME_LEN;
}

static int open_dir(const struct forge_home *home)
{
	int fd = openat(home->fd, DIR_NAME,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* 0, -ENOENT, or another error. A damaged one is NULL in *ret. */
static int load(int dir, const char *name, json_t **ret)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_file(dir, name, FILE_MAX, &text, &len);

	*ret = rc < 0 ? NULL : json_loadb(text, len, 0, NULL);
	return rc == -EFBIG || rc > 0 ? 0 : rc; /* none of ours is as big */
}

int forge_reused_read(const struct forge_home *home, const char *key, json_t **ret,
		      struct forge_error *err)
{
	const char *name = name_of(key);
	forge_auto_close int dir = open_dir(home);

	*ret = NULL;
	if (dir == -ENOENT || !name)
		return 0;
	int rc = dir < 0 ? dir : load(dir, name, ret);
	if (rc < 0 && rc != -ENOENT)
		return forge_fail_errno(err, -rc, "read %s/" DIR_NAME "/%s", home->path,
					name);
	return *ret != NULL;
}

int forge_reused_write(const struct forge_home *home, const char *key,
		       const json_t *entry, struct forge_error *err)
{
	const char *name = name_of(key);
	forge_auto_close int dir = name ? forge_home_subdir(home, DIR_NAME, err) : -1;
	forge_auto_free char *text = json_dumps(entry, JSON_COMPACT);

	if (!name)
		return forge_fail(err, EINVAL, "'%.80s' is no key of a step", key);
	if (dir < 0)
		return dir;
	size_t len = text ? strlen(text) : 0;
	int rc = !text		  ? -ENOMEM
		 : len > FILE_MAX ? -EFBIG
				  : forge_replace_file(dir, name, text, len, true);
	return rc < 0 ? forge_fail_errno(err, -rc, "write %s/" DIR_NAME "/%s", home->path,
					 name)
		      : 0;
}

bool forge_reused_touch(const struct forge_home *home, const char *key)
{
	const char *name = name_of(key);
	forge_auto_close int dir = open_dir(home);

	return dir >= 0 && name && utimensat(dir, name, NULL, AT_SYMLINK_NOFOLLOW) == 0;
}

int forge_reused_remove(const struct forge_home *home, const char *name,
			struct forge_error *err)
{
	forge_auto_close int dir = open_dir(home);

	if (dir >= 0 && is_name(name) && unlinkat(dir, name, 0) == 0)
		return 0;
	return dir == -ENOENT || (dir >= 0 && errno == ENOENT)
		       ? 0
		       : forge_fail_errno(err, dir < 0 ? -dir : errno,
					  "remove " DIR_NAME "/%s", name);
}

int forge_reused_each(const struct forge_home *home,
		      int (*visit)(void *arg, const char *name, time_t used,
				   const json_t *entry),
		      void *arg, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	(void)forge_entries_open(&d, home->fd, DIR_NAME); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		forge_auto_json json_t *entry = NULL;
		struct stat st;
		if (!is_name(name))
			continue;
		int got = load(forge_entries_fd(&d), name, &entry);
		if (got == 0 &&
		    fstatat(forge_entries_fd(&d), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			got = -errno;
		if (got == -ENOENT)
			continue;
		if (got < 0)
			return forge_fail_errno(err, -got, "read " DIR_NAME "/%s", name);
		rc = visit(arg, name, st.st_mtime, entry);
	}
	if (rc == 0 && d.error && d.error != -ENOENT)
		return forge_fail_errno(err, -d.error, "read %s/" DIR_NAME, home->path);
	return rc;
}
