/* SPDX-License-Identifier: Apache-2.0 */
/* conda-meta and dist-info: packages, and locks in conda's own form. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sha256.h"
#include "runtime/conda.h"

#define META_MAX (64u << 20)

static const char *text_of(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

static json_t *load_meta(int dir, const char *name)
{
	struct stat st;
	forge_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size > META_MAX)
		return NULL;
	/* Not json_loadfd(): it reads byte by byte. */
	forge_auto_free char *text = malloc((size_t)st.st_size + 1);
	ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
	return n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;
}

/* Calls visit for every package record; a damaged one fails, because nothing is known then. */
static int each_record(const char *prefix, int (*visit)(const json_t *meta, void *arg),
		       void *arg, struct forge_error *err)
{
	char path[PATH_MAX];
	int rc = 0;

	(void)snprintf(path, sizeof(path), "%s/conda-meta", prefix);
	forge_auto_dir DIR *d = opendir(path);
	if (!d)
		return forge_fail_errno(err, errno, "read %s", path);
	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		size_t len = strlen(e->d_name);
		if (e->d_name[0] == '.' || len < 6 ||
		    strcmp(e->d_name + len - 5, ".json") != 0)
			continue;
		json_t *meta = load_meta(dirfd(d), e->d_name);
		if (!json_is_object(meta) || !*text_of(meta, "name"))
			rc = forge_hint(err,
					forge_fail(err, EUCLEAN, "%s/%s is damaged", path,
						   e->d_name),
					"Install that package anew, or the environment");
		else if (visit(meta, arg) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
		json_decref(meta);
	}
	return rc;
}

static int add_conda(const json_t *meta, void *arg)
{
	const char *sha = text_of(meta, "sha256"), *md5 = text_of(meta, "md5");
	forge_auto_free char *hash = *sha   ? forge_asprintf("sha256:%s", sha)
				     : *md5 ? forge_asprintf("md5:%s", md5)
					    : strdup("");

	return hash ? forge_packages_add(arg, "conda", text_of(meta, "name"),
					 text_of(meta, "version"), text_of(meta, "build"),
					 hash, text_of(meta, "url"))
		    : -ENOMEM;
}

/* ---- Python distributions ---- */

/* "Key: value" in the head of METADATA or PKG-INFO. */
static void head_value(const char *text, const char *key, char *buf, size_t size)
{
	size_t len = strlen(key);

	for (const char *p = text; p && *p && *p != '\n';
	     p = strchr(p, '\n'), p = p ? p + 1 : p)
		if (strncmp(p, key, len) == 0 && p[len] == ':') {
			const char *v = p + len + 1;
			v += strspn(v, " \t");
			(void)snprintf(buf, size, "%.*s", (int)strcspn(v, "\r\n"), v);
			return;
		}
}

static bool ends_with(const char *s, const char *ending)
{
	size_t n = strlen(s), m = strlen(ending);

	return n > m && strcmp(s + n - m, ending) == 0;
}

static int add_distribution(int site, const char *dir, const char *info,
			    struct forge_packages *ret)
{
	char path[NAME_MAX + 32], text[16384], installer[64] = "", name[256] = "",
					       version[128] = "";
	char digest[FORGE_DIGEST_MAX] = "";
	uint64_t size;

	(void)snprintf(path, sizeof(path), "%s/INSTALLER", dir);
	ssize_t n = forge_read_at(site, path, installer, sizeof(installer));
	/* What conda installed is known by conda-meta. */
	if (n > 0 && strncmp(installer, "conda", 5) == 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%s%s%s", dir, *info ? "/" : "", info);
	if (forge_read_at(site, path, text, sizeof(text)) < 0)
		return forge_strv_addf(&ret->notes, "%s: no %s", dir, info);
	head_value(text, "Name", name, sizeof(name));
	head_value(text, "Version", version, sizeof(version));
	/* RECORD has the hash of every file it installed. */
	(void)snprintf(path, sizeof(path), "%s/RECORD", dir);
	forge_auto_close int fd = openat(site, path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && forge_sha256_fd(fd, -1, digest, &size) < 0)
		digest[0] = '\0';
	return forge_packages_add(ret, "pip", *name ? name : dir, version, "", digest,
				  "");
}

int forge_pip_packages(int site, struct forge_packages *ret, struct forge_error *err)
{
	int fd = openat(site, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	forge_auto_dir DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		return forge_fail_errno(err, errno, "read site-packages");
	for (struct dirent *e; rc == 0 && (e = readdir(d));) {
		struct stat st;
		if (ends_with(e->d_name, ".dist-info"))
			rc = add_distribution(site, e->d_name, "METADATA", ret);
		else if (ends_with(e->d_name, ".egg-info") &&
			 fstatat(site, e->d_name, &st, 0) == 0)
			rc = add_distribution(site, e->d_name,
					      S_ISDIR(st.st_mode) ? "PKG-INFO" : "", ret);
	}
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

int forge_pip_prefix(const char *prefix, struct forge_packages *ret,
		   struct forge_error *err)
{
	char path[PATH_MAX];
	int rc = 0;

	(void)snprintf(path, sizeof(path), "%s/lib", prefix);
	forge_auto_dir DIR *d = opendir(path);
	for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
		struct stat st;
		if (strncmp(e->d_name, "python", 6) != 0 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode)) /* python3.1 -> python3.11 */
			continue;
		(void)snprintf(path, sizeof(path), "%s/lib/%s/site-packages", prefix,
			       e->d_name);
		forge_auto_close int site =
			open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (site >= 0)
			rc = forge_pip_packages(site, ret, err);
	}
	return rc;
}

int forge_conda_packages(const char *prefix, struct forge_packages *ret,
			 struct forge_error *err)
{
	int rc = each_record(prefix, add_conda, ret, err);

	return rc < 0 ? rc : forge_pip_prefix(prefix, ret, err);
}

/* ---- the lock ---- */

struct node {
	json_t *meta;
	bool is_done;
};

struct graph {
	struct node *v; /* sorted by name */
	size_t n;
	FILE *out;
};

static int collect(const json_t *meta, void *arg)
{
	struct graph *g = arg;
	struct node *grown = reallocarray(g->v, g->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	g->v = grown;
	g->v[g->n++] = (struct node){ .meta = json_incref((json_t *)meta) };
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(text_of(((const struct node *)a)->meta, "name"),
		      text_of(((const struct node *)b)->meta, "name"));
}

static struct node *find(struct graph *g, const char *name, size_t len)
{
	for (size_t i = 0; i < g->n; i++) {
		const char *own = text_of(g->v[i].meta, "name");
		if (strlen(own) == len && strncmp(own, name, len) == 0)
			return &g->v[i];
	}
	return NULL;
}

/* A user and a token may stand in a channel's URL; they are nobody else's business. */
static void print_url(FILE *out, const char *url)
{
	const char *host = strstr(url, "://");
	const char *at = host ? strchr(host + 3, '@') : NULL;
	const char *slash = host ? strchr(host + 3, '/') : NULL;

	if (at && slash && at < slash) {
		fprintf(out, "%.*s", (int)(host + 3 - url), url);
		url = at + 1;
	}
	const char *token = strstr(url, "/t/");
	if (token) {
		const char *rest = strchr(token + 3, '/');
		fprintf(out, "%.*s%s", (int)(token - url), url, rest ? rest : "");
		return;
	}
	fputs(url, out);
}

/* What it needs first. Marked before: circles are left as they come. */
static void emit(struct graph *g, struct node *n)
{
	size_t i;
	const json_t *spec;

	if (n->is_done)
		return;
	n->is_done = true;
	json_array_foreach (json_object_get(n->meta, "depends"), i, spec) {
		const char *s = json_string_value(spec);
		struct node *dep = s ? find(g, s, strcspn(s, " =<>!~[;")) : NULL;
		if (dep)
			emit(g, dep);
	}
	const char *url = text_of(n->meta, "url"), *md5 = text_of(n->meta, "md5");
	if (!*url) {
		fprintf(g->out, "# no URL for: %s\n", text_of(n->meta, "fn"));
		return;
	}
	print_url(g->out, url);
	fprintf(g->out, "%s%s\n", *md5 ? "#" : "", md5);
}

static void print_pip(const char *prefix, FILE *out)
{
	struct forge_packages p = { .v = NULL };

	if (forge_pip_prefix(prefix, &p, NULL) == 0) {
		forge_packages_sort(&p);
		for (size_t i = 0; i < p.n; i++)
			fprintf(out, "# pip: %s==%s %s\n", p.v[i].name, p.v[i].version,
				p.v[i].hash);
	}
	forge_packages_done(&p);
}

/* Of the packages that are for one; all may be "noarch". */
static const char *platform_of(const struct graph *g)
{
	for (size_t i = 0; i < g->n; i++) {
		const char *subdir = text_of(g->v[i].meta, "subdir");
		if (*subdir && strcmp(subdir, "noarch") != 0)
			return subdir;
	}
	return "noarch";
}

int forge_conda_lock(const char *prefix, FILE *out, struct forge_error *err)
{
	struct graph g = { .out = out };
	struct forge_packages p = { .v = NULL };
	char digest[FORGE_DIGEST_MAX];
	int rc = each_record(prefix, collect, &g, err);

	if (rc == 0)
		rc = forge_conda_packages(prefix, &p, err);
	if (rc == 0) {
		qsort(g.v, g.n, sizeof(*g.v), by_name);
		fputs("# This file may be used to create an environment using:\n"
		      "# $ conda create --name <env> --file <this file>\n",
		      out);
		fprintf(out, "# platform: %s\n# forge digest: %s\n", platform_of(&g),
			forge_packages_digest(&p, digest));
		fputs("@EXPLICIT\n", out);
		for (size_t i = 0; i < g.n; i++)
			emit(&g, &g.v[i]);
		print_pip(prefix, out);
	}
	for (size_t i = 0; i < g.n; i++)
		json_decref(g.v[i].meta);
	free(g.v);
	forge_packages_done(&p);
	return rc;
}
