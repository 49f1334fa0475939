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

/*
 * A directory has other times when something in it came or went, which is seen in it. That its attributes
 * were changed is seen when only one of the times is another one.
 */
static bool has_same_attributes(const struct forge_seen_file *a,
				const struct forge_seen_file *b)
{
	if (a->mode != b->mode || a->uid != b->uid || a->gid != b->gid)
		return false;
	if (S_ISDIR(a->mode))
		return a->changed == b->changed || a->modified != b->modified;
	return a->nlink == b->nlink && a->changed == b->changed;
}

static bool is_same_file(const struct forge_seen_file *a, const struct forge_seen_file *b)
{
	return a->dev == b->dev && a->ino == b->ino &&
	       (a->mode & S_IFMT) == (b->mode & S_IFMT);
}

static bool has_same_content(const struct forge_seen_file *a,
			     const struct forge_seen_file *b)
{
	return has_same_digest(a, b) &&
	       (S_ISDIR(a->mode) || (a->size == b->size && a->modified == b->modified));
}

/* True: they differ. */
static bool compare_file(const struct comparison *c, const struct forge_seen_dir *d,
			 const struct forge_seen_file *a, const struct forge_seen_file *b)
{
	if (!is_same_file(a, b) || !has_same_content(a, b))
		add(c, d, b, FORGE_CHANGE_MODIFIED);
	else if (!has_same_attributes(a, b))
		add(c, d, b, FORGE_CHANGE_ATTRIBUTES);
	else
		return false;
	return true;
}

static void add_all(const struct comparison *c, const struct forge_seen_dir *d,
		    enum forge_change_kind what)
{
	for (size_t i = 0; i < d->n; i++)
		add(c, d, &d->files[i], what);
}

/* What is only in one of them. False: it is not known whether it is in the other one. */
static bool add_single(const struct comparison *c, const struct forge_seen_dir *has,
		       const struct forge_seen_dir *lacks, size_t i,
		       enum forge_change_kind what)
{
	if (!lacks->error)
		add(c, has, &has->files[i], what);
	return !lacks->error;
}

/* True: they differ. */
static bool compare_dir(const struct comparison *c, const struct forge_seen_dir *a,
			const struct forge_seen_dir *b)
{
	size_t i = 0, k = 0;
	bool differs = a->error != b->error;

	if (differs)
		forge_changes_add(c->changes, b->path, FORGE_CHANGE_UNREAD, c->by, NULL);
	while (i < a->n || k < b->n) {
		int order = i == a->n	? 1
			    : k == b->n ? -1
					: strcmp(a->names + a->files[i].name,
						 b->names + b->files[k].name);
		if (order == 0)
			differs |= compare_file(c, b, &a->files[i++], &b->files[k++]);
		else if (order < 0)
			differs |= add_single(c, a, b, i++, FORGE_CHANGE_DELETED);
		else
			differs |= add_single(c, b, a, k++, FORGE_CHANGE_CREATED);
	}
	return differs;
}

static int by_path(const void *path, const void *dir)
{
	return strcmp(path, (*(struct forge_seen_dir *const *)dir)->path);
}

static struct forge_seen_dir *find_dir(const struct forge_snapshot *s, const char *path)
{
	struct forge_seen_dir **d =
		s->n ? bsearch(path, s->dirs, s->n, sizeof(*s->dirs), by_path) : NULL;

	return d ? *d : NULL;
}

static const struct forge_seen_file *find_file(const struct forge_seen_dir *d,
					       const char *name)
{
	for (size_t i = 0; d && i < d->n; i++)
		if (strcmp(d->names + d->files[i].name, name) == 0)
			return &d->files[i];
	return NULL;
}

/*
 * Directories in which everything is guarded, and is as before; but something came and went, or was put in the
 * place of something, and back: the directory has another time.
 */
static void find_traces(const struct comparison *c, const struct forge_snapshot *before,
			const struct forge_snapshot *after, const bool *differs)
{
	for (size_t i = 0; i < after->n; i++) {
		const struct forge_seen_dir *d = after->dirs[i];
		const char *slash = strrchr(d->path, '/');
		if (differs[i] || !d->is_whole || !slash || slash == d->path)
			continue;
		forge_auto_free char *outer = strndup(d->path, (size_t)(slash - d->path));
		const struct forge_seen_file
			*a = outer ? find_file(find_dir(before, outer), slash + 1) : NULL,
			*b = outer ? find_file(find_dir(after, outer), slash + 1) : NULL;
		if (a && b && a->ino == b->ino && a->modified != b->modified)
			forge_changes_add(c->changes, d->path, FORGE_CHANGE_ENTRIES,
					  c->by, NULL);
	}
}

void forge_snapshot_compare(const struct forge_snapshot *before,
			    const struct forge_snapshot *after, enum forge_author by,
			    struct forge_changes *changes)
{
	const struct comparison c = { changes, by };
	forge_auto_free bool *differs = calloc(after->n + 1, sizeof(*differs));
	size_t i = 0, k = 0;

	while (i < before->n || k < after->n) {
		int order = i == before->n ? 1
			    : k == after->n
				    ? -1
				    : strcmp(before->dirs[i]->path, after->dirs[k]->path);
		bool is_other = true;
		if (order == 0)
			is_other = compare_dir(&c, before->dirs[i++], after->dirs[k]);
		else if (order < 0)
			add_all(&c, before->dirs[i++], FORGE_CHANGE_DELETED);
		else
			add_all(&c, after->dirs[k], FORGE_CHANGE_CREATED);
		if (order >= 0 && differs)
			differs[k] = is_other;
		k += order >= 0;
	}
	if (differs)
		find_traces(&c, before, after, differs);
}

/*
 * A deleted file leaves a trace in its directory. One that is guarded is an entry of the directory above, and
 * is found there. The change time also tells when the other time was set back.
 */
static bool may_have_lost(const struct forge_seen_dir *d,
			  const struct forge_guard_set *set, int64_t from)
{
	return d->changed >= from && d->born < from && !forge_guard_has(set, d->path) &&
	       !forge_guard_is_worked_in(set, d->path);
}

void forge_snapshot_since(const struct forge_snapshot *s,
			  const struct forge_guard_set *set, const struct timespec *since,
			  enum forge_author by, struct forge_changes *changes)
{
	const struct comparison c = { changes, by };
	int64_t from = since->tv_sec * 1000000000ll + since->tv_nsec;

	for (size_t i = 0; i < s->n; i++) {
		const struct forge_seen_dir *d = s->dirs[i];
		if (d->error)
			forge_changes_add(changes, d->path, FORGE_CHANGE_UNREAD, by,
					  NULL);
		else if (may_have_lost(d, set, from))
			forge_changes_add(changes, d->path, FORGE_CHANGE_ENTRIES, by,
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
