/* SPDX-License-Identifier: Apache-2.0 */
/* Computes and caches the identity of a runtime; loads and saves its health. */

#include "run/runtime_identity.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "runtime/dpkg.h"
#include "state/objects.h"

/* To be changed with the computation of the identity: it invalidates the cache. */
#define IDENTITY_VERSION "3"
/* A few ticks of the clock that sets the times of files. */
#define FRESH_SECONDS 0.05
/* A tree without a package manager has a row for each file. */
#define PACKAGES_MAX	  (16u << 20)
#define PACKAGES_FILE_MAX (FORGE_DIGEST_MAX + 16)

void forge_runtime_state_done(struct forge_runtime_state *s)
{
	json_decref(s->versions);
	*s = (struct forge_runtime_state){ .health = FORGE_UNCHECKED };
}

/* ---- the digest and its cache ---- */

static void add_text(struct forge_sha256 *h, const char *text)
{
	forge_sha256_add(h, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_list(struct forge_sha256 *h, const struct forge_strv *list)
{
	forge_strv_foreach (s, list)
		add_text(h, s);
	add_text(h, NULL);
}

/* A probe of another declaration is not valid for this one. */
static void add_declaration(struct forge_sha256 *h, const struct forge_runtime_decl *d)
{
	add_text(h, d->kind);
	add_text(h, d->prefix);
	add_text(h, d->smoke);
	add_list(h, &d->commands);
	add_list(h, &d->python);
	add_list(h, &d->r);
	add_list(h, &d->libraries);
	add_list(h, &d->env);
	/* Only of kind image: the digests of other runtimes stay what they were. */
	if (d->image) {
		add_text(h, d->image);
		add_text(h, d->executor);
	}
}

/* The attributes of the content's files, and the time of their last change. */
struct fingerprint {
	struct forge_sha256 h;
	struct timespec newest;
};

static void add_attributes(struct fingerprint *p, const char *name, const struct stat *st)
{
	char text[200];

	(void)snprintf(text, sizeof(text),
		       "%" PRIu64 " %" PRIu64 " %lld %lld.%09ld %lld.%09ld",
		       (uint64_t)st->st_dev, (uint64_t)st->st_ino, (long long)st->st_size,
		       (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
		       (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
	add_text(&p->h, name);
	add_text(&p->h, text);
	if (st->st_ctim.tv_sec > p->newest.tv_sec ||
	    (st->st_ctim.tv_sec == p->newest.tv_sec &&
	     st->st_ctim.tv_nsec > p->newest.tv_nsec))
		p->newest = st->st_ctim;
}

/* flags: AT_SYMLINK_NOFOLLOW, or 0 for the target of a link. */
static bool add_stat(struct fingerprint *p, int dir, const char *name, int flags)
{
	struct stat st;

	if (fstatat(dir, name, &st, flags) < 0) {
		add_text(&p->h, name);
		return false;
	}
	add_attributes(p, name, &st);
	return S_ISDIR(st.st_mode);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static bool is_relevant(const char *name)
{
	return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
	       strcmp(name, "__pycache__") != 0;
}

/* Adds all entries of a directory, down to depth. inner: also this file in each. */
static void add_dir(struct fingerprint *p, int dir, const char *name, unsigned depth,
		    const char *inner)
{
	struct dirent **list = NULL;
	forge_auto_close int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int n = fd < 0 ? -1 : scandirat(fd, ".", &list, NULL, by_name);

	(void)add_stat(p, dir, name, AT_SYMLINK_NOFOLLOW);
	for (int i = 0; i < n; i++) {
		const char *entry = list[i]->d_name;
		char path[NAME_MAX + 32];
		bool is_dir =
			is_relevant(entry) && add_stat(p, fd, entry, AT_SYMLINK_NOFOLLOW);
		if (is_dir && depth > 0)
			add_dir(p, fd, entry, depth - 1, NULL);
		if (is_dir && inner) {
			(void)snprintf(path, sizeof(path), "%s/%s", entry, inner);
			(void)add_stat(p, fd, path, AT_SYMLINK_NOFOLLOW);
		}
		free(list[i]);
	}
	free(list);
}

/* ---- by kind: files that change with every installation or removal ---- */

/* Programs and modules of the host; those without a package are added one by one. */
static void add_host(struct fingerprint *p, const struct forge_runtime_decl *d)
{
	static const char *const places[] = {
		"/var/lib/dpkg/status",	   "/usr/bin",
		"/usr/local/bin",	   "/usr/lib/python3/dist-packages",
		"/usr/lib/R/site-library", "/usr/local/lib/R/site-library"
	};
	static const char *const bins[] = { "/usr/local/bin", "/usr/bin", "/bin" };
	forge_auto_strv struct forge_strv files = { 0 };
	char path[PATH_MAX];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(places); i++)
		(void)add_stat(p, AT_FDCWD, places[i], AT_SYMLINK_NOFOLLOW);
	forge_strv_foreach (name, &d->commands)
		for (size_t i = 0; i < FORGE_ARRAY_SIZE(bins); i++) {
			(void)snprintf(path, sizeof(path), "%s/%s", bins[i], name);
			(void)add_stat(p, AT_FDCWD, path, 0);
		}
	forge_strv_foreach (module, &d->python)
		(void)!forge_python_module_file(module,
						&files); /* out of memory: left out */
	forge_strv_foreach (file, &files)
		(void)add_stat(p, AT_FDCWD, file, 0);
	forge_strv_foreach (dir, &d->libraries)
		add_dir(p, AT_FDCWD, dir, 0, "DESCRIPTION");
}

/* Includes the interpreter, which may be outside of the prefix. */
static void add_python(struct fingerprint *p, int top)
{
	forge_auto_close int lib = openat(top, "lib", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent **list = NULL;
	int n = lib < 0 ? -1 : scandirat(lib, ".", &list, NULL, by_name);

	(void)add_stat(p, top, "bin", AT_SYMLINK_NOFOLLOW);
	(void)add_stat(p, top, "bin/python", 0);
	(void)add_stat(p, top, "bin/python3", 0);
	(void)add_stat(p, top, "pyvenv.cfg", AT_SYMLINK_NOFOLLOW);
	for (int i = 0; i < n; i++) {
		char path[NAME_MAX + 32];
		(void)snprintf(path, sizeof(path), "%s/site-packages", list[i]->d_name);
		if (strncmp(list[i]->d_name, "python", 6) == 0)
			add_dir(p, lib, path, 0, "RECORD");
		free(list[i]);
	}
	free(list);
}

/* Without a package database every file is added. */
static void add_rootfs(struct fingerprint *p, int top)
{
	static const char *const trees[] = { "usr", "bin", "sbin", "lib", "lib64" };
	struct stat st;

	(void)add_stat(p, top, "var/lib/dpkg/status", 0);
	if (fstatat(top, "var/lib/dpkg/status", &st, 0) == 0 && st.st_size > 0)
		return;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(trees); i++)
		if (add_stat(p, top, trees[i], AT_SYMLINK_NOFOLLOW))
			add_dir(p, top, trees[i], 64, NULL);
}

static void add_places(struct fingerprint *p, const struct forge_runtime *rt)
{
	add_host(p, rt->decl);
	if (!rt->real_prefix)
		return;
	forge_auto_close int top =
		open(rt->real_prefix, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return;
	/* These have no package manager: every file is added. */
	if (rt->kind == &forge_kind_prefix) {
		add_dir(p, top, ".", 64, NULL);
	} else if (rt->kind == &forge_kind_rootfs) {
		add_rootfs(p, top);
	} else {
		add_dir(p, top, "conda-meta", 0, NULL);
		add_python(p, top);
	}
}

/*
 * *ret_is_fresh: something changed within the last clock ticks, and could change again
 * with the same times.
 */
static void take_fingerprint(const struct forge_runtime *rt, char ret[FORGE_DIGEST_MAX],
			     bool *ret_is_fresh)
{
	struct fingerprint p = { .newest = { 0 } };
	struct timespec now;

	forge_sha256_init(&p.h);
	add_text(&p.h, IDENTITY_VERSION);
	add_declaration(&p.h, rt->decl);
	add_text(&p.h, rt->real_prefix);
	add_places(&p, rt);
	forge_sha256_done(&p.h, ret);
	clock_gettime(CLOCK_REALTIME, &now);
	double age = difftime(now.tv_sec, p.newest.tv_sec) +
		     1e-9 * (double)(now.tv_nsec - p.newest.tv_nsec);
	*ret_is_fresh = age < FRESH_SECONDS && age > -FRESH_SECONDS;
}

/* ---- the packages of a digest ---- */

static const char *packages_file(const char *digest, char buf[PACKAGES_FILE_MAX])
{
	(void)snprintf(buf, PACKAGES_FILE_MAX, "packages-%s", strchr(digest, ':') + 1);
	return buf;
}

/* "1.24.2 py311_0 md5:0f1e2d3c4b5a": whatever makes it another package. */
static json_t *version_of(const struct forge_package *p)
{
	const char *parts[] = { p->version, p->build, p->hash };
	char text[512] = "";
	size_t len = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(parts); i++) {
		/* Twelve digits tell two apart. */
		size_t n = parts[i] == p->hash ? strcspn(p->hash, ":") + 13 : 200;
		if (*parts[i] && len < sizeof(text))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s",
						len ? " " : "", (int)n, parts[i]);
	}
	return forge_json_text(text);
}

/* The list is for people who compare two runs: without it they have the digests. */
static void save_packages(const struct forge_home *home, const struct forge_packages *p,
			  const char *digest)
{
	char file[PACKAGES_FILE_MAX];
	forge_auto_close int dir = forge_home_subdir(home, "runtimes", NULL);
	struct stat st;

	if (dir < 0 || fstatat(dir, packages_file(digest, file), &st, 0) == 0)
		return;
	forge_auto_json json_t *j = json_object();
	for (size_t i = 0; i < p->n; i++) {
		const char *name = p->v[i].name;
		/* One of conda's and one of pip's may have the same name. */
		forge_auto_free char *both =
			json_object_get(j, name)
				? forge_asprintf("%s (%s)", name, p->v[i].source)
				: NULL;
		json_object_set_new(j, both ? both : name, version_of(&p->v[i]));
	}
	forge_auto_free char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
	size_t len = text ? strlen(text) : 0;
	if (len > 0 && len <= PACKAGES_MAX)
		(void)!forge_replace_file(dir, file, text, len, false);
}

json_t *forge_runtime_packages_of(const struct forge_home *home, const char *digest)
{
	char file[PACKAGES_FILE_MAX];
	forge_auto_free char *text = NULL;
	size_t len = 0;

	if (!digest || !forge_objects_is_digest(digest))
		return NULL;
	forge_auto_close int dir = openat(
		home->fd, "runtimes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || forge_read_file(dir, packages_file(digest, file), PACKAGES_MAX,
				       &text, &len) < 0)
		return NULL;
	return json_loadb(text, len, 0, NULL);
}

static int identify(const struct forge_home *home, const struct forge_runtime *rt,
		    char ret[FORGE_DIGEST_MAX], struct forge_error *err)
{
	struct forge_packages p = { .v = NULL };
	int rc = forge_runtime_identify(rt, &p, err);

	if (rc == 0) {
		forge_packages_digest(&p, ret);
		save_packages(home, &p, ret);
	}
	forge_packages_done(&p);
	return rc;
}

/* Retries until the fingerprint is the same before and after: no change in between. */
static int identify_whole(const struct forge_home *home, const struct forge_runtime *rt,
			  char fingerprint[FORGE_DIGEST_MAX], char ret[FORGE_DIGEST_MAX],
			  bool *is_fresh, struct forge_error *err)
{
	char after[FORGE_DIGEST_MAX];

	for (int tries = 0; tries < 5; tries++) {
		int rc = identify(home, rt, ret, err);
		if (rc < 0)
			return rc;
		take_fingerprint(rt, after, is_fresh);
		if (strcmp(fingerprint, after) == 0)
			return 0;
		memcpy(fingerprint, after, FORGE_DIGEST_MAX);
	}
	return forge_hint(
		err,
		forge_fail(err, EBUSY, "runtime %s changes while it is looked at",
			   rt->decl->name),
		"Packages are being installed there; try again when that is done");
}

/* Names in cache/ are "identity-<hex>"; the content is the digest. */
int forge_runtime_digest(const struct forge_home *home, const struct forge_runtime *rt,
			 char ret[FORGE_DIGEST_MAX], struct forge_error *err)
{
	char fingerprint[FORGE_DIGEST_MAX], name[96], text[FORGE_DIGEST_MAX + 1];
	bool is_fresh;

	take_fingerprint(rt, fingerprint, &is_fresh);
	(void)snprintf(name, sizeof(name), "identity-%s", strchr(fingerprint, ':') + 1);
	forge_auto_close int cache = forge_home_subdir(home, "cache", err);
	if (cache < 0)
		return cache;
	if (forge_read_at(cache, name, text, sizeof(text)) == FORGE_DIGEST_MAX - 1) {
		memcpy(ret, text, FORGE_DIGEST_MAX);
		return 0;
	}
	int rc = identify_whole(home, rt, fingerprint, ret, &is_fresh, err);
	if (rc < 0 || is_fresh)
		return rc;
	(void)snprintf(name, sizeof(name), "identity-%s", strchr(fingerprint, ':') + 1);
	(void)!forge_replace_file(cache, name, ret, strlen(ret),
				  false); /* only a cache */
	return 0;
}

/* ---- the result of the last probe ---- */

static void declaration_digest(const struct forge_runtime *rt, char ret[FORGE_DIGEST_MAX])
{
	struct forge_sha256 h;

	forge_sha256_init(&h);
	add_declaration(&h, rt->decl);
	forge_sha256_done(&h, ret);
}

/*
 * The file is named after the runtime. Other characters than those of an id become "%2F"
 * and the like; a name that is too long then becomes its hash.
 */
const char *forge_runtime_file(const struct forge_runtime *rt, const char *ending,
			       char buf[FORGE_RUNTIME_FILE_MAX])
{
	const char *name = rt->decl->name;
	struct forge_sha256 h;
	char digest[FORGE_DIGEST_MAX];
	size_t len = 0;

	for (const char *p = name; *p && len < 200; p++) {
		bool is_plain = isalnum((unsigned char)*p) || strchr("._-", *p);
		len += (size_t)snprintf(buf + len, FORGE_RUNTIME_FILE_MAX - len,
					is_plain ? "%c" : "%%%02X", (unsigned char)*p);
	}
	if (len >= 200) {
		forge_sha256_init(&h);
		add_text(&h, name);
		forge_sha256_done(&h, digest);
		len = (size_t)snprintf(buf, FORGE_RUNTIME_FILE_MAX, "%%%s",
				       strchr(digest, ':') + 1);
	}
	(void)snprintf(buf + len, FORGE_RUNTIME_FILE_MAX - len, "%s", ending);
	return buf;
}

static json_t *load_state(const struct forge_home *home, const struct forge_runtime *rt)
{
	char file[FORGE_RUNTIME_FILE_MAX], text[65536];
	forge_auto_close int dir = forge_home_subdir(home, "runtimes", NULL);

	(void)forge_runtime_file(rt, ".json", file);
	ssize_t n = dir < 0 ? -1 : forge_read_at(dir, file, text, sizeof(text));
	return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

int forge_runtime_state(const struct forge_home *home, const struct forge_runtime *rt,
			struct forge_runtime_state *ret, struct forge_error *err)
{
	char declared[FORGE_DIGEST_MAX];
	struct forge_runtime_state s = { .health = FORGE_UNCHECKED };
	int rc = forge_runtime_digest(home, rt, s.digest, err);

	if (rc < 0)
		return rc;
	declaration_digest(rt, declared);
	json_t *j = load_state(home, rt);
	if (j && strcmp(forge_json_string_or(j, "digest", ""), s.digest) == 0 &&
	    strcmp(forge_json_string_or(j, "declaration", ""), declared) == 0) {
		s.health = strcmp(forge_json_string_or(j, "status", ""), "healthy") == 0
				   ? FORGE_HEALTHY
				   : FORGE_BROKEN;
		(void)snprintf(s.checked_at, sizeof(s.checked_at), "%s",
			       forge_json_string_or(j, "checked_at", ""));
		(void)snprintf(s.probe_run, sizeof(s.probe_run), "%s",
			       forge_json_string_or(j, "probe_run", ""));
		(void)snprintf(s.problem, sizeof(s.problem), "%s",
			       forge_json_string_or(j, "problem", ""));
		s.versions = json_incref(json_object_get(j, "versions"));
		s.checked_unix = json_integer_value(json_object_get(j, "checked_unix"));
		s.is_stored = json_is_true(json_object_get(j, "told"));
	}
	json_decref(j);
	*ret = s;
	return 0;
}

bool forge_runtime_is_known_broken(const struct forge_runtime_state *s)
{
	time_t now = time(NULL);

	return s->health == FORGE_BROKEN && s->checked_unix <= now &&
	       now - s->checked_unix < FORGE_BROKEN_SECONDS;
}

int forge_runtime_save(const struct forge_home *home, const struct forge_runtime *rt,
		       const struct forge_runtime_state *s, struct forge_error *err)
{
	char declared[FORGE_DIGEST_MAX], file[FORGE_RUNTIME_FILE_MAX];

	declaration_digest(rt, declared);
	json_t *j =
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:o, s:O?, s:b}", "name",
			  rt->decl->name, "status",
			  s->health == FORGE_HEALTHY ? "healthy" : "broken", "digest",
			  s->digest, "declaration", declared, "checked_at", s->checked_at,
			  "checked_unix", (json_int_t)s->checked_unix, "probe_run",
			  s->probe_run, "problem", forge_json_text(s->problem),
			  "versions", s->versions, "told", s->is_stored);
	forge_auto_free char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
	json_decref(j);
	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_auto_close int dir = forge_home_subdir(home, "runtimes", err);
	if (dir < 0)
		return dir;
	(void)forge_runtime_file(rt, ".json", file);
	int rc = forge_replace_file(dir, file, text, strlen(text), true);
	return rc < 0 ? forge_fail_errno(err, -rc, "keep the state of runtime %s",
					 rt->decl->name)
		      : 0;
}

json_t *forge_runtime_describe(const struct forge_spec *s,
			       const struct forge_runtime_state *state)
{
	json_t *prefix = s->runtime.prefix ? forge_json_name(s->runtime.prefix) : NULL;
	json_t *j = json_pack("{s:s, s:s, s:o?, s:s, s:s, s:O?}", "name",
			      s->runtime.decl->name, "kind", s->runtime.kind->name,
			      "prefix", prefix, "digest", state->digest, "why",
			      s->runtime_why, "versions", state->versions);

	if (*state->checked_at)
		json_object_set_new(j, "checked_at", json_string(state->checked_at));
	if (*state->probe_run)
		json_object_set_new(j, "probe_run", json_string(state->probe_run));
	return j;
}

const char *forge_runtime_changed(const struct forge_spec *s,
				  const struct forge_home *home,
				  char digest[FORGE_DIGEST_MAX])
{
	const char *before = forge_json_string(s->runtime_json, "digest");

	if (!s->has_runtime || !before ||
	    forge_runtime_digest(home, &s->runtime, digest, NULL) < 0)
		return s->has_runtime && before ? "unknown" : NULL;
	return strcmp(before, digest) == 0 ? NULL : digest;
}
