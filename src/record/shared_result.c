/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what a step left for other users, and reads what theirs left. */
#include "record/shared_result.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "state/objects.h"

#define FILE_MAX (64u << 20)

static json_t *result_json(const json_t *record)
{
	const char *key = forge_json_string(json_object_get(record, "step"), "key");

	if (!forge_objects_is_digest(key) ||
	    strcmp(forge_json_string_or(record, "status", ""), "succeeded") != 0)
		return NULL;
	return json_pack("{s:O?, s:O?, s:O?, s:O?, s:s, s:O?, s:O?}", "run_id",
			 json_object_get(record, "run_id"), "analysis_id",
			 json_object_get(record, "analysis_id"), "user",
			 json_object_get(record, "user"), "host",
			 json_object_get(record, "host"), "key", key, "ended_at",
			 json_object_get(record, "ended_at"), "outputs",
			 json_object_get(record, "outputs"));
}

static bool is_readable_for_group(int dir)
{
	struct stat st;

	return fstatat(dir, FORGE_RESULT_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (st.st_mode & 040);
}

int forge_shared_result_write(const struct forge_home *home, int run_dir,
			      const json_t *record)
{
	if (!home->shared || run_dir < 0 || is_readable_for_group(run_dir))
		return 0;
	forge_auto_json json_t *result = result_json(record);
	forge_auto_free char *text = result ? json_dumps(result, JSON_COMPACT) : NULL;
	if (!text)
		return result ? -ENOMEM : 0;
	int rc =
		forge_replace_file(run_dir, FORGE_RESULT_FILE, text, strlen(text), false);
	forge_auto_close int fd =
		rc < 0 ? -1
		       : openat(run_dir, FORGE_RESULT_FILE,
				O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0)
		forge_home_share(home, fd);
	return rc < 0 ? rc : fd < 0 ? -errno : 0;
}

/* ---- another user's ---- */

/* The directories on the way to a FORGE_HOME, from the root. */
struct way {
	uid_t owner; /* the user other than root and us that owns some of them */
	bool has_owner;
	bool is_open_to_all; /* the last one: everybody can make names in it, and remove their own */
};

/* Who can change what the path names: 0, or -EPERM. */
static int check_directory(struct way *w, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	bool is_ours = st.st_uid == 0 || st.st_uid == geteuid();
	if (!is_ours && (w->is_open_to_all || (w->has_owner && w->owner != st.st_uid)))
		return -EPERM;
	if (!is_ours) {
		w->owner = st.st_uid;
		w->has_owner = true;
	}
	w->is_open_to_all = (st.st_mode & 022) && (st.st_mode & S_ISVTX);
	return (st.st_mode & 022) && !w->is_open_to_all ? -EPERM : 0;
}

/* Opens it, one component after the other. */
static int open_safely(const char *path, char bad[PATH_MAX])
{
	struct way w = { .has_owner = false };
	forge_auto_close int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1];
	const char *p = path;
	int rc = dir < 0 ? -errno : check_directory(&w, dir);

	(void)snprintf(bad, PATH_MAX, "/");
	while (rc == 0) {
		p += strspn(p, "/");
		size_t len = strcspn(p, "/");
		if (len == 0)
			break;
		if (len >= sizeof(name) || (p - path) + len >= PATH_MAX)
			return -ENAMETOOLONG;
		(void)snprintf(name, sizeof(name), "%.*s", (int)len, p);
		p += len;
		(void)snprintf(bad, PATH_MAX, "%.*s", (int)(p - path), path);
		int next =
			openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return -errno;
		close(dir);
		dir = next;
		rc = check_directory(&w, dir);
	}
	if (rc == 0 && w.is_open_to_all)
		rc = -EPERM;
	return rc < 0 ? rc : forge_take_fd(dir);
}

int forge_shared_home_open(const char *path, struct forge_home *ret, uid_t *ret_owner,
			   struct forge_error *err)
{
	struct forge_home h = FORGE_HOME_INIT;
	char bad[PATH_MAX] = "";
	struct stat st;
	int rc = path[0] == '/' ? 0 : -EINVAL;

	h.path = strdup(path);
	if (!h.path)
		return forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0)
		rc = h.fd = open_safely(path, bad);
	if (rc >= 0)
		rc = h.runs_fd = openat(h.fd, "runs",
					O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (h.fd >= 0 && (h.runs_fd < 0 || fstat(h.fd, &st) < 0))
		rc = -errno;
	if (rc == -EPERM)
		rc = forge_hint(err,
				forge_fail(err, EPERM,
					   "%s: users other than its owner "
					   "can change what is in %s",
					   path, bad),
				"Every directory on the way must belong to root, to you "
				"or to that owner, and not be writable by others");
	else if (rc < 0)
		rc = forge_fail_errno(err, -rc, "open %s", path);
	if (rc < 0) {
		forge_home_close(&h);
		return rc;
	}
	*ret_owner = st.st_uid;
	*ret = h;
	return 0;
}

/* Whether what fd is belongs to that user, who alone can change it. */
static int check_maker(int fd, uid_t owner, mode_t kind)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid == owner && (st.st_mode & S_IFMT) == kind && !(st.st_mode & 022)
		       ? 0
		       : -EPERM;
}

int forge_shared_result_load(const struct forge_home *theirs, uid_t owner,
			     const char *run_id, json_t **ret)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = check_maker(theirs->runs_fd, owner, S_IFDIR);
	forge_auto_close int dir = rc < 0 ? rc : forge_home_open_run(theirs, run_id);

	if (rc == 0)
		rc = dir < 0 ? dir : check_maker(dir, owner, S_IFDIR);
	forge_auto_close int fd = rc < 0 ? -1
					 : openat(dir, FORGE_RESULT_FILE,
						  O_RDONLY | O_NONBLOCK | O_NOCTTY |
							  O_CLOEXEC | O_NOFOLLOW);
	if (rc == 0)
		rc = fd < 0 ? -errno : check_maker(fd, owner, S_IFREG);
	if (rc == 0)
		rc = forge_read_fd(fd, FILE_MAX, &text, &len);
	if (rc < 0)
		return rc;
	*ret = json_loadb(text, len, 0, NULL);
	return *ret ? 0 : -EBADMSG;
}
