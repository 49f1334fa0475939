/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of guarded files. */
#include "health/guard_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/glob.h"
#include "base/json.h"

void forge_guard_set_done(struct forge_guard_set *s)
{
	forge_strv_done(&s->patterns);
	forge_strv_done(&s->exclude);
	forge_strv_done(&s->tops);
}

/* The part of a pattern that has no wildcard, up to a slash. */
static char *fixed_part(const char *pattern)
{
	char *part = strdup(pattern);
	char *wild = part ? strpbrk(part, "*?") : NULL;

	if (wild) {
		*wild = '\0';
		char *slash = strrchr(part, '/');
		if (slash)
			slash[slash == part] = '\0';
	}
	return part;
}

/* Adds the top of a pattern, unless another one contains it, and drops those that it contains. */
static int add_top(struct forge_strv *tops, const char *pattern)
{
	forge_auto_strv struct forge_strv kept = { 0 };
	forge_auto_free char *top = fixed_part(pattern);
	int rc = top ? 0 : -ENOMEM;

	forge_strv_foreach (other, tops)
		if (rc == 0 && forge_path_is_below(top, other))
			return 0;
	forge_strv_foreach (other, tops)
		if (rc == 0 && !forge_path_is_below(other, top))
			rc = forge_strv_add(&kept, other);
	if (rc == 0)
		rc = forge_strv_add(&kept, top);
	if (rc == 0) {
		struct forge_strv old = *tops;
		*tops = kept;
		kept = old;
	}
	return rc;
}

int forge_guard_set_make(const struct forge_health_config *h, const char *forge_home,
			 struct forge_guard_set *ret, struct forge_error *err)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };
	int rc = forge_strv_add(&s.exclude, forge_home);

	for (size_t i = 0; i < h->n_checks; i++) {
		const struct forge_check_decl *d = &h->checks[i];
		if (strcmp(d->kind, "files") != 0 || h->mode == FORGE_GUARD_OFF)
			continue;
		s.is_hashed |= d->is_hashed;
		forge_strv_foreach (pattern, &d->paths) {
			if (rc == 0)
				rc = forge_strv_add(&s.patterns, pattern);
			if (rc == 0)
				rc = add_top(&s.tops, pattern);
		}
		forge_strv_foreach (pattern, &d->exclude)
			if (rc == 0)
				rc = forge_strv_add(&s.exclude, pattern);
	}
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret = s;
	s = (struct forge_guard_set){ 0 };
	return 0;
}

json_t *forge_guard_set_json(const struct forge_guard_set *s)
{
	return json_pack("{s:o, s:o, s:b}", "patterns", forge_json_names(&s->patterns),
			 "exclude", forge_json_names(&s->exclude), "hashed",
			 s->is_hashed);
}

int forge_guard_set_parse(const json_t *j, struct forge_guard_set *ret)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };
	int rc = forge_json_names_decode(j, "patterns", &s.patterns);

	if (rc == 0)
		rc = forge_json_names_decode(j, "exclude", &s.exclude);
	forge_strv_foreach (pattern, &s.patterns)
		if (rc == 0)
			rc = *pattern == '/' ? add_top(&s.tops, pattern) : -EINVAL;
	forge_strv_foreach (pattern, &s.exclude)
		if (rc == 0 && *pattern != '/')
			rc = -EINVAL;
	s.is_hashed = json_is_true(json_object_get(j, "hashed"));
	if (rc == 0) {
		*ret = s;
		s = (struct forge_guard_set){ 0 };
	}
	return rc;
}

static bool matches(const struct forge_strv *patterns, const char *path)
{
	forge_strv_foreach (pattern, patterns)
		if (forge_glob_match(pattern + 1, path + 1))
			return true;
	return false;
}

bool forge_guard_has(const struct forge_guard_set *s, const char *path)
{
	return *path == '/' && matches(&s->patterns, path) && !matches(&s->exclude, path);
}

bool forge_guard_may_contain(const struct forge_guard_set *s, const char *dir)
{
	if (matches(&s->exclude, dir))
		return false;
	forge_strv_foreach (top, &s->tops)
		if (forge_path_is_below(dir, top) || forge_path_is_below(top, dir))
			return true;
	return false;
}

bool forge_guard_is_above(const struct forge_guard_set *s, const char *path)
{
	forge_strv_foreach (top, &s->tops)
		if (forge_path_is_below(top, path))
			return true;
	return false;
}
