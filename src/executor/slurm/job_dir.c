/* SPDX-License-Identifier: Apache-2.0 */
/* Files that this machine and the nodes share. */
#include "executor/slurm/job_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/rmtree.h"
#include "base/strv.h"

#define MARK	 ".forge-shared"
#define FILE_MAX (64u << 20)

int forge_job_dir_name(const char *dir, const char *run_id, struct forge_job_dir *ret,
		       struct forge_error *err)
{
	*ret = FORGE_JOB_DIR_INIT;
	ret->dir = strdup(dir);
	ret->place = forge_asprintf("%s/%s", dir, run_id);
	ret->path = forge_asprintf("%s/%s.job", dir, run_id);
	return ret->dir && ret->place && ret->path
		       ? 0
		       : forge_fail(err, ENOMEM, "out of memory");
}

void forge_job_dir_done(struct forge_job_dir *d)
{
	free(d->dir);
	free(d->place);
	free(d->path);
	if (d->fd >= 0)
		close(d->fd);
	*d = FORGE_JOB_DIR_INIT;
}

static int read_mark(int dir, char ret[64])
{
	ssize_t n = forge_read_at(dir, MARK, ret, 64);

	if (n < 0)
		return (int)n;
	ret[strcspn(ret, "\n")] = '\0';
	return *ret ? 0 : -ENODATA;
}

/* Another process may be the first: its mark is the one that counts. */
static int make_mark(int dir)
{
	char text[FORGE_RUN_ID_MAX], name[sizeof(MARK) + FORGE_RUN_ID_MAX];
	int rc = forge_make_run_id(text);

	if (rc < 0)
		return rc;
	(void)snprintf(name, sizeof(name), MARK "%s", text);
	rc = forge_replace_file(dir, name, text, strlen(text), true);
	/* Other users may have runs below the same directory. */
	if (rc == 0 && fchmodat(dir, name, 0644, 0) < 0)
		rc = -errno;
	if (rc == 0 && linkat(dir, name, dir, MARK, 0) < 0 && errno != EEXIST)
		rc = -errno;
	(void)unlinkat(dir, name, 0);
	return rc;
}

/* "mark dir" */
static int check_seen(const struct forge_job_dir *d, const char *mark, int seen_fd,
		      const char *seen, struct forge_error *err)
{
	char text[PATH_MAX + 80] = "";
	size_t len;

	if (forge_read_at(seen_fd, seen, text, sizeof(text)) < 0)
		return 0; /* there was none before */
	len = strcspn(text, " ");
	if (!text[len] || strcmp(text + len + 1, d->dir) != 0)
		return 0; /* another directory is configured by now */
	if (strncmp(text, mark, len) == 0 && mark[len] == '\0')
		return 0;
	return forge_hint(err,
			  forge_fail(err, EHOSTDOWN,
				     "%s is not the directory that it was before",
				     d->dir),
			  "Is its file system mounted? If it was made anew, remove "
			  "watchers/%s in FORGE_HOME",
			  seen);
}

int forge_job_dir_prepare(struct forge_job_dir *d, int seen_fd, const char *seen,
			  struct forge_error *err)
{
	forge_auto_close int dir = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return forge_hint(
			err, forge_fail_errno(err, errno, "open %s", d->dir),
			"It must be a directory that the nodes of the cluster share");
	int rc = read_mark(dir, d->mark);
	if (rc < 0 && rc != -ENOENT)
		return forge_fail_errno(err, -rc, "use %s", d->dir);
	rc = check_seen(d, rc == 0 ? d->mark : "", seen_fd, seen, err);
	if (rc < 0)
		return rc;
	if (!d->mark[0]) {
		rc = make_mark(dir);
		if (rc == 0)
			rc = read_mark(dir, d->mark);
	}
	if (rc < 0)
		return forge_fail_errno(err, -rc, "use %s", d->dir);
	forge_auto_free char *text = forge_asprintf("%s %s", d->mark, d->dir);
	if (text) /* not remembered: the next run does it */
		(void)!forge_replace_file(seen_fd, seen, text, strlen(text), false);
	return 0;
}

static int open_path(struct forge_job_dir *d)
{
	d->fd = forge_open_nolink(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->fd >= 0)
		return 0;
	int rc = d->fd;
	d->fd = -1;
	return rc;
}

int forge_job_dir_make(struct forge_job_dir *d, struct forge_error *err)
{
	int rc = mkdir(d->path, 0700) < 0 ? -errno : open_path(d);

	return rc < 0 ? forge_fail_errno(err, -rc, "make %s", d->path) : 0;
}

int forge_job_dir_open(struct forge_job_dir *d, const char *mark, struct forge_error *err)
{
	forge_auto_close int dir = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir < 0 ? -errno : read_mark(dir, d->mark);

	if (rc < 0 || strcmp(d->mark, mark) != 0)
		return forge_hint(
			err,
			forge_fail(err, EHOSTDOWN,
				   "%s is not the directory that the nodes share",
				   d->dir),
			"Is its file system mounted?");
	rc = open_path(d);
	return rc < 0 ? forge_fail_errno(err, -rc, "open %s", d->path) : 0;
}

int forge_job_dir_remove(struct forge_job_dir *d, struct forge_error *err)
{
	struct stat st;

	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	if (lstat(d->path, &st) < 0)
		return errno == ENOENT
			       ? 0
			       : forge_fail_errno(err, errno, "look at %s", d->path);
	return forge_rmtree(d->path, st.st_dev, st.st_ino, NULL, err);
}

int forge_job_dir_owner(int fd, char ret_owner[FORGE_CLAIM_MAX])
{
	ssize_t n = readlinkat(fd, "claim", ret_owner, FORGE_CLAIM_MAX - 1);

	ret_owner[n < 0 ? 0 : n] = '\0';
	return n < 0 && errno != ENOENT ? -errno : 0;
}

int forge_job_dir_claim(int fd, const char *text, char ret_owner[FORGE_CLAIM_MAX])
{
	int rc = symlinkat(text, fd, "claim") < 0 ? -errno : 0;

	if (rc < 0 && rc != -EEXIST)
		return rc;
	int known = forge_job_dir_owner(fd, ret_owner);
	/* A file system may have done it and lost the answer. */
	if (rc == -EEXIST && known == 0 && strcmp(ret_owner, text) == 0)
		return 0;
	return known < 0 ? known : rc;
}

bool forge_job_dir_has(int fd, const char *name)
{
	struct stat st;

	return fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int forge_job_dir_load(int fd, const char *name, json_t **ret, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len;
	int rc = forge_read_regular(fd, name, FILE_MAX, &text, &len);

	*ret = NULL;
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "read %s", name);
	*ret = json_loadb(text, len, 0, NULL);
	return json_is_object(*ret) ? 0 : forge_fail(err, EBADMSG, "%s is damaged", name);
}

int forge_job_dir_store(int fd, const char *name, json_t *object, struct forge_error *err)
{
	forge_auto_free char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	int rc = forge_replace_file(fd, name, text, strlen(text), true);
	return rc < 0 ? forge_fail_errno(err, -rc, "write %s", name) : 0;
}
