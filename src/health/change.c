/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of changes. */
#include "health/change.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

const char *const forge_change_words[FORGE_CHANGE_COUNT] = {
	[FORGE_CHANGE_CREATED] = "created",
	[FORGE_CHANGE_DELETED] = "deleted",
	[FORGE_CHANGE_RENAMED] = "renamed",
	[FORGE_CHANGE_MODIFIED] = "modified",
	[FORGE_CHANGE_ATTRIBUTES] = "attributes changed",
	[FORGE_CHANGE_OPENED] = "opened for writing",
	[FORGE_CHANGE_ENTRIES] = "entries changed",
	[FORGE_CHANGE_UNREAD] = "cannot be read",
};

const char *const forge_author_words[FORGE_AUTHOR_COUNT] = {
	[FORGE_AUTHOR_RUN] = "run",
	[FORGE_AUTHOR_OTHER] = "other",
	[FORGE_AUTHOR_UNKNOWN] = "unknown",
};

static const char *const counts[FORGE_AUTHOR_COUNT] = {
	[FORGE_AUTHOR_RUN] = "by_run",
	[FORGE_AUTHOR_OTHER] = "by_others",
	[FORGE_AUTHOR_UNKNOWN] = "unattributed",
};

int forge_changes_init(struct forge_changes *c)
{
	bool is_ok = true;

	*c = (struct forge_changes){ .files = json_array() };
	for (int i = 0; i < FORGE_AUTHOR_COUNT; i++)
		is_ok &= (c->seen[i] = json_object()) != NULL;
	return c->files && is_ok ? 0 : -ENOMEM;
}

void forge_changes_done(struct forge_changes *c)
{
	json_decref(c->files);
	for (int i = 0; i < FORGE_AUTHOR_COUNT; i++)
		json_decref(c->seen[i]);
	*c = (struct forge_changes){ 0 };
}

/* As in a record: paths are bytes, JSON is text. */
static json_t *key_of(const char *path)
{
	return forge_json_name(path);
}

bool forge_changes_has(const struct forge_changes *c, const char *path,
		       enum forge_author by)
{
	forge_auto_json json_t *key = key_of(path);

	return key && json_object_get(c->seen[by], json_string_value(key));
}

static bool is_severe(const struct forge_changes *c, const char *key)
{
	forge_auto_free char *path = c->set ? forge_json_name_decode(key) : NULL;

	return path && *path == '/' && forge_guard_is_severe(c->set, path);
}

/* Is there room for the name of this one? What the run did is named before anything else. */
static bool is_named(const struct forge_changes *c, enum forge_author by, bool severe)
{
	if (severe && !c->has_severe[by])
		return true;
	return c->n[by] <= FORGE_CHANGES_MAX &&
	       (by == FORGE_AUTHOR_RUN || json_array_size(c->files) < FORGE_CHANGES_MAX);
}

static void add(struct forge_changes *c, const char *key, const char *what,
		enum forge_author by, const char *process)
{
	if (json_object_get(c->seen[by], key))
		return;
	if (json_object_size(c->seen[by]) < FORGE_CHANGES_SEEN)
		json_object_set_new(c->seen[by], key, json_true());
	c->n[by]++;
	bool severe = !c->has_severe[by] && is_severe(c, key);
	if (!is_named(c, by, severe))
		return;
	c->has_severe[by] |= severe;
	json_t *one = json_pack("{s:s, s:s, s:s}", "path", key, "what", what, "by",
				forge_author_words[by]);
	if (process && *process)
		json_object_set_new(one, "process", forge_json_text(process));
	json_array_append_new(c->files, one);
}

void forge_changes_add(struct forge_changes *c, const char *path,
		       enum forge_change_kind what, enum forge_author by,
		       const char *process)
{
	forge_auto_json json_t *key = key_of(path);

	if (key)
		add(c, json_string_value(key), forge_change_words[what], by, process);
}

json_t *forge_changes_json(const struct forge_changes *c)
{
	json_t *j = json_object();

	for (int i = 0; i < FORGE_AUTHOR_COUNT; i++)
		json_object_set_new(j, counts[i], json_integer((json_int_t)c->n[i]));
	json_object_set(j, "files", c->files);
	return j;
}

static int author_of(const json_t *one)
{
	const char *by = forge_json_string_or(one, "by", "");

	for (int a = 0; a < FORGE_AUTHOR_COUNT; a++)
		if (strcmp(by, forge_author_words[a]) == 0)
			return a;
	return FORGE_AUTHOR_UNKNOWN;
}

static void add_json(struct forge_changes *c, const json_t *one)
{
	add(c, forge_json_string_or(one, "path", "?"),
	    forge_json_string_or(one, "what", ""), author_of(one),
	    forge_json_string(one, "process"));
}

/* Those that the other list has only counted. */
static void add_unnamed(struct forge_changes *c, const json_t *other,
			const size_t named[FORGE_AUTHOR_COUNT])
{
	for (int a = 0; a < FORGE_AUTHOR_COUNT; a++) {
		json_int_t all = json_integer_value(json_object_get(other, counts[a]));
		if (all > (json_int_t)named[a])
			c->n[a] += (size_t)all - named[a];
	}
}

void forge_changes_merge(struct forge_changes *c, const json_t *other)
{
	size_t named[FORGE_AUTHOR_COUNT] = { 0 }, i;
	const json_t *one;

	json_array_foreach (json_object_get(other, "files"), i, one) {
		add_json(c, one);
		named[author_of(one)]++;
	}
	add_unnamed(c, other, named);
}

void forge_changes_add_unknown(struct forge_changes *c, const json_t *other)
{
	size_t named[FORGE_AUTHOR_COUNT] = { 0 }, i;
	const json_t *one;

	json_array_foreach (json_object_get(other, "files"), i, one) {
		const char *key = forge_json_string_or(one, "path", "?");
		if (!json_object_get(c->seen[FORGE_AUTHOR_RUN], key) &&
		    !json_object_get(c->seen[FORGE_AUTHOR_OTHER], key))
			add_json(c, one);
		named[FORGE_AUTHOR_UNKNOWN]++;
	}
	add_unnamed(c, other, named);
}
