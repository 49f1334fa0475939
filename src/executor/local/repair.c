/* SPDX-License-Identifier: Apache-2.0 */
/* Cgroups and workdirs as the slots of local runs name them. */
#include "executor/local/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "executor/workdir.h"
#include "sandbox/cgroup.h"

static uint64_t number(const struct forge_repair *r, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(r->slot, key));
}

static int remove_cgroups(const struct forge_repair *r, struct forge_error *err)
{
	size_t i;
	json_t *dir;

	json_array_foreach (json_object_get(r->slot, "cgroups"), i, dir) {
		const char *path = json_string_value(dir);
		/* Only directories that a run makes: the last part is forge-<run id>. */
		const char *base = path ? strrchr(path, '/') : NULL;
		if (!base || strncmp(base, "/forge-", 7) != 0 ||
		    strcmp(base + 7, r->run_id) != 0 || access(path, F_OK) < 0)
			continue;
		r->report(r->arg, "remove cgroup", path);
		int rc = r->dry_run ? 0 : forge_cgroup_remove_dir(path, err);
		if (rc < 0)
			return rc;
	}
	return 0;
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

static int remove_workdir(const struct forge_repair *r, struct forge_error *err)
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
	r->report(r->arg, "remove workdir", path);
	return r->dry_run ? 0 : forge_rmtree(path, st.st_dev, st.st_ino, NULL, err);
}

int forge_local_repair(const struct forge_repair *r, struct forge_error *err)
{
	int rc = remove_cgroups(r, err);

	return rc < 0 ? rc : remove_workdir(r, err);
}

int forge_local_repair_kept(const struct forge_repair *r, struct forge_kept *ret,
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

static void read_cgroup(const char *path, struct forge_usage_now *ret)
{
	char text[1024];
	uint64_t n;
	forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return;
	if (forge_read_u64_at(dir, "memory.current", &n) == 0 ||
	    forge_read_u64_at(dir, "memory.usage_in_bytes", &n) == 0)
		ret->memory_bytes = n;
	if (forge_read_u64_at(dir, "cpuacct.usage", &n) == 0)
		ret->cpu_usec = n / 1000;
	else if (forge_read_at(dir, "cpu.stat", text, sizeof(text)) > 0)
		ret->cpu_usec = forge_key_u64(text, "usage_usec", ret->cpu_usec);
}

void forge_local_usage(const json_t *slot, struct forge_usage_now *ret)
{
	json_t *dir;
	size_t i;

	json_array_foreach (json_object_get(slot, "cgroups"), i, dir)
		if (json_string_value(dir))
			read_cgroup(json_string_value(dir), ret);
}
