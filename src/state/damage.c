/* SPDX-License-Identifier: Apache-2.0 */
/* The marks of damaged objects. */
#include "state/damage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"

#define DIRECTORY "damaged"
#define MARK_SIZE 4096
#define HEX	  64

/* "<64 digits>.json". Returns buf. */
static const char *name_of(char buf[FORGE_MARK_MAX], const char *digest)
{
	(void)snprintf(buf, FORGE_MARK_MAX, "%.64s.json", strchr(digest, ':') + 1);
	return buf;
}

bool forge_damage_digest_of(const char *name, char ret[FORGE_MARK_MAX])
{
	if (strspn(name, "0123456789abcdef") != HEX || strcmp(name + HEX, ".json") != 0)
		return false;
	(void)snprintf(ret, FORGE_MARK_MAX, "sha256:%.64s", name);
	return true;
}

static int open_dir(int home_fd, int flags)
{
	int fd = openat(home_fd, DIRECTORY, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int forge_damage_lock(int home_fd, bool makes)
{
	forge_auto_close int dir = open_dir(home_fd, O_RDONLY);

	if (dir == -ENOENT && makes) {
		if (mkdirat(home_fd, DIRECTORY, 0700) < 0 && errno != EEXIST)
			return -errno;
		if (fsync(home_fd) < 0)
			return -errno;
		dir = open_dir(home_fd, O_RDONLY);
	}
	if (dir < 0)
		return dir;
	int rc = forge_lock_fd(dir, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_WAIT_FOREVER, -1);
	return rc < 0 ? rc : forge_take_fd(dir);
}

int forge_damage_mark(const struct forge_home *home, int dir, const char *digest,
		      const char *problem, const char *found)
{
	char now[FORGE_TIME_MAX], name[FORGE_MARK_MAX];
	forge_auto_json json_t *j = json_pack(
		"{s:s, s:o, s:s*, s:s}", "sha256", digest, "problem",
		forge_json_text(problem), "found", found, "time", forge_format_now(now));
	forge_auto_free char *text = j ? forge_json_line(j) : NULL;

	if (!text)
		return -ENOMEM;
	int rc = forge_replace_file(dir, name_of(name, digest), text, strlen(text), true);
	/* Who may read the outputs may know that one is damaged. */
	forge_auto_close int fd =
		rc == 0 && home->shared
			? openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
			: -1;
	if (fd >= 0) {
		forge_home_share(home, dir);
		forge_home_share(home, fd);
	}
	return rc;
}

int forge_damage_unmark(int dir, const char *digest)
{
	char name[FORGE_MARK_MAX];

	if (unlinkat(dir, name_of(name, digest), 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return 1;
}

static void path_of(char buf[FORGE_MARK_MAX + sizeof(DIRECTORY)], const char *digest)
{
	char name[FORGE_MARK_MAX];

	(void)snprintf(buf, FORGE_MARK_MAX + sizeof(DIRECTORY), DIRECTORY "/%s",
		       name_of(name, digest));
}

int forge_damage_is_marked(int home_fd, const char *digest)
{
	char path[FORGE_MARK_MAX + sizeof(DIRECTORY)];
	struct stat st;

	path_of(path, digest);
	if (fstatat(home_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 1;
	return errno == ENOENT ? 0 : -errno;
}

json_t *forge_damage_read(int home_fd, const char *digest)
{
	forge_auto_close int dir = open_dir(home_fd, O_PATH);
	forge_auto_free char *text = NULL;
	char name[FORGE_MARK_MAX];
	size_t len;

	if (dir < 0)
		return NULL;
	int rc = forge_read_file(dir, name_of(name, digest), MARK_SIZE, &text, &len);
	if (rc < 0)
		return forge_damage_is_marked(home_fd, digest) == 1 ? json_object()
								    : NULL;
	json_t *j = json_loadb(text, len, 0, NULL);
	if (json_is_object(j))
		return j;
	json_decref(j);
	return json_object();
}
