/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and fills workdirs. After the first exec forge never writes into one again. */
#include "executor/workdir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "executor/results.h"
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

/* The directory of path, checked; *ret_name is its last part. */
static int open_parent(const char *path, char buf[PATH_MAX], const char **ret_name,
		       struct forge_error *err)
{
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (!slash || len + 1 >= PATH_MAX)
		return forge_fail(err, ENAMETOOLONG, "workdir: the path is too long");
	(void)snprintf(buf, PATH_MAX, "%.*s", len ? (int)len : 1, path);
	forge_auto_close int fd = forge_open_nolink(buf, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return forge_fail_errno(err, -fd, "workdir: open %s", buf);
	int rc = check_parent(fd, buf, err);
	*ret_name = slash + 1;
	return rc < 0 ? rc : forge_take_fd(fd);
}

/* Both directories; *ret_outer has the descriptor of the first as soon as it is there. */
static int make_both(int parent, const char *name, struct forge_workdir *w,
		     int *ret_outer)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	struct stat st;

	*ret_outer = openat(parent, name, flags);
	if (*ret_outer < 0 || fstat(*ret_outer, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 0777) != 0700)
		return -ESTALE; /* the parent's setgid bit may be there */
	w->dev = st.st_dev;
	w->ino = st.st_ino;
	if (mkdirat(*ret_outer, FORGE_WORKDIR_INNER, 0700) < 0)
		return -errno;
	w->fd = openat(*ret_outer, FORGE_WORKDIR_INNER, flags);
	if (w->fd < 0 || fstat(w->fd, &st) < 0)
		return -errno;
	w->inner = st.st_ino;
	return 0;
}

static const char *spare_name(unsigned slot, char buf[32])
{
	(void)snprintf(buf, 32, "spare/%u.workdir", slot);
	return buf;
}

static bool is_closed(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
	       st.st_uid == geteuid() && (st.st_mode & 0777) == 0700;
}

/* The spare directory, or a new one. A chmod -R of FORGE_HOME may have opened the spare one to others. */
static int make_outer(int parent, const char *name, const struct forge_home *home,
		      unsigned slot)
{
	char spare[32];

	if (renameat2(home->fd, spare_name(slot, spare), parent, name,
		      RENAME_NOREPLACE) == 0) {
		if (is_closed(parent, name) || unlinkat(parent, name, AT_REMOVEDIR) < 0)
			return 0;
	}
	/* There is none, or not here, or not for this file system. */
	return mkdirat(parent, name, 0700) < 0 ? -errno : 0;
}

int forge_workdir_make(const char *path, const struct forge_home *home, unsigned slot,
		       struct forge_workdir *ret, struct forge_error *err)
{
	char parent_path[PATH_MAX];
	const char *name;
	struct forge_workdir w = { .path = path, .fd = -1 };
	forge_auto_close int outer = -1;
	forge_auto_close int parent = open_parent(path, parent_path, &name, err);

	if (parent < 0)
		return parent;
	int rc = make_outer(parent, name, home, slot);
	if (rc < 0)
		return rc == -EEXIST
			       ? forge_fail(err, EEXIST, "workdir %s exists", path)
			       : forge_fail_errno(err, -rc, "make workdir %s", path);
	rc = make_both(parent, name, &w, &outer);
	if (rc == 0) {
		*ret = w;
		return 0;
	}
	forge_workdir_close(&w);
	/* Still empty, if still ours. */
	if (outer >= 0)
		(void)unlinkat(outer, FORGE_WORKDIR_INNER, AT_REMOVEDIR);
	(void)unlinkat(parent, name, AT_REMOVEDIR);
	return rc == -ESTALE
		       ? forge_fail(err, ESTALE,
				    "workdir %s was replaced while it was made", path)
		       : forge_fail_errno(err, -rc, "open workdir %s", path);
}

/* Never over something: in a directory that others write, anything can be there by now. */
static int move(int from_dir, const char *from, int to_dir, const char *to)
{
	struct stat st;

	if (renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* A file system without the flag: a directory replaces nothing but an empty one. */
	if (fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(from_dir, from, to_dir, to) < 0 ? -errno : 0;
}

/* The run's own directory while it is being removed. */
#define REMOVED "removed"

int forge_workdir_remove(const struct forge_workdir *w, const struct forge_home *home,
			 unsigned slot, struct forge_rmtree_stats *ret,
			 struct forge_error *err)
{
	forge_auto_free char *inner =
		forge_asprintf("%s/%s", w->path, FORGE_WORKDIR_INNER);
	forge_auto_free char *removed = forge_asprintf("%s/" REMOVED, w->path);
	char spare[32];

	if (!inner || !removed)
		return forge_fail(err, ENOMEM, "out of memory");
	/*
	 * If this process is killed now, repair must not take what is left of the files for what the run has left: it would
	 * be kept, and another attempt would go on from it. Should the name stay, the next call says why.
	 */
	bool is_moved = move(AT_FDCWD, inner, AT_FDCWD, removed) == 0;
	int rc = forge_rmtree(is_moved ? removed : inner, w->dev, w->inner, ret, err);
	if (rc < 0)
		return rc;
	struct stat st;
	if (lstat(w->path, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
		return 0; /* its user was faster */
	if (renameat2(AT_FDCWD, w->path, home->fd, spare_name(slot, spare),
		      RENAME_NOREPLACE) == 0)
		return 0;
	return rmdir(w->path) < 0 && errno != ENOENT
		       ? forge_fail_errno(err, errno, "remove %s", w->path)
		       : 0;
}

/* 1: name in dir is that directory, 0: it is not, or something else is there; negative: unknown. */
static int is_at(int dir, const char *name, dev_t dev, ino_t ino)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	return st.st_dev == dev && st.st_ino == ino;
}

/*
 * A directory cannot be moved over the one that it is in: it goes aside, the other goes, and it comes
 * back. 1: it stays aside.
 */
static int move_up(int parent, const char *name, const char *aside,
		   const struct forge_workdir *w)
{
	int rc = w->ino == w->inner ? 0 : is_at(parent, name, w->dev, w->ino);

	if (rc == 1) {
		forge_auto_close int outer = openat(
			parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		rc = outer < 0 ? -errno : move(outer, FORGE_WORKDIR_INNER, parent, aside);
		if (rc == -ENOENT)
			rc = 0; /* it was moved before a crash */
		if (rc == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0)
			rc = -errno;
	}
	if (rc < 0)
		return rc;
	rc = is_at(parent, aside, w->dev, w->inner);
	if (rc == 1) {
		rc = move(parent, aside, parent, name);
		return rc == -EEXIST ? 1 : rc;
	}
	if (rc == 0)
		rc = is_at(parent, name, w->dev, w->inner);
	return rc < 0 ? rc : rc == 1 ? 0 : -ENOENT;
}

/* Takes ownership of the whole tree and closes it to others: the run may have given it any mode. */
static int take_over(const char *path, const struct forge_workdir *w,
		     struct forge_error *err)
{
	forge_auto_free char *inner = forge_asprintf("%s/%s", path, FORGE_WORKDIR_INNER);
	struct stat st;

	if (!inner)
		return forge_fail(err, ENOMEM, "out of memory");
	if (w->ino == w->inner)
		return 0; /* of an older forge, which has done so */
	if (lstat(inner, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR
			       ? 0 /* it has been moved already */
			       : forge_fail_errno(err, errno, "look at %s", inner);
	int rc = geteuid() == 0 ? forge_chown_tree(inner, getuid(), getgid(), w->dev,
						   w->inner, err)
				: 0;
	if (rc < 0)
		return rc;
	forge_auto_close int fd = forge_open_nolink(inner, O_PATH | O_DIRECTORY);
	char self[40];
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return fd < 0 || chmod(self, 0700) < 0
		       ? forge_fail_errno(err, fd < 0 ? -fd : errno, "close %s to others",
					  inner)
		       : 0;
}

int forge_workdir_keep(const struct forge_workdir *w, const char *run_id, char **ret_path,
		       struct forge_error *err)
{
	char parent_path[PATH_MAX], aside[NAME_MAX + 1];
	const char *name;
	forge_auto_close int parent = open_parent(w->path, parent_path, &name, err);

	if (parent < 0)
		return parent;
	(void)snprintf(aside, sizeof(aside), "%.*s-%s",
		       (int)(NAME_MAX - FORGE_RUN_ID_MAX), name, run_id);
	int rc = take_over(w->path, w, err);
	if (rc < 0)
		return rc;
	rc = move_up(parent, name, aside, w);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "keep workdir %s", w->path);
	char *path = rc == 0 ? strdup(w->path)
			     : forge_asprintf("%s/%s", parent_path[1] ? parent_path : "",
					      aside);
	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret_path = path;
	return 0;
}

/* Makes one link with the directories above it; a parent that is a link already covers it. */
static int make_link(int top, const char *rel, const char *target, uid_t uid, gid_t gid)
{
	int dir = fcntl(top, F_DUPFD_CLOEXEC, 0);
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

/* Another machine has made both directories. */
static int open_place(const char *path, struct forge_workdir *ret,
		      struct forge_error *err)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	struct forge_workdir w = { .path = path, .fd = -1 };
	struct stat st, inner;
	forge_auto_close int outer = forge_open_nolink(path, flags);

	if (outer < 0)
		return forge_fail_errno(err, -outer, "open workdir %s", path);
	w.fd = openat(outer, FORGE_WORKDIR_INNER, flags);
	if (w.fd < 0 || fstat(outer, &st) < 0 || fstat(w.fd, &inner) < 0) {
		int rc = forge_fail_errno(err, errno, "open workdir %s", path);
		forge_workdir_close(&w);
		return rc;
	}
	w.dev = st.st_dev;
	w.ino = st.st_ino;
	w.inner = inner.st_ino;
	*ret = w;
	return 0;
}

/* The order matters for repair: the slot names the workdir, then it is made, then the slot identifies it. */
int forge_workdir_make_noted(struct forge_workdir *w, const struct forge_job *job,
			     const struct forge_ids *ids, struct forge_error *err)
{
	int rc = job->place ? open_place(job->place, w, err)
			    : forge_workdir_make(job->workdir, job->home,
						 job->slot->number, w, err);

	if (rc < 0)
		return rc;
	rc = forge_slot_add(job->slot,
			    json_pack("{s:I, s:I, s:I}", "dev", (json_int_t)w->dev, "ino",
				      (json_int_t)w->ino, "inner", (json_int_t)w->inner),
			    err);
	if (rc < 0)
		return rc;
	rc = forge_workdir_fill(w, job->links, ids->uid, ids->gid, err);
	return rc == -EEXIST ? -EIO : rc; /* -EEXIST is about the name alone */
}

/* Only an empty directory can be removed so, which needs no descriptor and follows no link. */
bool forge_workdir_drop_empty(const struct forge_workdir *w)
{
	forge_auto_free char *inner =
		forge_asprintf("%s/%s", w->path, FORGE_WORKDIR_INNER);

	return inner && rmdir(inner) == 0;
}

int forge_workdir_keep_as(struct forge_workdir *w, const char *run_id,
			  struct forge_kept *ret, struct forge_error *err)
{
	char *path = NULL;
	int rc = forge_workdir_keep(w, run_id, &path, err);

	if (rc < 0)
		return rc;
	*ret = (struct forge_kept){ .path = path, .dev = w->dev, .ino = w->inner };
	forge_workdir_close(w);
	return 0;
}

int forge_workdir_reopen(const json_t *slot, const char *path, struct forge_workdir *ret,
			 struct forge_error *err)
{
	struct forge_workdir w = {
		.path = path,
		.dev = (dev_t)json_integer_value(json_object_get(slot, "dev")),
		.ino = (ino_t)json_integer_value(json_object_get(slot, "ino")),
		.inner = (ino_t)json_integer_value(json_object_get(slot, "inner")),
	};
	struct stat st;
	forge_auto_close int outer =
		forge_open_nolink(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (outer < 0)
		return forge_fail_errno(err, -outer, "open workdir %s", path);
	w.fd = openat(outer, FORGE_WORKDIR_INNER,
		      O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool is_it = fstat(outer, &st) == 0 && st.st_dev == w.dev && st.st_ino == w.ino &&
		     w.fd >= 0 && fstat(w.fd, &st) == 0 && st.st_ino == w.inner;
	if (is_it) {
		*ret = w;
		return 0;
	}
	forge_workdir_close(&w);
	return forge_fail(err, ESTALE, "workdir %s was replaced", path);
}

/* ---- what a dead supervisor left ---- */

static uint64_t number(const struct forge_repair *r, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(r->slot, key));
}

/*
 * The supervisor was killed after it made the workdir and before it wrote which one that is. A workdir of
 * that age contains nothing but the run's own directory, which is empty; rmdir checks that.
 */
static void remove_unidentified(const struct forge_repair *r, const char *path,
				const struct stat *st)
{
	forge_auto_free char *inner = forge_asprintf("%s/%s", path, FORGE_WORKDIR_INNER);

	if (!inner || st->st_uid != geteuid() || !S_ISDIR(st->st_mode) ||
	    (st->st_mode & 0777) != 0700 || st->st_nlink > 3)
		return;
	r->report(r->arg, "remove empty workdir", path);
	if (r->dry_run)
		return;
	(void)rmdir(inner); /* not there yet, or not empty: then it is not ours */
	(void)rmdir(path);
}

/* The run's own directory in the one around it, which is at path. -ENOENT: there is none. */
static int open_inner(const struct forge_repair *r, const char *path)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	forge_auto_close int outer = forge_open_nolink(path, flags);
	struct stat st;

	if (outer < 0)
		return outer;
	if (fstatat(outer, FORGE_WORKDIR_INNER, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode) || st.st_dev != (dev_t)number(r, "dev") ||
	    st.st_ino != (ino_t)number(r, "inner"))
		return -ENOENT;
	/* The run of an ordinary user may have removed its own permissions. */
	if ((st.st_mode & 0700) != 0700 && !r->dry_run)
		(void)!fchmodat(outer, FORGE_WORKDIR_INNER, 0700, 0);
	int fd = openat(outer, FORGE_WORKDIR_INNER, flags);
	return fd < 0 ? -errno : fd;
}

/* What cannot be seen may be what the user wants. */
static bool has_results(const struct forge_repair *r, const char *path)
{
	if (!r->keeps_results)
		return false;
	forge_auto_close int fd = open_inner(r, path);
	return fd < 0 ? fd != -ENOENT : forge_results_any(fd, r->with_aside);
}

int forge_workdir_repair(const struct forge_repair *r, struct forge_error *err)
{
	const char *path = forge_json_string(r->slot, "workdir");
	struct stat st;

	if (!path || r->keeps_workdir)
		return 0;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0
				       : forge_fail_errno(err, errno, "look at %s", path);
	if (!json_object_get(r->slot, "dev") || !json_object_get(r->slot, "ino")) {
		remove_unidentified(r, path, &st);
		return 0;
	}
	if (st.st_dev != (dev_t)number(r, "dev") || st.st_ino != (ino_t)number(r, "ino"))
		return 0; /* another directory has the name by now */
	if (has_results(r, path)) {
		r->report(r->arg, "keep workdir", path);
		return 0;
	}
	r->report(r->arg, "remove workdir", path);
	return r->dry_run ? 0 : forge_rmtree(path, st.st_dev, st.st_ino, NULL, err);
}

int forge_workdir_repair_kept(const struct forge_repair *r, struct forge_kept *ret,
			      struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_workdir w = {
		.path = forge_json_string(r->slot, "workdir"),
		.fd = -1,
		.dev = (dev_t)number(r, "dev"),
		.ino = (ino_t)number(r, "ino"),
		.inner = (ino_t)number(r, "inner"),
	};

	if (!w.path || !w.ino)
		return 0;
	/* A slot of an older version: there was one directory, the run's own. */
	if (!w.inner)
		w.inner = w.ino;
	/* With keeps_workdir files are copied, not linked. */
	forge_auto_close int inner = r->keeps_workdir ? -1 : open_inner(r, w.path);
	if (inner >= 0)
		forge_results_unshare(inner);
	int rc = forge_workdir_keep(&w, r->run_id, &ret->path, &why);
	if (rc == -ENOENT)
		return 0; /* its user has removed it */
	if (rc < 0) {
		if (err)
			*err = why;
		return rc;
	}
	ret->dev = w.dev;
	ret->ino = w.inner;
	return 1;
}
