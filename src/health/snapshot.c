/* SPDX-License-Identifier: Apache-2.0 */
/* Takes snapshots: threads share a stack of directories that are still to be read. */
#include "health/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/strv.h"

#define THREADS_MAX 8

struct walk {
	const struct forge_guard_set *set;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct forge_seen_dir **unread;
	size_t n_unread, cap_unread;
	size_t n_busy; /* directories that are being read */
	struct forge_snapshot *result;
	bool is_out_of_memory;
};

static void dir_free(struct forge_seen_dir *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->n; i++)
		free(d->files[i].digest);
	free(d->files);
	free(d->names);
	free(d->path);
	free(d);
}

void forge_snapshot_done(struct forge_snapshot *s)
{
	for (size_t i = 0; i < s->n; i++)
		dir_free(s->dirs[i]);
	free(s->dirs);
	*s = (struct forge_snapshot){ 0 };
}

/* Takes ownership of path. NULL: out of memory. */
static struct forge_seen_dir *dir_new(const struct forge_guard_set *set, char *path)
{
	struct forge_seen_dir *d = path ? calloc(1, sizeof(*d)) : NULL;

	if (!d) {
		free(path);
		return NULL;
	}
	d->path = path;
	d->is_whole = forge_guard_has_all(set, path);
	return d;
}

static bool push(struct forge_seen_dir ***list, size_t *n, size_t *cap,
		 struct forge_seen_dir *d)
{
	if (d && *n == *cap) {
		size_t more = *cap ? *cap * 2 : 64;
		struct forge_seen_dir **grown = reallocarray(*list, more, sizeof(d));
		if (!grown)
			return false;
		*list = grown;
		*cap = more;
	}
	if (d)
		(*list)[(*n)++] = d;
	return d;
}

/* ---- one directory ---- */

static int64_t nsec(const struct statx_timestamp *t)
{
	return t->tv_sec * 1000000000ll + t->tv_nsec;
}

static struct forge_seen_file *add_file(struct forge_seen_dir *d, const char *name,
					const struct statx *st)
{
	size_t len = strlen(name) + 1;

	if (d->n == d->cap) {
		size_t more = d->cap ? d->cap * 2 : 16;
		struct forge_seen_file *grown =
			reallocarray(d->files, more, sizeof(*grown));
		if (!grown)
			return NULL;
		d->files = grown;
		d->cap = more;
	}
	if (d->names_len + len > d->names_cap) {
		size_t more = d->names_cap * 2 + len + 256;
		char *grown = realloc(d->names, more);
		if (!grown)
			return NULL;
		d->names = grown;
		d->names_cap = more;
	}
	struct forge_seen_file *f = &d->files[d->n++];
	*f = (struct forge_seen_file){
		.name = d->names_len,
		.mode = st->stx_mode,
		.uid = st->stx_uid,
		.gid = st->stx_gid,
		.nlink = st->stx_nlink,
		.dev = makedev(st->stx_dev_major, st->stx_dev_minor),
		.ino = st->stx_ino,
		.size = st->stx_size,
		.modified = nsec(&st->stx_mtime),
		.changed = nsec(&st->stx_ctime),
		.born = st->stx_mask & STATX_BTIME ? nsec(&st->stx_btime) : 0,
	};
	memcpy(d->names + d->names_len, name, len);
	d->names_len += len;
	return f;
}

/* A file that cannot be read has no digest; that it could be read before is seen by that. */
static void hash(int dirfd, const char *name, struct forge_seen_file *f)
{
	char digest[FORGE_DIGEST_MAX];
	uint64_t size;
	forge_auto_close int fd =
		openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && forge_sha256_fd(fd, -1, digest, &size) == 0)
		f->digest = strdup(digest);
}

static char *join(const char *dir, const char *name)
{
	return forge_asprintf("%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);
}

static int look_at(struct walk *w, struct forge_seen_dir *d, int dirfd, const char *name,
		   struct forge_strv *ret_dirs)
{
	struct statx st;
	forge_auto_free char *path = NULL;

	if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
		  &st) < 0)
		return errno == ENOENT ? 0 : -errno; /* it was deleted meanwhile */
	if (!d->is_whole || S_ISDIR(st.stx_mode)) {
		path = join(d->path, name);
		if (!path)
			return -ENOMEM;
	}
	if (S_ISDIR(st.stx_mode) && forge_guard_may_move(w->set, path) &&
	    forge_strv_add(ret_dirs, path) < 0)
		return -ENOMEM;
	if (!d->is_whole && !forge_guard_has(w->set, path))
		return 0;
	struct forge_seen_file *f = add_file(d, name, &st);
	if (!f)
		return -ENOMEM;
	if (w->set->is_hashed && S_ISREG(st.stx_mode))
		hash(dirfd, name, f);
	return 0;
}

static int by_name(const void *a, const void *b, void *names)
{
	const struct forge_seen_file *x = a, *y = b;

	return strcmp((char *)names + x->name, (char *)names + y->name);
}

static void read_dir(struct walk *w, struct forge_seen_dir *d, struct forge_strv *subdirs)
{
	forge_auto_entries struct forge_entries entries = FORGE_ENTRIES_INIT;
	int rc = forge_entries_open(&entries, AT_FDCWD, d->path), one;
	struct statx st;

	/* Before its entries are read: what goes later is later than everything that is compared. */
	if (rc == 0 && statx(forge_entries_fd(&entries), "", AT_EMPTY_PATH,
			     STATX_CTIME | STATX_BTIME, &st) == 0) {
		d->changed = nsec(&st.stx_ctime);
		d->born = st.stx_mask & STATX_BTIME ? nsec(&st.stx_btime) : 0;
	}
	for (const char *name; rc == 0 && (name = forge_entries_next(&entries));) {
		one = look_at(w, d, forge_entries_fd(&entries), name, subdirs);
		if (one == -ENOMEM)
			rc = one;
		else if (one < 0)
			d->error = one;
	}
	if (rc == 0)
		rc = entries.error;
	if (rc < 0 && rc != -ENOENT)
		d->error = rc;
	if (d->n > 1)
		qsort_r(d->files, d->n, sizeof(*d->files), by_name, d->names);
}

/* ---- all of them ---- */

/* A top that is a file: its directory is read for this name alone. */
static int add_lone_file(struct walk *w, const char *top, const struct statx *st)
{
	const char *slash = strrchr(top, '/');
	struct forge_seen_dir *d = dir_new(
		w->set, slash == top ? strdup("/") : strndup(top, (size_t)(slash - top)));
	struct forge_snapshot *s = w->result;

	if (!d || !forge_guard_has(w->set, top)) {
		dir_free(d);
		return d ? 0 : -ENOMEM;
	}
	struct forge_seen_file *f = add_file(d, slash + 1, st);
	if (f && w->set->is_hashed && S_ISREG(st->stx_mode))
		hash(AT_FDCWD, top, f);
	if (!f || !push(&s->dirs, &s->n, &s->cap, d)) {
		dir_free(d);
		return -ENOMEM;
	}
	return 0;
}

static int add_top(struct walk *w, const char *top)
{
	struct statx st;

	if (statx(AT_FDCWD, top, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
		  &st) < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (!S_ISDIR(st.stx_mode))
		return add_lone_file(w, top, &st);
	/* The directory itself is an entry of the one above. */
	int rc = strcmp(top, "/") == 0 ? 0 : add_lone_file(w, top, &st);
	if (rc == 0 &&
	    !push(&w->unread, &w->n_unread, &w->cap_unread, dir_new(w->set, strdup(top))))
		rc = -ENOMEM;
	return rc;
}

static struct forge_seen_dir *next_dir(struct walk *w)
{
	while (w->n_unread == 0 && w->n_busy > 0)
		pthread_cond_wait(&w->changed, &w->lock);
	if (w->n_unread == 0)
		return NULL;
	w->n_busy++;
	return w->unread[--w->n_unread];
}

static void *work(void *arg)
{
	struct walk *w = arg;

	pthread_mutex_lock(&w->lock);
	for (struct forge_seen_dir *d; (d = next_dir(w));) {
		forge_auto_strv struct forge_strv subdirs = { 0 };
		pthread_mutex_unlock(&w->lock);
		read_dir(w, d, &subdirs);
		pthread_mutex_lock(&w->lock);
		w->is_out_of_memory |= d->error == -ENOMEM;
		forge_strv_foreach (path, &subdirs)
			w->is_out_of_memory |=
				!push(&w->unread, &w->n_unread, &w->cap_unread,
				      dir_new(w->set, strdup(path)));
		w->is_out_of_memory |=
			!push(&w->result->dirs, &w->result->n, &w->result->cap, d);
		w->n_busy--;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static int by_path(const void *a, const void *b)
{
	return strcmp((*(struct forge_seen_dir *const *)a)->path,
		      (*(struct forge_seen_dir *const *)b)->path);
}

/* Lone files of one directory are one directory. */
static void join_equal(struct forge_snapshot *s)
{
	size_t to = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct forge_seen_dir *last = to ? s->dirs[to - 1] : NULL,
				      *d = s->dirs[i];
		if (!last || strcmp(last->path, d->path) != 0) {
			s->dirs[to++] = d;
			continue;
		}
		for (size_t k = 0; k < d->n; k++) {
			struct forge_seen_file *f = &d->files[k], *copy;
			copy = add_file(last, d->names + f->name, &(struct statx){ 0 });
			if (!copy)
				break;
			size_t name = copy->name;
			*copy = *f;
			copy->name = name;
			f->digest = NULL;
		}
		qsort_r(last->files, last->n, sizeof(*last->files), by_name, last->names);
		dir_free(d);
	}
	s->n = to;
}

static size_t count_threads(void)
{
	cpu_set_t cpus;
	int n = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;

	return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (size_t)n;
}

int forge_snapshot_take(const struct forge_guard_set *set, struct forge_snapshot *ret,
			struct forge_error *err)
{
	forge_auto_snapshot struct forge_snapshot s = { 0 };
	struct walk w = { .set = set,
			  .lock = PTHREAD_MUTEX_INITIALIZER,
			  .changed = PTHREAD_COND_INITIALIZER,
			  .result = &s };
	pthread_t threads[THREADS_MAX];
	size_t n = 0, most = count_threads();
	const char *where = NULL;
	int rc = 0;

	forge_strv_foreach (top, &set->tops) {
		if (rc == 0)
			rc = add_top(&w, top);
		if (rc < 0 && !where)
			where = top;
	}
	/* This thread works too. */
	while (rc == 0 && n + 1 < most &&
	       pthread_create(&threads[n], NULL, work, &w) == 0)
		n++;
	if (rc == 0)
		(void)work(&w);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	while (w.n_unread > 0)
		dir_free(w.unread[--w.n_unread]);
	free(w.unread);
	if (rc == 0 && w.is_out_of_memory)
		rc = -ENOMEM;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "look at guarded files%s%s",
					where ? ": " : "", where ? where : "");
	qsort(s.dirs, s.n, sizeof(*s.dirs), by_path);
	join_equal(&s);
	for (size_t i = 0; i < s.n; i++)
		s.n_files += s.dirs[i]->n;
	*ret = s;
	s = (struct forge_snapshot){ 0 };
	return 0;
}

char *forge_snapshot_find(const struct forge_snapshot *s, uint64_t dev, uint64_t ino)
{
	for (size_t i = 0; i < s->n; i++)
		for (size_t k = 0; k < s->dirs[i]->n; k++) {
			const struct forge_seen_file *f = &s->dirs[i]->files[k];
			if (f->ino == ino && f->dev == dev && !S_ISDIR(f->mode))
				return join(s->dirs[i]->path,
					    s->dirs[i]->names + f->name);
		}
	return NULL;
}
