/* SPDX-License-Identifier: Apache-2.0 */
/* Checks objects against their digests. */
#include "state/check.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "state/damage.h"
#include "state/objects.h"

#define THREADS_MAX   4
#define TRIES	      3
#define PROGRESS_MSEC 200

void forge_check_pack(const char *digest, uint8_t ret[FORGE_SHA256_BYTES])
{
	const char *hex = digest + strlen("sha256:");

	for (size_t i = 0; i < FORGE_SHA256_BYTES; i++) {
		unsigned byte = 0;
		(void)sscanf(hex + 2 * i, "%2x", &byte); /* digits, by contract */
		ret[i] = (uint8_t)byte;
	}
}

const char *forge_check_unpack(const uint8_t raw[FORGE_SHA256_BYTES],
			       char buf[FORGE_DIGEST_MAX])
{
	size_t len = (size_t)snprintf(buf, FORGE_DIGEST_MAX, "sha256:");

	for (size_t i = 0; i < FORGE_SHA256_BYTES; i++)
		len += (size_t)snprintf(buf + len, FORGE_DIGEST_MAX - len, "%02x",
					raw[i]);
	return buf;
}

/* ---- one object ---- */

/* What the name of an object leads to. */
struct seen {
	int error; /* of the look, 0: none */
	struct stat st;
};

static struct seen look(const struct forge_home *home, const char *path)
{
	struct seen s = { .error = 0 };

	if (fstatat(home->fd, path, &s.st, AT_SYMLINK_NOFOLLOW) < 0)
		s.error = errno;
	return s;
}

static bool is_same(const struct seen *a, const struct seen *b)
{
	return a->error == b->error && (a->error || (a->st.st_dev == b->st.st_dev &&
						     a->st.st_ino == b->st.st_ino));
}

/* The errors of a disk or of a file system that is damaged, not of the host or the user. */
static bool is_damage(int code)
{
	return code == EIO || code == EUCLEAN || code == EBADMSG || code == ENODATA ||
	       code == EREMOTEIO || code == EILSEQ;
}

static void judge_error(struct forge_checked *c, int code)
{
	c->state = code == ENOENT    ? FORGE_CHECK_ABSENT
		   : is_damage(code) ? FORGE_CHECK_DAMAGED
				     : FORGE_CHECK_UNKNOWN;
	(void)snprintf(c->problem, sizeof(c->problem), "it %s: %s",
		       code == ENOENT ? "is missing" : "cannot be read", strerror(code));
}

static void judge_content(struct forge_checked *c, const struct forge_check_item *item)
{
	char has[FORGE_FORMAT_MAX];
	bool is_other_size =
		item->recorded != FORGE_SIZE_UNKNOWN && item->recorded != c->size;

	if (strcmp(c->found, c->digest) == 0 && !is_other_size) {
		c->state = FORGE_CHECK_GOOD;
		return;
	}
	c->state = strcmp(c->found, c->digest) == 0 ? FORGE_CHECK_MISRECORDED
						    : FORGE_CHECK_DAMAGED;
	if (c->state == FORGE_CHECK_MISRECORDED)
		(void)snprintf(
			c->problem, sizeof(c->problem),
			"its content is good, but a record says %llu bytes instead "
			"of %llu",
			(unsigned long long)item->recorded, (unsigned long long)c->size);
	else if (is_other_size)
		(void)snprintf(c->problem, sizeof(c->problem),
			       "it has %llu bytes instead of %llu",
			       (unsigned long long)c->size,
			       (unsigned long long)item->recorded);
	else
		(void)snprintf(c->problem, sizeof(c->problem),
			       "its content has changed (%s with another digest)",
			       forge_format_size(has, c->size));
}

/*
 * The content comes from the disk: pages that the kernel has in memory may be good while the
 * disk is not. They are dropped again, because a check would otherwise fill the memory.
 */
static int read_again(int fd, struct forge_checked *c)
{
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	int rc = forge_sha256_fd(fd, -1, c->found, &c->size);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return rc;
}

/* Fills c; *seen is the file that it is about. */
static void read_object(const struct forge_home *home, const char *path,
			const struct forge_check_item *item, struct seen *seen,
			struct forge_checked *c)
{
	*seen = look(home, path);
	if (seen->error) {
		judge_error(c, seen->error);
		return;
	}
	if (!S_ISREG(seen->st.st_mode)) {
		c->state = FORGE_CHECK_DAMAGED;
		(void)snprintf(c->problem, sizeof(c->problem), "it is no regular file");
		return;
	}
	forge_auto_close int fd =
		openat(home->fd, path,
		       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &seen->st) < 0) {
		judge_error(c, errno);
		return;
	}
	int rc = read_again(fd, c);
	if (rc < 0) {
		c->found[0] = '\0';
		judge_error(c, -rc);
		return;
	}
	judge_content(c, item);
}

/* Makes or removes the mark. False: another file has taken the place of the one that was read. */
static bool settle(const struct forge_home *home, const char *path,
		   const struct seen *seen, struct forge_checked *c)
{
	bool is_bad = c->state == FORGE_CHECK_DAMAGED;

	if (!is_bad && forge_damage_is_marked(home->fd, c->digest) == 0)
		return true;
	forge_auto_close int marks = forge_damage_lock(home->fd, is_bad);
	const struct seen now = look(home, path);
	if (!is_same(seen, &now))
		return false;
	if (marks < 0)
		c->mark_error = is_bad ? marks : 0;
	else if (is_bad)
		c->mark_error = forge_damage_mark(home, marks, c->digest, c->problem,
						  *c->found ? c->found : NULL);
	else if (forge_damage_unmark(marks, c->digest) == 1 &&
		 c->state == FORGE_CHECK_GOOD)
		c->state = FORGE_CHECK_GOOD_AGAIN;
	return true;
}

void forge_check_object(const struct forge_home *home,
			const struct forge_check_item *item, struct forge_checked *ret)
{
	char path[FORGE_STORED_MAX];
	struct seen seen;

	/* A run that repairs an object replaces it meanwhile; gc and rm remove one. */
	for (int i = 0; i < TRIES; i++) {
		*ret = (struct forge_checked){ .state = FORGE_CHECK_UNKNOWN };
		forge_check_unpack(item->digest, ret->digest);
		(void)forge_objects_path(path, ret->digest);
		read_object(home, path, item, &seen, ret);
		if (ret->state == FORGE_CHECK_ABSENT ||
		    ret->state == FORGE_CHECK_UNKNOWN || settle(home, path, &seen, ret))
			return;
	}
	ret->state = FORGE_CHECK_UNKNOWN;
	(void)snprintf(ret->problem, sizeof(ret->problem),
		       "it was replaced each time it was read");
}

/* ---- many ---- */

struct pool {
	const struct forge_check *how;
	const struct forge_check_item *items;
	size_t n, next;
	pthread_mutex_t mutex; /* of what follows */
	pthread_cond_t is_done;
	struct forge_check_progress progress;
	struct forge_check_result result;
	unsigned workers; /* still at work */
	bool is_out_of_memory;
};

static void add_result(struct pool *p, const struct forge_checked *c, uint64_t size)
{
	struct forge_check_result *r = &p->result;

	p->progress.done++;
	p->progress.bytes += size;
	if (*c->found) {
		r->checked++;
		r->bytes += c->size;
	}
	if (c->state == FORGE_CHECK_GOOD)
		return;
	if (r->n == r->cap) {
		size_t cap = r->cap ? 2 * r->cap : 16;
		struct forge_checked *grown = reallocarray(r->at, cap, sizeof(*grown));
		if (!grown) {
			p->is_out_of_memory = true;
			return;
		}
		r->at = grown;
		r->cap = cap;
	}
	r->at[r->n++] = *c;
}

static void *work(void *arg)
{
	struct pool *p = arg;

	for (;;) {
		size_t i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
		struct forge_checked c;
		if (i < p->n)
			forge_check_object(p->how->home, &p->items[i], &c);
		(void)pthread_mutex_lock(&p->mutex);
		if (i < p->n)
			add_result(p, &c, p->items[i].size);
		else if (--p->workers == 0)
			(void)pthread_cond_signal(&p->is_done);
		(void)pthread_mutex_unlock(&p->mutex);
		if (i >= p->n)
			return NULL;
	}
}

/* Waits for the workers, and reports how far they are. */
static void watch(struct pool *p)
{
	(void)pthread_mutex_lock(&p->mutex);
	while (p->workers > 0) {
		struct timespec end;
		(void)clock_gettime(CLOCK_REALTIME, &end);
		end.tv_nsec += PROGRESS_MSEC * 1000000L;
		end.tv_sec += end.tv_nsec / 1000000000L;
		end.tv_nsec %= 1000000000L;
		(void)pthread_cond_timedwait(&p->is_done, &p->mutex, &end);
		const struct forge_check_progress now = p->progress;
		if (!p->how->progress)
			continue;
		(void)pthread_mutex_unlock(&p->mutex);
		p->how->progress(&now);
		(void)pthread_mutex_lock(&p->mutex);
	}
	(void)pthread_mutex_unlock(&p->mutex);
}

/* The largest first: otherwise one thread would read the last one while the others are done. */
static int by_size(const void *a, const void *b)
{
	const struct forge_check_item *x = a, *y = b;

	return x->size < y->size ? 1 : x->size > y->size ? -1 : 0;
}

static size_t threads_for(size_t n)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t most = cpus > THREADS_MAX ? THREADS_MAX : cpus < 1 ? 1 : (size_t)cpus;

	return n < most ? n : most;
}

int forge_check_objects(const struct forge_check *how, struct forge_check_item *items,
			size_t n, struct forge_check_result *ret)
{
	struct pool p = { .how = how, .items = items, .n = n };
	pthread_t threads[THREADS_MAX];
	size_t wanted = threads_for(n), made = 0;

	if (n)
		qsort(items, n, sizeof(*items), by_size);
	p.progress.of = n;
	for (size_t i = 0; i < n; i++)
		p.progress.bytes_of += items[i].size;
	(void)pthread_mutex_init(&p.mutex, NULL);
	(void)pthread_cond_init(&p.is_done, NULL);
	p.workers = (unsigned)wanted;
	while (made < wanted && pthread_create(&threads[made], NULL, work, &p) == 0)
		made++;
	/* A thread that cannot be made is not needed, unless it is the only one. */
	(void)pthread_mutex_lock(&p.mutex);
	p.workers -= (unsigned)(wanted - made);
	p.workers += made == 0;
	(void)pthread_mutex_unlock(&p.mutex);
	if (made == 0)
		(void)work(&p);
	watch(&p);
	while (made > 0)
		(void)pthread_join(threads[--made], NULL);
	(void)pthread_cond_destroy(&p.is_done);
	(void)pthread_mutex_destroy(&p.mutex);
	*ret = p.result;
	return p.is_out_of_memory ? -ENOMEM : 0;
}

void forge_check_result_done(struct forge_check_result *r)
{
	free(r->at);
	*r = (struct forge_check_result){ .at = NULL };
}
