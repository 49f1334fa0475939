/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of the files that were asked for. */
#include "pipeline/digests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "run/input_hasher.h"

struct entry {
	char *path, *real;
	struct stat st;
	char digest[FORGE_DIGEST_MAX]; /* "": not known */
};

struct forge_digests {
	const struct forge_home *home;
	struct entry **slots; /* cap of them, a power of two; each an entry or NULL */
	size_t n, cap;
};

struct forge_digests *forge_digests_new(const struct forge_home *home)
{
	struct forge_digests *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->home = home;
	d->cap = 256;
	d->slots = calloc(d->cap, sizeof(struct entry *));
	if (!d->slots) {
		free(d);
		return NULL;
	}
	return d;
}

void forge_digests_free(struct forge_digests *d)
{
	for (size_t i = 0; d && i < d->cap; i++)
		if (d->slots[i]) {
			free(d->slots[i]->path);
			free(d->slots[i]->real);
			free(d->slots[i]);
		}
	if (d)
		free(d->slots);
	free(d);
}

/* FNV-1a */
static size_t hash(const char *text)
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3u;
	return (size_t)(h ^ h >> 32);
}

static struct entry **slot_of(const struct forge_digests *d, const char *path)
{
	size_t i = hash(path) & (d->cap - 1);

	while (d->slots[i] && strcmp(d->slots[i]->path, path) != 0)
		i = (i + 1) & (d->cap - 1);
	return &d->slots[i];
}

static int grow(struct forge_digests *d)
{
	struct forge_digests more = { .home = d->home, .n = d->n, .cap = 2 * d->cap };

	more.slots = calloc(more.cap, sizeof(struct entry *));
	if (!more.slots)
		return -ENOMEM;
	for (size_t i = 0; i < d->cap; i++)
		if (d->slots[i])
			*slot_of(&more, d->slots[i]->path) = d->slots[i];
	free(d->slots);
	*d = more;
	return 0;
}

static struct entry *find_or_add(struct forge_digests *d, const char *path)
{
	if (2 * d->n >= d->cap && grow(d) < 0)
		return NULL;
	struct entry **at = slot_of(d, path);
	if (*at)
		return *at;
	struct entry *e = calloc(1, sizeof(*e));
	if (!e || !(e->path = strdup(path))) {
		free(e);
		return NULL;
	}
	d->n++;
	*at = e;
	return e;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
	       a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int forge_digests_get(struct forge_digests *d, const char *path, const char **ret_real,
		      const char **ret_digest, struct forge_error *err)
{
	struct entry *e = find_or_add(d, path);
	struct stat st;
	uint64_t size;

	if (!e)
		return forge_fail(err, ENOMEM, "out of memory");
	if (stat(path, &st) < 0)
		return forge_fail_errno(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return forge_fail(err, EINVAL, "%s is neither a file nor a directory",
				  path);
	if (!e->digest[0] || !is_same(&st, &e->st)) {
		free(e->real);
		e->digest[0] = '\0';
		e->real = realpath(path, NULL);
		if (!e->real)
			return forge_fail_errno(err, errno, "%s", path);
		int rc = forge_input_digest(d->home, e->real, e->digest, &size, err);
		if (rc < 0)
			return rc;
		/* Of a file that is written right now the next question reads it again. */
		e->st = st;
	}
	*ret_real = e->real;
	*ret_digest = e->digest;
	return 0;
}
