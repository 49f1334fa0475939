/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names come from a run, so paths are opened part by part. Files are made in a stage, a
 * directory beside their place on the same file system, and then renamed: other processes
 * never see a partial file.
 */
#include "run/export.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "state/damage.h"
#include "state/objects.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/*
 * Opens the directory of path below top; *ret_name is the last part. makes: missing
 * directories are made, otherwise they are -ENOENT.
 */
static int open_parent(int top, const char *path, bool makes, const char **ret_name)
{
	int dir = fcntl(top, F_DUPFD_CLOEXEC, 0);

	while (dir >= 0) {
		char part[NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		if (len == 0 || len > NAME_MAX ||
		    (len <= 2 && strncmp(path, "..", len) == 0)) {
			close(dir);
			return -EINVAL;
		}
		if (!path[len]) {
			*ret_name = path;
			return dir;
		}
		memcpy(part, path, len);
		part[len] = '\0';
		path += len + 1;
		int next = makes && mkdirat(dir, part, 0777) < 0 && errno != EEXIST
				   ? -1
				   : openat(dir, part, DIR_FLAGS);
		int code = errno;
		close(dir);
		if (next < 0)
			return -code;
		dir = next;
	}
	return -errno;
}

/* An output and the state of its copy. */
struct item {
	const json_t *output;
	const struct forge_export_run *run;
	char *path; /* below the target directory, as raw bytes */
	enum { STAGED, MOVED, EXCHANGED } state;
};

struct items {
	struct item *at;
	size_t n;
	const struct forge_export_run *unread; /* whose output could not be copied */
};

static void items_done(struct items *items)
{
	for (size_t i = 0; i < items->n; i++)
		free(items->at[i].path);
	free(items->at);
	*items = (struct items){ .at = NULL };
}

/* The path of an output below the directory; NULL: it has no name, or out of memory. */
static char *path_of(const struct forge_export_run *run, const json_t *output)
{
	const char *written = forge_json_string(output, "path");
	char *name = written ? forge_json_name_decode(written) : NULL;

	if (!name || !run->below)
		return name;
	char *path = forge_asprintf("%s/%s", run->below, name);
	free(name);
	return path;
}

static int add_items(struct items *items, const struct forge_export_run *run,
		     struct forge_error *err)
{
	const json_t *outputs = json_object_get(run->record, "outputs"), *output;
	struct item *grown = reallocarray(
		items->at, items->n + json_array_size(outputs) + 1, sizeof(*grown));
	size_t i;

	if (!grown)
		return forge_fail(err, ENOMEM, "out of memory");
	items->at = grown;
	json_array_foreach (outputs, i, output) {
		char *path = path_of(run, output);
		if (!path)
			return forge_fail(err, EINVAL, "output %zu has no name", i + 1);
		items->at[items->n++] =
			(struct item){ .output = output, .run = run, .path = path };
	}
	return 0;
}

static int copy_one(int top, const struct item *item, int stop_fd)
{
	const struct forge_home *home = item->run->home;
	const char *wanted = forge_json_string(item->output, "sha256");
	const char *name = NULL;
	char stored[FORGE_STORED_MAX], digest[FORGE_DIGEST_MAX];
	uint64_t size;

	/* Never uses a path from the record: other users may have written it. */
	if (!forge_objects_is_digest(wanted))
		return -EINVAL;
	/* Also if it reads well now: a clone shares its blocks, which memory may hide. */
	if (forge_damage_is_marked(home->fd, wanted) == 1)
		return -EUCLEAN;
	forge_auto_close int from = openat(home->fd, forge_objects_path(stored, wanted),
					   O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0)
		return -errno;
	forge_auto_close int dir = open_parent(top, item->path, true, &name);
	if (dir < 0)
		return dir;
	forge_auto_close int to = openat(
		dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (to < 0)
		return -errno;
	bool is_cloned = ioctl(to, FICLONE, from) == 0;
	int rc = forge_sha256_until(from, is_cloned ? -1 : to, stop_fd, digest, &size);
	return rc == 0 && strcmp(digest, wanted) != 0 ? -EUCLEAN : rc;
}

/* Also with --force: content with another digest is not what the run left. */
static int fail_damaged(const struct item *item, const char *path,
			struct forge_error *err)
{
	const char *digest = forge_json_string(item->output, "sha256");
	const char *run_id = forge_json_string_or(item->run->record, "run_id", "RUN");
	forge_auto_json json_t *mark = forge_damage_read(item->run->home->fd, digest);
	char stored[FORGE_STORED_MAX];

	if (!mark)
		return forge_hint(
			err,
			forge_fail(err, EUCLEAN,
				   "output %s is damaged: its digest is another", path),
			"`forge verify` finds all that are, and the runs that have them");
	return forge_hint(
		err,
		forge_fail(err, EUCLEAN,
			   "output %s is damaged: forge verify found at %s that %s", path,
			   forge_json_string_or(mark, "time", "some time"),
			   forge_json_string_or(mark, "problem", "it has changed")),
		"A run that makes the same file repairs it: `forge rerun %s`. After "
		"restoring %s/%s from a backup, `forge verify %s` checks it again",
		run_id, item->run->home->path, forge_objects_path(stored, digest),
		run_id);
}

static int fail_output(const struct item *item, const char *to, int rc,
		       struct forge_error *err)
{
	const char *name = forge_json_string(item->output, "path");
	const char *below = item->run->below;
	char path[512];

	(void)snprintf(path, sizeof(path), "%s%s%s", below ? below : "", below ? "/" : "",
		       name);
	if (rc == -EUCLEAN)
		return fail_damaged(item, path, err);
	if (rc == -EEXIST)
		return forge_hint(err, forge_fail(err, EEXIST, "%s/%s exists", to, path),
				  "--force replaces it");
	if (rc == -EISDIR)
		return forge_fail(err, EISDIR, "%s/%s is a directory", to, path);
	return forge_fail_errno(err, -rc, "output %s", path);
}

static int copy_all(struct items *items, int top, const struct forge_export *how,
		    struct forge_error *err)
{
	for (size_t i = 0; i < items->n; i++) {
		int rc = copy_one(top, &items->at[i], how->stop_fd);
		if (rc < 0) {
			items->unread = items->at[i].run;
			return fail_output(&items->at[i], how->to, rc, err);
		}
	}
	return 0;
}

/* Whether path below top is free, or may be replaced. */
static int check_one(int top, const char *path, bool replaces)
{
	const char *name;
	struct stat st;
	forge_auto_close int dir = open_parent(top, path, false, &name);

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	if (faccessat(dir, ".", W_OK, AT_EACCESS) < 0)
		return -errno;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	return S_ISDIR(st.st_mode) ? -EISDIR : replaces ? 0 : -EEXIST;
}

static int check_all(const struct items *items, int top, const struct forge_export *how,
		     struct forge_error *err)
{
	for (size_t i = 0; i < items->n; i++) {
		int rc = check_one(top, items->at[i].path, how->replaces);
		if (rc < 0)
			return fail_output(&items->at[i], how->to, rc, err);
	}
	return 0;
}

/*
 * For file systems without rename flags, such as NFS: moves the existing file into the
 * stage before it is replaced. Only this process uses the stage, so a free name there
 * stays free.
 */
static int replace_keeping(int from, int to, const char *name)
{
	char aside[32];
	struct stat st;
	unsigned n = 0;

	do
		(void)snprintf(aside, sizeof(aside), ".forge-old-%u", n++);
	while (fstatat(from, aside, &st, AT_SYMLINK_NOFOLLOW) == 0);
	/* With a link the target always exists. Not every file system has links. */
	if (linkat(to, name, from, aside, 0) < 0 && renameat(to, name, from, aside) < 0)
		return -errno;
	if (renameat(from, name, to, name) < 0) {
		int code = errno;
		(void)renameat(from, aside, to, name); /* best effort */
		return -code;
	}
	return renameat(from, aside, from, name) < 0 ? -errno : 0;
}

static int move_without_flags(int from, int to, const char *name, struct item *item,
			      bool replaces)
{
	struct stat st;
	bool is_there = fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (is_there && (!replaces || S_ISDIR(st.st_mode)))
		return replaces ? -EISDIR : -EEXIST;
	int rc = is_there			      ? replace_keeping(from, to, name)
		 : renameat(from, name, to, name) < 0 ? -errno
						      : 0;
	if (rc == 0)
		item->state = is_there ? EXCHANGED : MOVED;
	return rc;
}

/* A replaced file is exchanged with the one in the stage, so that it can be restored. */
static int move_one(int stage, int top, struct item *item, bool replaces)
{
	const char *name, *same;
	forge_auto_close int from = open_parent(stage, item->path, false, &name);
	forge_auto_close int to = open_parent(top, item->path, true, &same);

	if (from < 0 || to < 0)
		return from < 0 ? from : to;
	if (renameat2(from, name, to, name, RENAME_NOREPLACE) == 0) {
		item->state = MOVED;
		return 0;
	}
	if (errno == EEXIST && replaces &&
	    renameat2(from, name, to, name, RENAME_EXCHANGE) == 0) {
		item->state = EXCHANGED;
		return 0;
	}
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	return move_without_flags(from, to, name, item, replaces);
}

/* Restores a replaced file, over the copy, or moves the copy back. */
static void move_back(int stage, int top, const struct item *item)
{
	const char *name, *same;
	forge_auto_close int from = open_parent(stage, item->path, true, &name);
	forge_auto_close int to = open_parent(top, item->path, false, &same);

	if (from < 0 || to < 0 || item->state == STAGED)
		return;
	if (item->state == EXCHANGED)
		(void)renameat(from, name, to, name); /* on failure the copy stays */
	else
		(void)renameat(to, name, from, name);
}

static int move_all(struct items *items, int stage, int top,
		    const struct forge_export *how, struct forge_error *err)
{
	for (size_t i = 0; i < items->n; i++) {
		int rc = move_one(stage, top, &items->at[i], how->replaces);
		if (rc == 0)
			continue;
		while (i-- > 0)
			move_back(stage, top, &items->at[i]);
		/* Finds the item that failed: the first that is still staged. */
		for (i = 0; i < items->n && items->at[i].state != STAGED; i++)
			;
		return fail_output(&items->at[i], how->to, rc, err);
	}
	return 0;
}

/* ---- the stage ---- */

#define STAGE	     "/.forge-copy-"
#define STAGE_RANDOM 6 /* letters that mkdtemp() appends */

static bool is_stage_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
				      "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
	size_t len = strlen(STAGE) - 1;

	return strncmp(name, &STAGE[1], len) == 0 && strlen(name + len) == STAGE_RANDOM &&
	       strspn(name + len, letters) == STAGE_RANDOM;
}

/*
 * Whether a free lock proves that no process holds it. Network file systems may keep
 * locks local to a host.
 */
static bool has_true_locks(int fd)
{
	static const unsigned long local[] = { EXT4_SUPER_MAGIC,  XFS_SUPER_MAGIC,
					       BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
					       F2FS_SUPER_MAGIC,  OVERLAYFS_SUPER_MAGIC };
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(local); i++)
		if ((unsigned long)fs.f_type == local[i])
			return true;
	return false;
}

/* Removes the stage of a killed process: it is this user's, and its lock is free. */
static void remove_if_stale(int dir, const char *real, const char *name)
{
	forge_auto_close int fd = openat(dir, name, DIR_FLAGS);
	forge_auto_free char *path = NULL;
	struct stat st, named;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
	    !has_true_locks(fd) || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	/* Its process may have finished just now and renamed it. */
	if (fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    named.st_dev != st.st_dev || named.st_ino != st.st_ino)
		return;
	path = forge_asprintf("%s/%s", real, name);
	if (path)
		(void)!forge_rmtree(path, st.st_dev, st.st_ino, NULL,
				    NULL); /* on failure it stays */
}

static void remove_stale(const char *dir)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	/* forge_rmtree() accepts no path with a link. */
	forge_auto_free char *real = realpath(dir, NULL);

	if (!real || forge_entries_open(&d, AT_FDCWD, real) < 0)
		return;
	for (const char *name; (name = forge_entries_next(&d));)
		if (is_stage_name(name))
			remove_if_stale(forge_entries_fd(&d), real, name);
}

/* 1: another process took it for stale before it was locked. */
static int lock_stage(int fd)
{
	struct stat st;

	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return 1;
	/* On a file system without locks no process takes it for stale. */
	return fstat(fd, &st) == 0 && st.st_nlink == 0 ? 1 : 0;
}

/* Makes a stage in dir, locked until the descriptor is closed. Returns 0 or -errno. */
static int make_stage(const char *dir, char **ret_path, int *ret_fd)
{
	for (int tries = 0; tries < 100; tries++) {
		forge_auto_free char *path = forge_asprintf("%s" STAGE "XXXXXX", dir);
		if (!path)
			return -ENOMEM;
		if (!mkdtemp(path))
			return -errno;
		forge_auto_free char *real = realpath(path, NULL);
		forge_auto_close int fd = real ? open(real, DIR_FLAGS) : -1;
		if (fd < 0 && errno == ENOENT)
			continue;
		if (fd < 0) {
			int code = errno;
			(void)rmdir(path); /* it is empty */
			return -code;
		}
		if (lock_stage(fd) != 0)
			continue;
		*ret_path = forge_take_ptr(real);
		*ret_fd = forge_take_fd(fd);
		return 0;
	}
	return -EAGAIN;
}

static int make_above(const char *path)
{
	forge_auto_free char *copy = strdup(path);

	for (char *p = copy ? strchr(copy + 1, '/') : NULL; p; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(copy, 0777) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return copy ? 0 : -ENOMEM;
}

/* Renames the stage to the target directory, with the mode of a usual directory. */
static int name_stage(int stage, const char *path, const char *to,
		      struct forge_error *err)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	if (fchmod(stage, 0777 & ~mask) < 0)
		return forge_fail_errno(err, errno, "make %s", to);
	int rc = renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE);
	/* A plain rename replaces nothing but an empty directory. */
	if (rc < 0 && (errno == EINVAL || errno == ENOSYS))
		rc = rename(path, to);
	return rc < 0 ? forge_fail_errno(err, errno, "make %s", to) : 0;
}

static int export(struct items *items, int top, int stage, const char *real,
		  const struct forge_export *how, struct forge_error *err)
{
	struct forge_error late = FORGE_ERROR_INIT;
	struct stat st;

	if (fstat(stage, &st) < 0)
		return forge_fail_errno(err, errno, "open %s", real);
	int rc = copy_all(items, stage, how, err);
	if (rc == 0 && top < 0) {
		rc = name_stage(stage, real, how->to, err);
		if (rc == 0)
			return 0;
	}
	/* Again after copying: another process may have made files there. */
	if (rc == 0)
		rc = check_all(items, top, how, err);
	if (rc == 0)
		rc = move_all(items, stage, top, how, err);
	if (forge_rmtree(real, st.st_dev, st.st_ino, NULL, &late) < 0 && rc == 0) {
		if (err)
			*err = late;
		return forge_wrap(err, -late.code, "the outputs are copied, but");
	}
	return rc;
}

static int export_below(struct items *items, const struct forge_export *how,
			struct forge_error *err)
{
	const char *to = how->to, *slash = strrchr(to, '/');
	forge_auto_close int top = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (top < 0 && errno != ENOENT)
		return forge_fail_errno(err, errno, "open %s", to);
	int rc = top >= 0 ? check_all(items, top, how, err) : 0;
	if (rc < 0)
		return rc;
	rc = top < 0 ? make_above(to) : 0;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "make %s", to);
	/* If the target does not exist, the stage is made beside it and becomes it. */
	forge_auto_free char *dir =
		top >= 0 ? strdup(to)
		: slash	 ? forge_asprintf("%.*s/", (int)(slash - to), to)
			 : strdup(".");
	if (!dir)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_auto_free char *path = NULL;
	forge_auto_close int stage = -1;
	remove_stale(dir);
	rc = make_stage(dir, &path, &stage);
	if (rc < 0)
		return forge_fail_errno(err, -rc, "make a directory in %s",
					top >= 0 ? to : "its parent");
	return export(items, top, stage, path, how, err);
}

int forge_export_runs(const struct forge_export_run *runs, size_t n,
		      const struct forge_export *how, size_t *ret_unread,
		      struct forge_error *err)
{
	forge_auto_free char *to = strdup(how->to);
	size_t len = to ? strlen(to) : 0;
	struct items items = { .at = NULL };
	int rc = to ? 0 : forge_fail(err, ENOMEM, "out of memory");

	while (len > 1 && to[len - 1] == '/')
		to[--len] = '\0';
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_items(&items, &runs[i], err);
	struct forge_export as = *how;
	as.to = to;
	if (rc == 0)
		rc = export_below(&items, &as, err);
	if (rc == 0)
		rc = (int)items.n;
	if (ret_unread)
		*ret_unread = items.unread ? (size_t)(items.unread - runs) : n;
	items_done(&items);
	return rc;
}

int forge_export_outputs(const struct forge_home *home, const json_t *record,
			 const struct forge_export *how, struct forge_error *err)
{
	const struct forge_export_run run = { .home = home, .record = record };

	return forge_export_runs(&run, 1, how, NULL, err);
}

int forge_export_check(const char *to, const char *path, bool replaces,
		       struct forge_error *err)
{
	forge_auto_close int top = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (top < 0 && errno == ENOENT)
		return 0;
	if (top < 0)
		return forge_fail_errno(err, errno, "%s", to);
	int rc = path ? check_one(top, path, replaces) : 0;
	return rc == -EEXIST
		       ? forge_hint(err,
				    forge_fail(err, EEXIST, "%s/%s exists", to, path),
				    "--force replaces it")
	       : rc == -EISDIR ? forge_fail(err, EISDIR, "%s/%s is a directory", to, path)
	       : rc < 0	       ? forge_fail_errno(err, -rc, "%s/%s", to, path)
			       : 0;
}
