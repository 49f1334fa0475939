/* SPDX-License-Identifier: Apache-2.0 */
/* Files in retries/: written, locked, read and removed. */
#include "state/retry_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/lock.h"

#define DIRECTORY "retries"
/* A request has a command line, variables and names of inputs. */
#define CONTENT_MAX (64u << 20)

static int open_dir(const struct forge_home *home)
{
	int fd = openat(home->fd, DIRECTORY,
			O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Locked before it has its name, so that no repair can lock it in between. */
static int write_file(int dir, const char *run_id, const char *text, int *ret_fd)
{
	char temporary[FORGE_RUN_ID_MAX + 24];

	(void)snprintf(temporary, sizeof(temporary), ".%s.%ld", run_id, (long)getpid());
	forge_auto_close int fd =
		openat(dir, temporary,
		       O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	int rc = forge_write_all(fd, text, strlen(text));
	if (rc == 0 && (fdatasync(fd) < 0 || renameat(dir, temporary, dir, run_id) < 0 ||
			fsync(dir) < 0))
		rc = -errno;
	if (rc < 0) {
		(void)unlinkat(dir, temporary, 0); /* it may have its name already */
		return rc;
	}
	*ret_fd = forge_take_fd(fd);
	return 0;
}

int forge_retry_file_make(const struct forge_home *home, const char *run_id,
			  json_t *content, struct forge_retry_file *ret,
			  struct forge_error *err)
{
	forge_auto_free char *text = content ? json_dumps(content, JSON_COMPACT) : NULL;
	forge_auto_close int dir = text ? forge_home_subdir(home, DIRECTORY, err)
					: forge_fail(err, ENOMEM, "out of memory");
	int fd = -1;
	int rc = dir < 0 ? dir : write_file(dir, run_id, text, &fd);

	if (rc < 0) {
		json_decref(content);
		return dir < 0 ? rc
			       : forge_fail_errno(err, -rc, "write " DIRECTORY "/%s",
						  run_id);
	}
	*ret = (struct forge_retry_file){ .dir_fd = forge_take_fd(dir),
					  .fd = fd,
					  .content = content };
	(void)snprintf(ret->run_id, sizeof(ret->run_id), "%s", run_id);
	return 0;
}

static int open_own(int dir, const char *run_id)
{
	struct stat st;
	forge_auto_close int fd =
		openat(dir, run_id, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && st.st_uid == geteuid() ? forge_take_fd(fd) : -EPERM;
}

static int load(int fd, json_t **ret)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_fd(fd, CONTENT_MAX, &text, &len);

	if (rc < 0)
		return rc;
	*ret = json_loadb(text, len, 0, NULL);
	return json_is_object(*ret) ? 0 : -EBADMSG;
}

int forge_retry_file_read(const struct forge_home *home, const char *run_id, json_t **ret)
{
	forge_auto_close int dir =
		forge_run_id_is_valid(run_id) ? open_dir(home) : -EINVAL;
	forge_auto_close int fd = dir < 0 ? dir : open_own(dir, run_id);

	*ret = NULL;
	return fd < 0 ? fd : load(fd, ret);
}

int forge_retry_file_claim(const struct forge_home *home, const char *run_id,
			   int wait_msec, struct forge_retry_file *ret)
{
	forge_auto_close int dir =
		forge_run_id_is_valid(run_id) ? open_dir(home) : -EINVAL;
	forge_auto_close int fd = dir < 0 ? dir : open_own(dir, run_id);
	struct forge_retry_file f = FORGE_RETRY_FILE_INIT;

	if (fd < 0)
		return fd;
	int rc = forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, wait_msec, -1);
	if (rc < 0)
		return rc;
	f.dir_fd = dir;
	f.fd = fd;
	(void)snprintf(f.run_id, sizeof(f.run_id), "%s", run_id);
	/* It may have been removed, or replaced, before it was locked. */
	rc = forge_retry_file_is_there(&f) ? load(fd, &f.content) : -ENOENT;
	if (rc < 0) {
		json_decref(f.content);
		return rc;
	}
	dir = fd = -1;
	*ret = f;
	return 0;
}

bool forge_retry_file_is_there(const struct forge_retry_file *f)
{
	struct stat held, named;

	return f->fd >= 0 && fstat(f->fd, &held) == 0 &&
	       fstatat(f->dir_fd, f->run_id, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void forge_retry_file_release(struct forge_retry_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->dir_fd >= 0)
		close(f->dir_fd);
	json_decref(f->content);
	*f = FORGE_RETRY_FILE_INIT;
}

void forge_retry_file_remove(struct forge_retry_file *f)
{
	/* On failure repair removes it. */
	if (forge_retry_file_is_there(f))
		(void)unlinkat(f->dir_fd, f->run_id, 0);
	forge_retry_file_release(f);
}

void forge_retry_file_forbid(const struct forge_home *home, const char *run_id)
{
	forge_auto_close int dir =
		forge_run_id_is_valid(run_id) ? open_dir(home) : -EINVAL;

	if (dir >= 0)
		(void)unlinkat(dir, run_id, 0); /* most runs have none */
}
