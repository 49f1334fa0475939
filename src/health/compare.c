/* SPDX-License-Identifier: Apache-2.0 */
/* Compares snapshots. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "health/snapshot.h"

struct comparison {
	struct forge_changes *changes;
	enum forge_author by;
};

static void add(const struct comparison *c, const struct forge_seen_dir *d,
		const struct forge_seen_file *f, enum forge_change_kind what)
{
	forge_auto_free char *path = forge_asprintf(
		"%s/%s", strcmp(d->path, "/") == 0 ? "" : d->path, d->names + f->name);

	if (path)
		forge_changes_add(c->changes, path, what, c->by, NULL);
}

static bool has_same_digest(const struct forge_seen_file *a,
			    const struct forge_seen_file *b)
{
	if (!a->digest || !b->digest)
		return !a->digest && !b->digest;
	return strcmp(a->digest, b->digest) == 0;
}

/* The times of a directory say no more than its entries do. */
static void compare_file(const struct comparison *c, const struct forge_seen_dir *d,
			 const struct forge_seen_file *a, const struct forge_seen_file *b)
{
	bool is_dir = S_ISDIR(a->mode) && S_ISDIR(b->mode);
	bool is_same_file = a->dev == b->dev && a->ino == b->ino &&
			    (a->mode & S_IFMT) == (b->mode & S_IFMT);

	if (!is_same_file || !has_same_digest(a, b) ||
	    (!is_dir && (a->size != b->size || a->modified != b->modified)))
		add(c, d, b, FORGE_CHANGE_MODIFIED);
	else if (a->mode != b->mode || a->uid != b->uid || a->gid != b->gid ||
		 (!is_dir && (a->nlink != b->nlink || a->changed != b->changed)))
		add(c, d, b, FORGE_CHANGE_ATTRIBUTES);
}

static void add_all(const struct comparison *c, const struct forge_seen_dir *d,
		    enum forge_change_kind what)
{
	for (size_t i = 0; i < d->n; i++)
		add(c, d, &d->files[i], what);
}

static void compare_dir(const struct comparison *c, const struct forge_seen_dir *a,
			const struct forge_seen_dir *b)
{
	size_t i = 0, k = 0;

	if (a->error != b->error)
		forge_changes_add(c->changes, b->path, FORGE_CHANGE_UNREAD, c->by, NULL);
	while (i < a->n || k < b->n) {
		int order = i == a->n	? 1
			    : k == b->n ? -1
					: strcmp(a->names + a->files[i].name,
						 b->names + b->files[k].name);
		if (order == 0)
			compare_file(c, b, &a->files[i++], &b->files[k++]);
		else if (order < 0 && !b->error)
			add(c, a, &a->files[i++], FORGE_CHANGE_DELETED);
		else if (order < 0)
			i++; /* not all of b is known */
		else if (!a->error)
			add(c, b, &b->files[k++], FORGE_CHANGE_CREATED);
		else
			k++;
	}
}

void forge_snapshot_compare(const struct forge_snapshot *before,
			    const struct forge_snapshot *after, enum forge_author by,
			    struct forge_changes *changes)
{
	const struct comparison c = { changes, by };
	size_t i = 0, k = 0;

	while (i < before->n || k < after->n) {
		int order = i == before->n ? 1
			    : k == after->n
				    ? -1
				    : strcmp(before->dirs[i]->path, after->dirs[k]->path);
		if (order == 0)
			compare_dir(&c, before->dirs[i++], after->dirs[k++]);
		else if (order < 0)
			add_all(&c, before->dirs[i++], FORGE_CHANGE_DELETED);
		else
			add_all(&c, after->dirs[k++], FORGE_CHANGE_CREATED);
	}
}

void forge_snapshot_since(const struct forge_snapshot *s, const struct timespec *since,
			  enum forge_author by, struct forge_changes *changes)
{
	const struct comparison c = { changes, by };
	int64_t from = since->tv_sec * 1000000000ll + since->tv_nsec;

	for (size_t i = 0; i < s->n; i++) {
		const struct forge_seen_dir *d = s->dirs[i];
		if (d->error)
			forge_changes_add(changes, d->path, FORGE_CHANGE_UNREAD, by,
					  NULL);
		for (size_t k = 0; k < d->n; k++) {
			const struct forge_seen_file *f = &d->files[k];
			if (f->born >= from)
				add(&c, d, f, FORGE_CHANGE_CREATED);
			else if (S_ISDIR(f->mode) && f->modified >= from)
				add(&c, d, f, FORGE_CHANGE_ENTRIES);
			else if (f->modified >= from && f->changed >= from)
				add(&c, d, f, FORGE_CHANGE_MODIFIED);
			else if (f->changed >= from)
				add(&c, d, f, FORGE_CHANGE_ATTRIBUTES);
		}
	}
}
