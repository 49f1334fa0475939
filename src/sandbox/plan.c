/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what a sandbox looks like. No namespaces, no mounts: only lstat and lists. */
#include "sandbox/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "sandbox/view.h"

void forge_plan_free(struct forge_plan *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_mounts; i++) {
		free(p->mounts[i].target);
		free(p->mounts[i].source);
	}
	free(p->mounts);
	free(p->run_id);
	free(p->workdir);
	free(p->place);
	forge_strv_done(&p->argv);
	forge_strv_done(&p->env);
	forge_strv_done(&p->exec_paths);
	free(p);
}

/* The returned row has its target set; NULL when out of memory. */
static struct forge_mount *add(struct forge_plan *p, enum forge_mount_type type,
			       const char *target, const char *source)
{
	if (p->n_mounts == p->cap_mounts) {
		size_t cap = p->cap_mounts ? p->cap_mounts * 2 : 64;
		struct forge_mount *m = reallocarray(p->mounts, cap, sizeof(*m));
		if (!m)
			return NULL;
		p->mounts = m;
		p->cap_mounts = cap;
	}
	struct forge_mount *m = &p->mounts[p->n_mounts];
	*m = (struct forge_mount){ .type = type };
	m->target = strdup(target);
	m->source = source ? strdup(source) : NULL;
	p->n_mounts++;
	return m->target && (!source || m->source) ? m : NULL;
}

/* Is path visible already through a tree of the plan (at its own path, or by a link there)? */
static bool is_covered(const struct forge_plan *p, const char *path)
{
	for (size_t i = 0; i < p->n_mounts; i++)
		if (p->mounts[i].type == FORGE_MOUNT_RO &&
		    forge_path_is_below(path, p->mounts[i].source))
			return true;
	return false;
}

static void set_identity(struct forge_mount *m, const struct stat *st)
{
	m->is_dir = S_ISDIR(st->st_mode);
	m->dev = st->st_dev;
	m->ino = st->st_ino;
	m->rdev = st->st_rdev;
}

/*
 * Adds a tree of the system, from the host or from a root directory. A link stays the same
 * link; an absent path is left out.
 */
static int add_system(struct forge_plan *p, const char *root, const char *path,
		      struct forge_error *err)
{
	char source[PATH_MAX];
	struct stat st;

	if (snprintf(source, sizeof(source), "%s%s", root ? root : "", path) >=
	    (int)sizeof(source))
		return forge_fail(err, ENAMETOOLONG, "%s%s", root, path);
	if (lstat(source, &st) < 0) {
		if (errno == ENOENT || errno == EACCES)
			return 0;
		return forge_fail_errno(err, errno, "look at %s", source);
	}
	if (S_ISLNK(st.st_mode)) {
		char text[PATH_MAX];
		ssize_t n = readlink(source, text, sizeof(text) - 1);
		if (n < 0)
			return forge_fail_errno(err, errno, "read link %s", source);
		text[n] = '\0';
		return add(p, FORGE_MOUNT_SYMLINK, path, text) ? 0 : -ENOMEM;
	}
	struct forge_mount *m = add(p, FORGE_MOUNT_RO, path, source);
	if (!m)
		return -ENOMEM;
	set_identity(m, &st);
	return 0;
}

/* Adds the file itself, because path may be a link to a place that the run does not see (/run). */
static int add_resolved(struct forge_plan *p, const char *path)
{
	struct stat st;
	forge_auto_free char *real = realpath(path, NULL);

	if (!real || lstat(real, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	struct forge_mount *m = add(p, FORGE_MOUNT_RO, path, real);
	if (!m)
		return -ENOMEM;
	set_identity(m, &st);
	return 0;
}

static int add_device(struct forge_plan *p, const struct forge_view_dev *dev,
		      struct forge_error *err)
{
	struct stat st;

	if (lstat(dev->path, &st) < 0)
		return forge_fail_errno(err, errno, "look at %s", dev->path);
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, dev->minor))
		return forge_hint(err,
				  forge_fail(err, ENODEV, "%s is not the device 1:%u",
					     dev->path, dev->minor),
				  "Recreate it: mknod -m 666 %s c 1 %u", dev->path,
				  dev->minor);
	struct forge_mount *m = add(p, FORGE_MOUNT_DEV, dev->path, dev->path);
	if (!m)
		return -ENOMEM;
	set_identity(m, &st);
	return 0;
}

int forge_plan_check_root(const char *path, const char *workdir, struct forge_error *err)
{
	static const char *const never[] = { "/proc", "/dev", "/sys" };

	if (strcmp(path, "/") == 0)
		return forge_fail(err, EINVAL, "'/' would show the whole host");
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(never); i++)
		if (forge_path_is_below(path, never[i]))
			return forge_fail(err, EINVAL, "'%s' cannot be given to a run",
					  path);
	if (forge_path_is_below(workdir, path) || forge_path_is_below(path, workdir))
		return forge_fail(err, EINVAL, "'%s' overlaps the run's workdir %s", path,
				  workdir);
	return 0;
}

/* Where the link to a moved tree goes; inside, /var/tmp is itself a link to /tmp. */
static const char *link_place(const char *path)
{
	return forge_path_is_below(path, "/var/tmp") ? path + strlen("/var") : path;
}

/*
 * Landlock grants rights for everything below a directory, mounts included, so Landlock would
 * let a run write to a tree mounted below /tmp. Such a tree is mounted below /mnt instead, and
 * a link leads to it. Its whole path is repeated below /mnt: a program that resolves the link
 * (as Python does for sys.path) finds the other inputs beside it as before.
 */
static struct forge_mount *add_tree(struct forge_plan *p, const char *path)
{
	if (!forge_path_is_below(path, "/tmp") && !forge_path_is_below(path, "/var/tmp"))
		return add(p, FORGE_MOUNT_RO, path, path);
	forge_auto_free char *target = forge_asprintf("/mnt%s", path);
	if (!target || !add(p, FORGE_MOUNT_SYMLINK, link_place(path), target))
		return NULL;
	return add(p, FORGE_MOUNT_RO, target, path);
}

static int add_read_only(struct forge_plan *p, const char *path, struct forge_error *err)
{
	int rc = forge_plan_check_root(path, p->workdir, err);
	if (rc < 0)
		return rc;
	if (is_covered(p, path))
		return 0;
	forge_auto_close int fd = forge_open_nolink(path, O_PATH);
	if (fd < 0)
		return forge_fail_errno(err, -fd, "open %s", path);
	struct stat st;
	if (fstat(fd, &st) < 0)
		return forge_fail_errno(err, errno, "look at %s", path);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return forge_fail(err, EINVAL, "%s is neither a file nor a directory",
				  path);
	struct forge_mount *m = add_tree(p, path);
	if (!m)
		return -ENOMEM;
	set_identity(m, &st);
	return 0;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, so that a directory comes before the paths in it and covers them. */
static int add_all_read_only(struct forge_plan *p, const struct forge_strv *paths,
			     struct forge_error *err)
{
	if (paths->n == 0)
		return 0;
	forge_auto_free char **sorted = reallocarray(NULL, paths->n, sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, paths->v, paths->n * sizeof(*sorted));
	qsort(sorted, paths->n, sizeof(*sorted), compare_paths);
	int rc = 0;
	for (size_t i = 0; i < paths->n && rc == 0; i++)
		rc = add_read_only(p, sorted[i], err);
	return rc;
}

/*
 * An input that was given through a link is also found at the path as typed, unless that is
 * taken.
 */
static int add_alias(struct forge_plan *p, const char *typed, const char *canonical)
{
	if (is_covered(p, typed) || forge_path_is_below(typed, p->workdir))
		return 0;
	for (size_t i = 0; i < p->n_mounts; i++)
		if (forge_path_is_below(typed, p->mounts[i].target) &&
		    (p->mounts[i].type == FORGE_MOUNT_SYMLINK ||
		     strcmp(typed, p->mounts[i].target) == 0))
			return 0;
	return add(p, FORGE_MOUNT_SYMLINK, typed, canonical) ? 0 : -ENOMEM;
}

static int add_tmpfs(struct forge_plan *p, const char *target, uint64_t size)
{
	struct forge_mount *m = add(p, FORGE_MOUNT_TMPFS, target, NULL);
	if (!m)
		return -ENOMEM;
	m->is_dir = true;
	m->size_bytes = size;
	/*
	 * Inodes cost kernel memory, which the run is charged for too; this only stops extreme
	 * cases.
	 */
	m->inodes = size / 4096 < 4096 ? 4096 : size / 4096;
	return 0;
}

static int add_etc(struct forge_plan *p, const char *root, bool own_network,
		   struct forge_error *err)
{
	int rc = 0;

	for (const char *const *s = forge_view_etc; *s && rc == 0; s++)
		rc = add_system(p, root, *s, err);
	for (const char *const *s = forge_view_etc_net; *s && rc == 0 && !own_network;
	     s++)
		rc = add_resolved(p, *s);
	for (const struct forge_view_text *t = forge_view_texts; t->path && rc == 0; t++)
		rc = add(p, FORGE_MOUNT_FILE, t->path, t->content) ? 0 : -ENOMEM;
	if (rc == 0) {
		forge_auto_free char *pw = forge_asprintf(
			"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
			"%s:x:%d:%d:forge analysis:%s:/bin/sh\n"
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
			FORGE_INSIDE_NAME, FORGE_INSIDE_UID, FORGE_INSIDE_GID,
			p->workdir);
		if (!pw || !add(p, FORGE_MOUNT_FILE, "/etc/passwd", pw))
			return -ENOMEM;
	}
	return rc;
}

static int add_proc(struct forge_plan *p)
{
	if (!add(p, FORGE_MOUNT_PROC, "/proc", NULL))
		return -ENOMEM;
	for (const char *const *s = forge_view_proc_masks; *s; s++) {
		struct stat st;
		/*
		 * Skip what this kernel lacks or only root may read: no process inside is the
		 * host's root.
		 */
		if (lstat(*s, &st) < 0 || !(st.st_mode & 0004))
			continue;
		struct forge_mount *m = add(p, FORGE_MOUNT_MASK, *s, NULL);
		if (!m)
			return -ENOMEM;
		m->is_dir = S_ISDIR(st.st_mode);
	}
	return 0;
}

static int add_dev(struct forge_plan *p, uint64_t shm, struct forge_error *err)
{
	int rc = 0;

	for (const struct forge_view_dev *d = forge_view_devs; d->path && rc == 0; d++)
		rc = add_device(p, d, err);
	for (const struct forge_view_text *l = forge_view_dev_links; l->path && rc == 0;
	     l++)
		rc = add(p, FORGE_MOUNT_SYMLINK, l->path, l->content) ? 0 : -ENOMEM;
	return rc < 0 ? rc : add_tmpfs(p, "/dev/shm", shm);
}

static int add_workdir(struct forge_plan *p, bool exists, struct forge_error *err)
{
	forge_auto_free char *source =
		forge_asprintf("%s/%s", p->place, FORGE_PLAN_WORKDIR);
	struct forge_mount *m =
		source ? add(p, FORGE_MOUNT_RW, p->workdir, source) : NULL;
	if (!m)
		return -ENOMEM;
	m->is_dir = true;
	if (!exists)
		return 0;
	struct stat st;
	if (lstat(source, &st) < 0)
		return forge_fail_errno(err, errno, "look at workdir %s", source);
	set_identity(m, &st);
	return 0;
}

#ifdef FORGE_TEST_WEAK
/*
 * Only in the program forge-weak of the tests: damage for real, from inside. The directories in this variable
 * (separated by colons) are writable in the sandbox, at their own paths.
 */
static int add_weakness(struct forge_plan *p)
{
	const char *list = getenv("FORGE_TEST_WRITABLE");
	forge_auto_free char *paths = strdup(list ? list : "");
	char *rest = paths;

	for (char *path; (path = strsep(&rest, ":"));) {
		struct stat st;
		if (!*path || lstat(path, &st) < 0)
			continue;
		struct forge_mount *m = add(p, FORGE_MOUNT_RW, path, path);
		if (!m)
			return -ENOMEM;
		set_identity(m, &st);
	}
	return 0;
}
#else
static int add_weakness(struct forge_plan *p)
{
	(void)p; /* there is none */
	return 0;
}
#endif

/* Order matters: a tmpfs comes before what is mounted on directories in it. */
static int build_view(struct forge_plan *p, const struct forge_plan_spec *spec,
		      struct forge_error *err)
{
	uint64_t memory = p->limits.memory_bytes == FORGE_UNLIMITED
				  ? 1ULL << 32
				  : p->limits.memory_bytes;
	uint64_t tmp = spec->tmp_bytes ? spec->tmp_bytes : memory / 2;
	uint64_t shm = spec->shm_bytes ? spec->shm_bytes : memory;
	int rc = 0;

	/* The trees of the kernel (/sys) are always those of the host. */
	for (const char *const *s = forge_view_system; *s && rc == 0; s++)
		rc = add_system(p, strncmp(*s, "/sys/", 5) == 0 ? NULL : spec->root, *s,
				err);
	if (rc == 0)
		rc = add_etc(p, spec->root, spec->own_network, err);
	if (rc == 0)
		rc = add_proc(p);
	if (rc == 0)
		rc = add_dev(p, shm, err);
	if (rc == 0)
		rc = add_tmpfs(p, "/tmp", tmp);
	for (const char *const *s = forge_view_dirs; *s && rc == 0; s++)
		rc = add(p, FORGE_MOUNT_DIR, *s, NULL) ? 0 : -ENOMEM;
	if (rc == 0)
		rc = add_workdir(p, spec->workdir_exists, err);
	if (rc == 0)
		rc = add_weakness(p);
	if (rc == 0)
		rc = add_all_read_only(p, spec->read_only, err);
	for (size_t i = 0; spec->links && i + 1 < spec->links->n && rc == 0; i += 2)
		rc = add(p, FORGE_MOUNT_SYMLINK, spec->links->v[i], spec->links->v[i + 1])
			     ? 0
			     : -ENOMEM;
	for (size_t i = 0; i + 1 < spec->aliases->n && rc == 0; i += 2)
		rc = add_alias(p, spec->aliases->v[i], spec->aliases->v[i + 1]);
	return rc;
}

/*
 * Lists what execve tries: argv[0] itself when it has a slash, else the file in each directory
 * of PATH.
 */
static int build_exec_paths(struct forge_plan *p)
{
	const char *cmd = p->argv.v[0];

	if (strchr(cmd, '/'))
		return forge_strv_add(&p->exec_paths, cmd);
	const char *path = forge_strv_getenv(&p->env, "PATH");
	for (const char *s = path; s && *s;) {
		size_t len = strcspn(s, ":");
		int rc =
			len ? forge_strv_addf(&p->exec_paths, "%.*s/%s", (int)len, s, cmd)
			    : 0;
		if (rc < 0)
			return rc;
		s += len + (s[len] == ':');
	}
	return 0;
}

/*
 * Chooses as many CPUs as the limit needs, rounded up, out of those we may use. The first is
 * random, so that many one-CPU runs do not all use CPU 0. Affinity only guides programs (nproc,
 * thread pools); the cgroup enforces the limit.
 */
static void choose_cpus(struct forge_plan *p)
{
	cpu_set_t have;

	CPU_ZERO(&p->cpus);
	if (sched_getaffinity(0, sizeof(have), &have) < 0)
		return;
	unsigned n_have = (unsigned)CPU_COUNT(&have);
	uint64_t want = p->limits.cpus_milli == FORGE_UNLIMITED
				? n_have
				: (p->limits.cpus_milli + 999) / 1000;
	if (want >= n_have) {
		p->cpus = have;
		p->n_cpus = n_have;
		return;
	}
	uint32_t start = 0;
	(void)!getrandom(&start, sizeof(start), GRND_NONBLOCK); /* any start will do */
	unsigned skip = start % n_have;
	for (unsigned i = 0, seen = 0; p->n_cpus < want; i = (i + 1) % CPU_SETSIZE)
		if (CPU_ISSET(i, &have) && seen++ >= skip) {
			CPU_SET(i, &p->cpus);
			p->n_cpus = (unsigned)CPU_COUNT(&p->cpus);
		}
}

int forge_plan_build(const struct forge_plan_spec *spec, struct forge_plan **ret,
		     struct forge_error *err)
{
	forge_auto_plan struct forge_plan *p = calloc(1, sizeof(*p));
	if (!p)
		return forge_fail(err, ENOMEM, "out of memory");
	p->limits = *spec->limits;
	p->own_network = spec->own_network;
	p->notes_sockets = spec->notes_sockets;
	p->host_uid = spec->host_uid;
	p->host_gid = spec->host_gid;
	p->privileged = spec->privileged;
	p->landlock_abi = spec->landlock_abi;
	p->run_id = strdup(spec->run_id);
	p->workdir = strdup(spec->workdir);
	p->place = strdup(spec->place ? spec->place : spec->workdir);
	int rc = p->run_id && p->workdir && p->place ? 0 : -ENOMEM;
	for (char *const *a = spec->argv; *a && rc == 0; a++)
		rc = forge_strv_add(&p->argv, *a);
	if (rc == 0)
		rc = forge_strv_copy(&p->env, spec->env);
	if (rc == 0)
		rc = build_exec_paths(p);
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	choose_cpus(p);
	/* The caller decides whether a run may do without an I/O limit. */
	if (p->limits.io_bytes_per_second != FORGE_UNLIMITED)
		(void)!forge_blockdev_find(p->place, &p->io_disk, &p->io_error);
	struct forge_error inner = FORGE_ERROR_INIT;
	rc = build_view(p, spec, &inner);
	if (rc < 0) {
		if (!inner.code)
			return forge_fail(err, ENOMEM, "out of memory");
		if (err)
			*err = inner;
		return rc;
	}
	*ret = forge_take_ptr(p);
	return 0;
}
