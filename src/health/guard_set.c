/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of guarded files. */
#include "health/guard_set.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/glob.h"
#include "base/json.h"

void forge_guard_set_done(struct forge_guard_set *s)
{
	for (size_t i = 0; i < s->n; i++) {
		forge_strv_done(&s->parts[i].patterns);
		forge_strv_done(&s->parts[i].exclude);
	}
	free(s->parts);
	forge_strv_done(&s->own);
	forge_strv_done(&s->tops);
	s->parts = NULL;
	s->n = 0;
}

/* A new, empty part; NULL: out of memory. */
static struct forge_guard_part *add_part(struct forge_guard_set *s)
{
	struct forge_guard_part *grown = reallocarray(s->parts, s->n + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	s->parts = grown;
	grown[s->n] = (struct forge_guard_part){ .is_severe = false };
	return &grown[s->n++];
}

/* Adds the top of a pattern, unless another one contains it, and drops those that it contains. */
static int add_top(struct forge_strv *tops, const char *pattern)
{
	forge_auto_strv struct forge_strv kept = { 0 };
	forge_auto_free char *top = forge_glob_fixed_part(pattern);
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

/* ---- links ---- */

#define LINKS_MAX 40 /* as in the kernel */

/* A path whose first part is resolved. */
struct resolving {
	char done[PATH_MAX]; /* no links in it; "" is the root */
	char rest[2 * PATH_MAX];
};

/* Moves the next name from rest to done. False: there is none, or it has wildcards. */
static bool next_name(struct resolving *r)
{
	char *p = r->rest + strspn(r->rest, "/");
	size_t n = strcspn(p, "/"), len = strlen(r->done);

	if (n == 0 || memchr(p, '*', n) || memchr(p, '?', n) || len + n + 2 > PATH_MAX)
		return false;
	if (n == 2 && strncmp(p, "..", 2) == 0) {
		char *slash = strrchr(r->done, '/');
		if (slash)
			*slash = '\0';
	} else if (n != 1 || *p != '.') {
		r->done[len] = '/';
		memcpy(r->done + len + 1, p, n);
		r->done[len + 1 + n] = '\0';
	}
	memmove(r->rest, p + n, strlen(p + n) + 1);
	return true;
}

/* Where the link r->done leads to comes before the rest. */
static int follow(struct resolving *r)
{
	char text[PATH_MAX], rest[sizeof(r->rest)];
	ssize_t n = readlink(r->done, text, sizeof(text) - 1);

	if (n < 0)
		return errno == EINVAL || errno == ENOENT || errno == ENOTDIR ||
				       errno == EACCES
			       ? 0 /* no link, or there is nothing yet */
			       : -errno;
	text[n] = '\0';
	if ((size_t)snprintf(rest, sizeof(rest), "%s/%s", text, r->rest) >= sizeof(rest))
		return -ENAMETOOLONG;
	memcpy(r->rest, rest, sizeof(rest));
	char *slash = strrchr(r->done, '/');
	if (*text == '/')
		r->done[0] = '\0';
	else if (slash)
		*slash = '\0';
	return 1;
}

/* Adds the pattern without links, and the links. */
static int resolve(const char *pattern, struct forge_strv *ret)
{
	struct resolving r = { .done = "" };
	int links = 0;

	if ((size_t)snprintf(r.rest, sizeof(r.rest), "%s", pattern) >= PATH_MAX)
		return -ENAMETOOLONG;
	while (next_name(&r)) {
		char here[PATH_MAX];
		memcpy(here, r.done, sizeof(here));
		int rc = follow(&r);
		if (rc == 1 && ++links > LINKS_MAX)
			rc = -ELOOP;
		if (rc == 1)
			rc = forge_strv_add(ret, here);
		if (rc < 0)
			return rc;
	}
	const char *rest = r.rest + strspn(r.rest, "/");
	int n = (int)strlen(rest);
	while (n > 0 && rest[n - 1] == '/')
		n--;
	return forge_strv_addf(ret, "%s%s%.*s", r.done, r.done[0] && !n ? "" : "/", n,
			       rest);
}

/* ---- sets ---- */

static int fail(struct forge_error *err, int rc, const char *pattern)
{
	return rc == -ENOMEM ? forge_fail(err, ENOMEM, "out of memory")
			     : forge_fail_errno(err, -rc, "guard %s", pattern);
}

/* A link may lead to what the configuration may not name. */
static int check(const char *asked, const char *path, const struct forge_guard_own *own,
		 struct forge_error *err)
{
	if (strcmp(path, "/") == 0 || (own->workdir && !strpbrk(path, "*?") &&
				       forge_path_is_below(own->workdir, path)))
		return forge_fail(err, EINVAL,
				  "guard %s: it leads to %s, where forge "
				  "works",
				  asked, path);
	return 0;
}

static int add_guarded(struct forge_guard_set *s, struct forge_guard_part *part,
		       const char *pattern, const struct forge_guard_own *own,
		       struct forge_error *err)
{
	forge_auto_strv struct forge_strv found = { 0 };
	int rc = resolve(pattern, &found);

	if (rc < 0)
		return fail(err, rc, pattern);
	forge_strv_foreach (path, &found) {
		rc = check(pattern, path, own, err);
		if (rc < 0)
			return rc;
		rc = forge_strv_add(&part->patterns, path);
		if (rc == 0)
			rc = add_top(&s->tops, path);
		if (rc < 0)
			return fail(err, rc, pattern);
	}
	return 0;
}

/* A link that leads to something that is excluded is not excluded itself. */
static int add_excluded(struct forge_strv *list, const char *pattern,
			struct forge_error *err)
{
	forge_auto_strv struct forge_strv found = { 0 };
	int rc = resolve(pattern, &found);

	if (rc == 0)
		rc = forge_strv_add(list, found.v[found.n - 1]);
	return rc < 0 ? fail(err, rc, pattern) : 0;
}

/* Workdirs, if a pattern can match files in them: the template with a star for each {name}. */
static int exclude_workdirs(struct forge_guard_set *s, const struct forge_guard_own *own,
			    struct forge_error *err)
{
	char pattern[PATH_MAX];
	size_t n = 0;
	bool is_near = false;

	for (const char *p = own->workdirs; p && *p && n + 1 < sizeof(pattern); p++) {
		pattern[n++] = *p == '{' ? '*' : *p;
		if (*p == '{')
			p += strcspn(p, "}");
		if (!*p)
			break;
	}
	pattern[n] = '\0';
	forge_strv_foreach (top, &s->tops) {
		forge_auto_free char *around = n ? forge_glob_fixed_part(pattern) : NULL;
		is_near |= around && forge_path_is_below(around, top);
		is_near |= own->workdir && forge_path_is_below(own->workdir, top);
	}
	int rc = is_near && n ? add_excluded(&s->own, pattern, err) : 0;
	return rc == 0 && is_near && own->workdir
		       ? add_excluded(&s->own, own->workdir, err)
		       : rc;
}

static int add_check(struct forge_guard_set *s, const struct forge_check_decl *d,
		     const struct forge_guard_own *own, struct forge_error *err)
{
	struct forge_guard_part *part = add_part(s);
	int rc = part ? 0 : forge_fail(err, ENOMEM, "out of memory");

	if (part)
		part->is_severe = !d->severity || strcmp(d->severity, "block") == 0;
	s->is_hashed |= d->is_hashed;
	forge_strv_foreach (pattern, &d->paths)
		if (rc == 0)
			rc = add_guarded(s, part, pattern, own, err);
	forge_strv_foreach (pattern, &d->exclude)
		if (rc == 0)
			rc = add_excluded(&part->exclude, pattern, err);
	return rc;
}

int forge_guard_set_make(const struct forge_health_config *h,
			 const struct forge_guard_own *own, struct forge_guard_set *ret,
			 struct forge_error *err)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };
	int rc = add_excluded(&s.own, own->home, err);

	for (size_t i = 0; i < h->n_checks && rc == 0; i++)
		if (strcmp(h->checks[i].kind, "files") == 0 && h->checks[i].paths.n > 0 &&
		    h->mode != FORGE_GUARD_OFF)
			rc = add_check(&s, &h->checks[i], own, err);
	if (rc == 0)
		rc = exclude_workdirs(&s, own, err);
	if (rc < 0)
		return rc;
	*ret = s;
	s = (struct forge_guard_set){ 0 };
	return 0;
}

json_t *forge_guard_set_json(const struct forge_guard_set *s)
{
	json_t *parts = json_array();

	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(parts,
				      json_pack("{s:o, s:o, s:b}", "patterns",
						forge_json_names(&s->parts[i].patterns),
						"exclude",
						forge_json_names(&s->parts[i].exclude),
						"severe", s->parts[i].is_severe));
	return json_pack("{s:o, s:o, s:b}", "parts", parts, "own",
			 forge_json_names(&s->own), "hashed", s->is_hashed);
}

static int parse_names(const json_t *j, const char *key, struct forge_strv *ret)
{
	int rc = forge_json_names_decode(j, key, ret);

	forge_strv_foreach (pattern, ret)
		if (rc == 0 && *pattern != '/')
			rc = -EINVAL;
	return rc;
}

int forge_guard_set_parse(const json_t *j, struct forge_guard_set *ret)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };
	int rc = parse_names(j, "own", &s.own);
	size_t i;
	const json_t *one;

	json_array_foreach (json_object_get(j, "parts"), i, one) {
		struct forge_guard_part *part = rc == 0 ? add_part(&s) : NULL;
		if (!part)
			return rc < 0 ? rc : -ENOMEM;
		part->is_severe = json_is_true(json_object_get(one, "severe"));
		rc = parse_names(one, "patterns", &part->patterns);
		if (rc == 0)
			rc = parse_names(one, "exclude", &part->exclude);
		forge_strv_foreach (pattern, &part->patterns)
			if (rc == 0)
				rc = add_top(&s.tops, pattern);
	}
	s.is_hashed = json_is_true(json_object_get(j, "hashed"));
	if (rc == 0) {
		*ret = s;
		s = (struct forge_guard_set){ 0 };
	}
	return rc;
}

/* ---- questions ---- */

static bool matches(const struct forge_strv *patterns, const char *path)
{
	forge_strv_foreach (pattern, patterns)
		if (forge_glob_match(pattern + 1, path + 1))
			return true;
	return false;
}

static bool reaches(const struct forge_strv *patterns, const char *dir)
{
	forge_strv_foreach (pattern, patterns)
		if (forge_pattern_reaches(pattern, dir))
			return true;
	return false;
}

static bool part_has(const struct forge_guard_part *p, const char *path)
{
	return matches(&p->patterns, path) && !matches(&p->exclude, path);
}

bool forge_guard_has(const struct forge_guard_set *s, const char *path)
{
	for (size_t i = 0; i < s->n && *path == '/'; i++)
		if (part_has(&s->parts[i], path))
			return !matches(&s->own, path);
	return false;
}

bool forge_guard_has_all(const struct forge_guard_set *s, const char *dir)
{
	for (size_t i = 0; i < s->n; i++)
		if (part_has(&s->parts[i], dir) && !reaches(&s->parts[i].exclude, dir))
			return !reaches(&s->own, dir);
	return false;
}

/* A directory above guarded files need not be guarded itself, but moves them. */
bool forge_guard_is_severe(const struct forge_guard_set *s, const char *path)
{
	bool is_guarded = forge_guard_has(s, path);

	for (size_t i = 0; i < s->n; i++)
		if (s->parts[i].is_severe &&
		    (is_guarded ? part_has(&s->parts[i], path)
				: reaches(&s->parts[i].patterns, path)))
			return true;
	return false;
}

bool forge_guard_may_move(const struct forge_guard_set *s, const char *dir)
{
	if (matches(&s->own, dir))
		return false;
	for (size_t i = 0; i < s->n; i++)
		if (reaches(&s->parts[i].patterns, dir) &&
		    !matches(&s->parts[i].exclude, dir))
			return true;
	return false;
}

bool forge_guard_is_worked_in(const struct forge_guard_set *s, const char *dir)
{
	/* FORGE_HOME, the first, is there before a run and after it. */
	for (size_t i = 1; i < s->own.n; i++) {
		forge_auto_free char *fixed = forge_glob_fixed_part(s->own.v[i]);
		char *slash =
			fixed && !strpbrk(s->own.v[i], "*?") ? strrchr(fixed, '/') : NULL;
		if (slash)
			slash[slash == fixed] = '\0';
		if (!fixed || (forge_path_is_below(dir, fixed) &&
			       forge_pattern_reaches(s->own.v[i], dir)))
			return true;
	}
	return false;
}

/* Part by part: as many parts of the pattern as the directory has must match it. */
bool forge_pattern_reaches(const char *pattern, const char *dir)
{
	const char *p = pattern, *d = dir;

	while (*p == '/' && *d == '/' && d[1]) {
		size_t pn = strcspn(++p, "/"), dn = strcspn(++d, "/");
		char part[PATH_MAX], name[PATH_MAX];
		if (pn == 2 && strncmp(p, "**", 2) == 0)
			return true;
		if (pn >= sizeof(part) || dn >= sizeof(name))
			return false;
		memcpy(part, p, pn);
		memcpy(name, d, dn);
		part[pn] = name[dn] = '\0';
		if (!forge_glob_match(part, name))
			return false;
		p += pn;
		d += dn;
	}
	/* A pattern that ends before is a directory above. */
	return !*d || !d[1] || !*p;
}

bool forge_guard_is_above(const struct forge_guard_set *s, const char *path)
{
	forge_strv_foreach (top, &s->tops)
		if (forge_path_is_below(top, path))
			return true;
	return false;
}
