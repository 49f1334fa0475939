/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and fills workdirs. After the first exec forge never writes into one again. */
#include "run/workdir.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "sandbox/ids.h"

static int check_parent(int fd, const char *path, struct forge_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return forge_fail_errno(err, errno, "look at %s", path);
	/* In a user namespace the host's root has no name; /tmp then belongs to "nobody". */
	bool is_nameless = st.st_uid == 65534 && !forge_ids_is_initial();
	bool is_safe_owner = st.st_uid == 0 || st.st_uid == geteuid() || is_nameless;
	bool is_safe_mode = !(st.st_mode & 022) || (st.st_mode & S_ISVTX);
	if (is_safe_owner && is_safe_mode)
		return 0;
	return forge_hint(
		err, forge_fail(err, EPERM, "others could replace workdirs in %s", path),
		"It must belong to you or root, and be sticky if others can write (chmod "
		"+t)");
}

int forge_workdir_make(const char *path, struct forge_workdir *ret,
		       struct forge_error *err)
{
	char parent_buf[PATH_MAX], name_buf[PATH_MAX];

	if (strlen(path) >= sizeof(parent_buf))
		return forge_fail(err, ENAMETOOLONG, "workdir: the path is too long");
	memcpy(parent_buf, path, strlen(path) + 1);
	memcpy(name_buf, path, strlen(path) + 1);
	const char *parent_path = dirname(parent_buf), *name = basename(name_buf);
	forge_auto_close int parent =
		forge_open_nolink(parent_path, O_PATH | O_DIRECTORY);
	if (parent < 0)
		return forge_fail_errno(err, -parent, "workdir: open %s", parent_path);
	int rc = check_parent(parent, parent_path, err);
	if (rc < 0)
		return rc;
	if (mkdirat(parent, name, 0700) < 0) {
		if (errno == EEXIST)
			return forge_hint(
				err, forge_fail(err, EEXIST, "workdir %s exists", path),
				"Another run has this analysis id, or somebody kept it: "
				"use another --id or remove it");
		return forge_fail_errno(err, errno, "make workdir %s", path);
	}
	struct stat st;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0) {
		rc = forge_fail_errno(err, errno, "open workdir %s", path);
		(void)unlinkat(parent, name,
			       AT_REMOVEDIR); /* still empty, if still ours */
		return rc;
	}
	*ret = (struct forge_workdir){ path, fd, st.st_dev, st.st_ino };
	if (st.st_uid != geteuid())
		return forge_fail(err, ESTALE,
				  "workdir %s was replaced while it was made", path);
	return 0;
}

/* Makes one link with the directories above it; a parent that is a link already covers it. */
static int make_link(int top, const char *rel, const char *target, uid_t uid, gid_t gid)
{
	int dir = dup(top);
	int rc = dir < 0 ? -errno : 0;

	while (rc == 0) {
		char name[NAME_MAX + 1];
		size_t len = strcspn(rel, "/");
		if (len > NAME_MAX) {
			rc = -ENAMETOOLONG;
			break;
		}
		memcpy(name, rel, len);
		name[len] = '\0';
		rel += len + strspn(rel + len, "/");
		if (!*rel) {
			rc = symlinkat(target, dir, name) < 0 && errno != EEXIST ? -errno
										 : 0;
			break;
		}
		bool made = mkdirat(dir, name, 0755) == 0;
		if (!made && errno != EEXIST) {
			rc = -errno;
			break;
		}
		int next = openat(dir, name,
				  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0) {
			rc = errno == ELOOP || errno == ENOTDIR ? 0 : -errno;
			break;
		}
		close(dir);
		dir = next;
		if (made && fchown(dir, uid, gid) < 0)
			rc = -errno;
	}
	if (dir >= 0)
		close(dir);
	return rc;
}

int forge_workdir_fill(struct forge_workdir *w, const struct forge_strv *links, uid_t uid,
		       gid_t gid, struct forge_error *err)
{
	for (size_t i = 0; i + 1 < links->n; i += 2) {
		int rc = make_link(w->fd, links->v[i], links->v[i + 1], uid, gid);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "link %s into the workdir",
						links->v[i]);
	}
	if (uid != geteuid() && fchown(w->fd, uid, gid) < 0)
		return forge_fail_errno(err, errno, "give the workdir to uid %u", uid);
	return 0;
}

void forge_workdir_close(struct forge_workdir *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}
