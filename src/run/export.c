/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names come from a run, so they are walked part by part. Files are made in a directory of our own beside
 * their place, on the same file system, and renamed: whoever looks sees a file whole or not at all.
 */
#include "run/export.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "run/objects.h"

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/*
 * Opens the directory of path below top; *ret_name is the last part. makes: what is missing is made,
 * otherwise it is -ENOENT.
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

/* An output, and what has become of it. */
struct item {
	const json_t *output;
	char *path; /* below the directory, in bytes */
	enum { STAGED, MOVED, EXCHANGED } state;
};

struct items {
	struct item *at;
	size_t n;
};

static void items_done(struct items *items)
{
	for (size_t i = 0; i < items->n; i++)
		free(items->at[i].path);
	free(items->at);
	*items = (struct items){ .at = NULL };
}

static int items_of(const json_t *outputs, struct items *ret, struct forge_error *err)
{
	struct items items = { .at = calloc(json_array_size(outputs) + 1,
					    sizeof(struct item)) };
	size_t i;
	const json_t *output;

	if (!items.at)
		return forge_fail(err, ENOMEM, "out of memory");
	json_array_foreach (outputs, i, output) {
		const char *written = json_string_value(json_object_get(output, "path"));
		char *path = written ? forge_json_name_decode(written) : NULL;
		if (!path) {
			items_done(&items);
			return forge_fail(err, EINVAL, "output %zu has no name", i + 1);
		}
		items.at[items.n++] = (struct item){ .output = output, .path = path };
	}
	*ret = items;
	return 0;
}

static int copy_one(const struct forge_home *home, int top, const struct item *item,
		    int stop_fd)
{
	const char *wanted = json_string_value(json_object_get(item->output, "sha256"));
	const char *name = NULL;
	char stored[FORGE_STORED_MAX], digest[FORGE_DIGEST_MAX];
	uint64_t size;

	/* A store that others write too says where nothing is. */
	if (!forge_objects_is_digest(wanted))
		return -EINVAL;
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

static int fail_output(const struct item *item, const char *to, int rc,
		       struct forge_error *err)
{
	const char *path = json_string_value(json_object_get(item->output, "path"));

	if (rc == -EUCLEAN)
		return forge_fail(err, EUCLEAN,
				  "output %s is damaged: its digest is another", path);
	if (rc == -EEXIST)
		return forge_hint(err, forge_fail(err, EEXIST, "%s/%s exists", to, path),
				  "--force replaces it");
	if (rc == -EISDIR)
		return forge_fail(err, EISDIR, "%s/%s is a directory", to, path);
	return forge_fail_errno(err, -rc, "output %s", path);
}

static int copy_all(const struct forge_home *home, const struct items *items, int top,
		    const struct forge_export *how, struct forge_error *err)
{
	for (size_t i = 0; i < items->n; i++) {
		int rc = copy_one(home, top, &items->at[i], how->stop_fd);
		if (rc < 0)
			return fail_output(&items->at[i], how->to, rc, err);
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
 * For file systems whose renames take no flags, as NFS: what is in the place is kept in the stage before it is
 * replaced. The stage is ours alone, so a name that is free there stays free.
 */
static int replace_keeping(int from, int to, const char *name)
{
	char aside[32];
	struct stat st;
	unsigned n = 0;

	do
		(void)snprintf(aside, sizeof(aside), ".forge-old-%u", n++);
	while (fstatat(from, aside, &st, AT_SYMLINK_NOFOLLOW) == 0);
	/* With a link the place is never empty. Not every file system has links. */
	if (linkat(to, name, from, aside, 0) < 0 && renameat(to, name, from, aside) < 0)
		return -errno;
	if (renameat(from, name, to, name) < 0) {
		int code = errno;
		(void)renameat(from, aside, to, name); /* it cannot be done better */
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

/* What is replaced goes into the stage in exchange, so that it can come back. */
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

/* What was replaced returns over the copy, which is not needed any more. */
static void move_back(int stage, int top, const struct item *item)
{
	const char *name, *same;
	forge_auto_close int from = open_parent(stage, item->path, true, &name);
	forge_auto_close int to = open_parent(top, item->path, false, &same);

	if (from < 0 || to < 0 || item->state == STAGED)
		return;
	if (item->state == EXCHANGED)
		(void)renameat(from, name, to, name); /* or the copy stays */
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
		/* i has gone below the first. */
		for (i = 0; i < items->n && items->at[i].state != STAGED; i++)
			;
		return fail_output(&items->at[i], how->to, rc, err);
	}
	return 0;
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

/* The stage was the whole directory: it gets the directory's name, and the mode of any other. */
static int name_stage(int stage, const char *path, const char *to,
		      struct forge_error *err)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	if (fchmod(stage, 0777 & ~mask) < 0)
		return forge_fail_errno(err, errno, "make %s", to);
	int rc = renameat2(AT_FDCWD, path, AT_FDCWD, to, RENAME_NOREPLACE);
	/* Without the flag nothing but an empty directory is replaced. */
	if (rc < 0 && (errno == EINVAL || errno == ENOSYS))
		rc = rename(path, to);
	return rc < 0 ? forge_fail_errno(err, errno, "make %s", to) : 0;
}

static int export(const struct forge_home *home, struct items *items, int top,
		  const char *stage_path, const struct forge_export *how,
		  struct forge_error *err)
{
	/* rmtree takes no path with a link in it. */
	forge_auto_free char *real = realpath(stage_path, NULL);
	forge_auto_close int stage = real ? open(real, DIR_FLAGS) : -1;
	struct forge_error late = FORGE_ERROR_INIT;
	struct stat st;

	if (stage < 0 || fstat(stage, &st) < 0)
		return forge_fail_errno(err, errno, "open %s", stage_path);
	int rc = copy_all(home, items, stage, how, err);
	if (rc == 0 && top < 0) {
		rc = name_stage(stage, stage_path, how->to, err);
		if (rc == 0)
			return 0;
	}
	/* Only now: meanwhile somebody else may have put something there. */
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

static int export_below(const struct forge_home *home, struct items *items,
			const struct forge_export *how, struct forge_error *err)
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
	forge_auto_free char *stage =
		top >= 0 ? forge_asprintf("%s/.forge-copy-XXXXXX", to)
			 : forge_asprintf("%.*s.forge-copy-XXXXXX",
					  slash ? (int)(slash + 1 - to) : 0, to);
	if (!stage)
		return forge_fail(err, ENOMEM, "out of memory");
	if (!mkdtemp(stage))
		return forge_fail_errno(err, errno, "make a directory in %s",
					top >= 0 ? to : "its parent");
	return export(home, items, top, stage, how, err);
}

int forge_export_outputs(const struct forge_home *home, const json_t *record,
			 const struct forge_export *how, struct forge_error *err)
{
	forge_auto_free char *to = strdup(how->to);
	size_t len = to ? strlen(to) : 0;
	struct items items = { .at = NULL };

	while (len > 1 && to[len - 1] == '/')
		to[--len] = '\0';
	if (!to)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = items_of(json_object_get(record, "outputs"), &items, err);
	if (rc < 0)
		return rc;
	struct forge_export as = *how;
	as.to = to;
	rc = export_below(home, &items, &as, err);
	if (rc == 0)
		rc = (int)items.n;
	items_done(&items);
	return rc;
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
