/* SPDX-License-Identifier: Apache-2.0 */
/* Writes active files; reconcile.c reads them. */
#include "run/active.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/cgroup.h"

static int write_facts(struct forge_active *a, struct forge_error *err)
{
	char *text = json_dumps(a->facts, JSON_COMPACT);

	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	ssize_t len = (ssize_t)strlen(text);
	ssize_t n = pwrite(a->fd, text, (size_t)len, 0);
	int error = n < 0 ? errno : ENOSPC;
	free(text);
	return n == len ? 0 : forge_fail_errno(err, error, "write active/%s", a->name);
}

/* A repairing process may lock and remove our file before we lock it; then make another. */
static int open_locked(struct forge_active *a, struct forge_error *err)
{
	for (int tries = 0; tries < 100; tries++) {
		struct stat st;
		int fd = openat(a->dir_fd, a->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0)
			return forge_fail_errno(err, errno, "make active/%s", a->name);
		if (flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 && st.st_nlink == 1) {
			a->fd = fd;
			return 0;
		}
		close(fd);
	}
	return forge_fail(err, EBUSY, "active/%s is being removed again and again", a->name);
}

int forge_active_open(const struct forge_home *home, const char *run_id, const char *workdir,
		      bool keep, struct forge_active *ret, struct forge_error *err)
{
	struct forge_active a = FORGE_ACTIVE_INIT;
	forge_auto_strv struct forge_strv cgroups = { 0 };

	a.dir_fd = home->active_fd;
	(void)snprintf(a.name, sizeof(a.name), "%s", run_id);
	if (forge_cgroup_predict(run_id, &cgroups) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	json_t *dirs = json_array();
	forge_strv_foreach(dir, &cgroups)
		json_array_append_new(dirs, json_string(dir));
	a.facts = json_pack("{s:s, s:s, s:b, s:i, s:o}", "run_id", run_id, "workdir", workdir, "keep",
			    keep, "pid", (int)getpid(), "cgroups", dirs);
	if (!a.facts)
		return forge_fail(err, EINVAL, "the workdir's path is not valid UTF-8");
	int rc = open_locked(&a, err);
	if (rc == 0)
		rc = write_facts(&a, err);
	if (rc < 0) {
		forge_active_close(&a);
		return rc;
	}
	*ret = a;
	return 0;
}

int forge_active_note(struct forge_active *a, const struct forge_workdir *w, json_t *record,
		      struct forge_error *err)
{
	json_object_set(a->facts, "record", record);
	json_object_set_new(a->facts, "dev", json_integer((json_int_t)w->dev));
	json_object_set_new(a->facts, "ino", json_integer((json_int_t)w->ino));
	return write_facts(a, err);
}

void forge_active_close(struct forge_active *a)
{
	json_decref(a->facts);
	a->facts = NULL;
	if (a->fd < 0)
		return;
	(void)unlinkat(a->dir_fd, a->name, 0); /* before the lock goes */
	close(a->fd);
	a->fd = -1;
}
