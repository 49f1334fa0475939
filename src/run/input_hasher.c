/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes inputs, with a cache. Everything up to be_hasher() runs in the child. */
#include "run/input_hasher.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/sys.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* Reading a smaller file is as fast as a look-up in the cache. */
#define CACHED_FROM (1 << 20)
/* A file that changed this recently could change again with the same times. */
#define SETTLED_SECONDS 2
#define THREADS_MAX	8
#define DEPTH_MAX	64
/* How long to wait for a killed hasher, which may hang on a dead file server. */
#define REAP_MSEC 200

struct hashed {
	char *path; /* below the input */
	char digest[FORGE_DIGEST_MAX];
	uint64_t size;
	int error;
};

struct tree {
	const struct forge_home *home;
	int root;
	struct hashed *files;
	size_t n, cap, next;
	bool is_out_of_memory;
	int unseen_error; /* why an entry below is missing, 0: none is */
	char unseen[PATH_MAX];
};

/*
 * The cache key of a file's state as text; "2" is the version of these rules. The change time of an object is left
 * out: it changes with each link to it, and only forge writes objects.
 */
static void identity(const struct stat *st, bool is_object, char buf[160])
{
	(void)snprintf(buf, 160, "%s %" PRIu64 " %lld.%09ld %lld.%09ld ",
		       is_object ? "object" : "2", (uint64_t)st->st_size,
		       (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
		       is_object ? 0 : (long long)st->st_ctim.tv_sec,
		       is_object ? 0 : st->st_ctim.tv_nsec);
}

static bool recall(int cache, const char *name, const char *id,
		   char digest[FORGE_DIGEST_MAX])
{
	char text[320];
	size_t len = strlen(id);

	if (cache < 0 || forge_read_at(cache, name, text, sizeof(text)) < 0 ||
	    strncmp(text, id, len) != 0 || strlen(text + len) != FORGE_DIGEST_MAX - 1)
		return false;
	memcpy(digest, text + len, FORGE_DIGEST_MAX);
	return true;
}

static void remember(int cache, const char *name, const struct stat *st, const char *id,
		     const char *digest)
{
	char text[320];

	if (cache < 0 || time(NULL) - st->st_ctim.tv_sec < SETTLED_SECONDS)
		return;
	int len = snprintf(text, sizeof(text), "%s%s", id, digest);
	(void)!forge_replace_file(cache, name, text, (size_t)len,
				  false); /* on failure it is hashed again */
}

/*
 * Whether a write to a mapping of this file changes its times, at least the first write
 * to a mapping. tmpfs never does that; other file systems are not known.
 */
static bool has_honest_times(int fd)
{
	static const unsigned long known[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,
					       BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC };
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(known); i++)
		if ((unsigned long)fs.f_type == known[i])
			return true;
	return false;
}

/* -EBUSY: the file changed while it was read. */
static int hash_settled(int fd, const struct stat *before, bool is_object,
			char digest[FORGE_DIGEST_MAX], uint64_t *ret_size)
{
	char was[160], is[160];
	struct stat after;
	int rc = forge_sha256_fd(fd, -1, digest, ret_size);

	if (rc < 0 || fstat(fd, &after) < 0)
		return rc < 0 ? rc : -errno;
	identity(before, is_object, was);
	identity(&after, is_object, is);
	return strcmp(was, is) == 0 ? 0 : -EBUSY;
}

static int hash_file(const struct forge_home *home, int fd, bool is_object,
		     char digest[FORGE_DIGEST_MAX], uint64_t *ret_size)
{
	char name[64], id[160];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size < CACHED_FROM)
		return hash_settled(fd, &st, is_object, digest, ret_size);
	forge_auto_close int cache = forge_home_subdir(home, "cache", NULL);
	(void)snprintf(name, sizeof(name), "%" PRIx64 "-%" PRIu64, (uint64_t)st.st_dev,
		       (uint64_t)st.st_ino);
	identity(&st, is_object, id);
	*ret_size = (uint64_t)st.st_size;
	if (recall(cache, name, id, digest))
		return 0;
	/*
	 * A mapping that was written once can be written again without a change of the
	 * file's times. If there is no writer before and after, every later write changes
	 * them.
	 */
	bool is_quiet = has_honest_times(fd) && forge_has_no_writer(fd);
	int rc = hash_settled(fd, &st, is_object, digest, ret_size);
	if (rc == 0 && is_quiet && forge_has_no_writer(fd))
		remember(cache, name, &st, id, digest);
	return rc;
}

static struct hashed *add(struct tree *t, const char *path)
{
	if (t->n == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		struct hashed *grown = reallocarray(t->files, cap, sizeof(*grown));
		if (!grown) {
			t->is_out_of_memory = true;
			return NULL;
		}
		t->files = grown;
		t->cap = cap;
	}
	char *copy = strdup(path);
	if (!copy) {
		t->is_out_of_memory = true;
		return NULL;
	}
	t->files[t->n] = (struct hashed){ .path = copy };
	return &t->files[t->n++];
}

/*
 * An entry could not be read. A digest of the rest would be wrong, so the first such
 * entry is reported instead.
 */
static void not_seen(struct tree *t, const char *path, int error)
{
	if (t->unseen_error)
		return;
	t->unseen_error = error;
	(void)snprintf(t->unseen, sizeof(t->unseen), "%s", *path ? path : ".");
}

/* A link is hashed by the text of its target; the file there is not part of the tree. */
static void add_link(struct tree *t, int dir, const char *name, const char *path)
{
	char target[PATH_MAX];
	struct forge_sha256 h;
	ssize_t len = readlinkat(dir, name, target, sizeof(target));
	struct hashed *f = len < 0 ? NULL : add(t, path);

	if (len < 0)
		not_seen(t, path, errno); /* not a link any more */
	if (!f)
		return;
	forge_sha256_init(&h);
	forge_sha256_add(&h, "link:", 5);
	forge_sha256_add(&h, target, (size_t)len);
	forge_sha256_done(&h, f->digest);
}

static void list(struct tree *t, int fd, const char *prefix, unsigned depth)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	if (depth >= DEPTH_MAX) {
		not_seen(t, prefix, ENAMETOOLONG);
		close(fd);
		return;
	}
	(void)forge_entries_take(&d, fd); /* d keeps the error */
	for (const char *name; !t->is_out_of_memory && (name = forge_entries_next(&d));) {
		int dir = forge_entries_fd(&d);
		char path[PATH_MAX];
		struct stat st;
		if (snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "",
			     name) >= (int)sizeof(path)) {
			not_seen(t, prefix, ENAMETOOLONG);
		} else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			not_seen(t, path, errno);
		} else if (S_ISLNK(st.st_mode)) {
			add_link(t, dir, name, path);
		} else if (S_ISREG(st.st_mode)) {
			(void)add(t, path); /* t->is_out_of_memory is set */
		} else if (S_ISDIR(st.st_mode)) {
			int sub = openat(dir, name,
					 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (sub >= 0)
				list(t, sub, path, depth + 1);
			else
				not_seen(t, path, errno);
		}
	}
	if (d.error)
		not_seen(t, prefix, -d.error);
}

static void *hash_some(void *arg)
{
	struct tree *t = arg;

	for (;;) {
		size_t i = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED);
		if (i >= t->n)
			return NULL;
		struct hashed *f = &t->files[i];
		if (f->digest[0])
			continue; /* a link */
		/* A parent may be a link by now, to a file its owner cannot read. */
		forge_auto_close int fd = forge_open_inside(
			t->root, f->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
		f->error = fd < 0 ? fd : hash_file(t->home, fd, false, f->digest, &f->size);
	}
}

static void hash_all(struct tree *t)
{
	pthread_t threads[THREADS_MAX];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = 0;

	while (n < THREADS_MAX && (long)n + 1 < cpus && 4 * (n + 1) < t->n &&
	       pthread_create(&threads[n], NULL, hash_some, t) == 0)
		n++;
	(void)hash_some(t);
	while (n > 0)
		(void)pthread_join(threads[--n], NULL);
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct hashed *)a)->path, ((const struct hashed *)b)->path);
}

static int hash_dir(const struct forge_home *home, int fd, json_t *o)
{
	struct tree t = { .home = home, .root = fd };
	struct forge_sha256 h;
	char digest[FORGE_DIGEST_MAX];
	uint64_t bytes = 0;
	const struct hashed *bad = NULL;
	int top = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (top < 0)
		return -errno;
	list(&t, top, "", 0);
	hash_all(&t);
	if (t.n)
		qsort(t.files, t.n, sizeof(*t.files), by_path);
	forge_sha256_init(&h);
	for (size_t i = 0; i < t.n; i++) {
		const struct hashed *f = &t.files[i];
		bad = f->error && !bad ? f : bad;
		bytes += f->size;
		forge_sha256_add(&h, f->digest, strlen(f->digest));
		forge_sha256_add(&h, "  ", 2);
		forge_sha256_add(&h, f->path, strlen(f->path) + 1);
	}
	json_object_set_new(o, "files", json_integer((json_int_t)t.n));
	json_object_set_new(o, "size", json_integer((json_int_t)bytes));
	if (bad || t.unseen_error) {
		char why[PATH_MAX + 64];
		(void)snprintf(why, sizeof(why), "%s: %s", bad ? bad->path : t.unseen,
			       strerror(bad ? -bad->error : t.unseen_error));
		json_object_set_new(o, "error", forge_json_text(why));
	} else {
		json_object_set_new(o, "sha256",
				    json_string(forge_sha256_done(&h, digest)));
	}
	for (size_t i = 0; i < t.n; i++)
		free(t.files[i].path);
	free(t.files);
	return t.is_out_of_memory ? -ENOMEM : 0;
}

static int hash_input(const struct forge_home *home, const char *path, json_t *o)
{
	char digest[FORGE_DIGEST_MAX];
	uint64_t size = 0;
	struct stat st;
	forge_auto_close int fd = forge_open_nolink(path, O_RDONLY | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	if (S_ISDIR(st.st_mode))
		return hash_dir(home, fd, o);
	int rc = hash_file(home, fd, false, digest, &size);
	if (rc < 0)
		return rc;
	json_object_set_new(o, "size", json_integer((json_int_t)size));
	json_object_set_new(o, "sha256", json_string(digest));
	return 0;
}

int forge_input_digest(const struct forge_home *home, const char *path,
		       char ret[FORGE_DIGEST_MAX], uint64_t *ret_size,
		       struct forge_error *err)
{
	json_t *o = json_object();
	int rc = o ? hash_input(home, path, o) : -ENOMEM;
	const char *digest = forge_json_string(o, "sha256");
	const char *why = forge_json_string(o, "error");

	if (rc < 0)
		rc = forge_fail_errno(err, -rc, "%s", path);
	else if (!digest)
		rc = forge_fail(err, EIO, "%s: %s", path, why ? why : "not hashed");
	if (rc == 0) {
		(void)snprintf(ret, FORGE_DIGEST_MAX, "%s", digest);
		*ret_size = (uint64_t)json_integer_value(json_object_get(o, "size"));
	}
	json_decref(o);
	return rc;
}

int forge_object_digest(const struct forge_home *home, int fd, char ret[FORGE_DIGEST_MAX],
			uint64_t *ret_size)
{
	return hash_file(home, fd, true, ret, ret_size);
}

static json_t *hash_inputs(const struct forge_home *home, const struct forge_strv *inputs)
{
	json_t *a = json_array();

	forge_strv_foreach (path, inputs) {
		json_t *o = json_pack("{s:o}", "path", forge_json_text(path));
		int rc = o ? hash_input(home, path, o) : -ENOMEM;
		if (rc < 0)
			json_object_set_new(o, "error", json_string(strerror(-rc)));
		json_array_append_new(a, o);
	}
	return a;
}

/* The child. Its result is one JSON text; it closes the supervisor's descriptors. */
static void be_hasher(int fd, pid_t supervisor, const struct forge_home *home,
		      const struct forge_strv *inputs)
{
	struct forge_home own = *home;

	(void)prctl(PR_SET_NAME, "forge-hasher"); /* for ps(1) */
	/* Ends with the supervisor: nothing would read the result. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != supervisor)
		_exit(0);
	/* Uses the numbers of the standard streams: the limit may allow no more. */
	(void)dup2(home->fd, 0);
	(void)dup2(fd, 1);
	(void)sys_close_range(2, ~0u, 0);
	own.fd = 0;
	(void)!nice(10); /* the run has priority */
	json_t *a = hash_inputs(&own, inputs);
	char *text = a ? json_dumps(a, JSON_COMPACT) : NULL;
	if (text)
		(void)!forge_write_all(
			1, text, strlen(text)); /* an incomplete text is not valid JSON */
	_exit(0);
}

void forge_hasher_start(struct forge_hasher *h, const struct forge_home *home,
			const struct forge_strv *inputs)
{
	int fds[2];

	if (inputs->n == 0 || pipe2(fds, O_CLOEXEC) < 0)
		return;
	pid_t self = getpid(), pid = fork();
	if (pid == 0)
		be_hasher(fds[1], self, home, inputs);
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return;
	}
	h->pid = pid;
	h->fd = fds[0];
}

static uint64_t bytes_read_by(pid_t pid)
{
	char path[32], text[512];

	(void)snprintf(path, sizeof(path), "/proc/%d/io", (int)pid);
	return forge_read_at(AT_FDCWD, path, text, sizeof(text)) < 0
		       ? 0
		       : forge_key_u64(text, "rchar:", 0);
}

/* Reads the result to its end. Returns NULL, or the reason of a failure. */
static const char *read_result(const struct forge_hasher *h, int signal_fd,
			       int stall_seconds, char **text, size_t *len)
{
	uint64_t progress = 0;
	int quiet = 0;

	for (;;) {
		struct pollfd p[] = { { .fd = h->fd, .events = POLLIN },
				      { .fd = signal_fd, .events = POLLIN } };
		int n = poll(p, 2, 1000);
		if (n < 0 && errno != EINTR)
			return strerror(errno);
		if (n > 0 && p[1].revents)
			return "cancelled";
		if (n == 0) {
			uint64_t now = bytes_read_by(h->pid);
			quiet = now == progress ? quiet + 1 : 0;
			progress = now;
			if (quiet >= stall_seconds)
				return "its file system does not answer";
		}
		if (n <= 0)
			continue;
		char *grown = realloc(*text, *len + 65536);
		if (!grown)
			return "out of memory";
		*text = grown;
		ssize_t got = read(h->fd, *text + *len, 65536);
		if (got <= 0)
			return NULL;
		*len += (size_t)got;
	}
}

/* A hasher that does not die is left to init, which reaps it later. */
static void reap(pid_t pid)
{
	forge_auto_close int pidfd = sys_pidfd_open(pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	(void)kill(pid, SIGKILL); /* it has finished or hangs */
	if (pidfd >= 0)
		(void)poll(&p, 1, REAP_MSEC); /* after a timeout, a zombie */
	(void)waitpid(pid, NULL, WNOHANG);
}

json_t *forge_hasher_finish(struct forge_hasher *h, const struct forge_strv *inputs,
			    int signal_fd, int stall_seconds)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	const char *why = h->pid ? read_result(h, signal_fd, stall_seconds, &text, &len)
				 : "not hashed: never started";
	json_t *a = text ? json_loadb(text, len, 0, NULL) : NULL;

	if (h->pid) {
		close(h->fd);
		reap(h->pid);
	}
	*h = FORGE_HASHER_INIT;
	if (json_is_array(a))
		return a;
	json_decref(a);
	a = json_array();
	forge_strv_foreach (path, inputs)
		json_array_append_new(a, json_pack("{s:o, s:s}", "path",
						   forge_json_text(path), "error",
						   why ? why : "hashing failed"));
	return a;
}
