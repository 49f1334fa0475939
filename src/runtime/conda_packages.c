/* SPDX-License-Identifier: Apache-2.0 */
/* conda-meta and dist-info: packages, and locks in conda's own form. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/sha256.h"
#include "runtime/conda.h"

/* Packages with tens of thousands of files have records of some megabytes. */
#define META_MAX    (32u << 20)
#define RECORDS_MAX 20000
#define INFO_MAX    (4u << 20)
#define RECORD_MAX  (64u << 20) /* of a Python distribution: a line for each file */
#define DEPTH_MAX   1000

/* A line break in a name would make another line in the lock. */
static bool is_plain(const json_t *meta)
{
	static const char *const keys[] = { "name",   "version", "build", "md5",
					    "sha256", "url",	 "fn",	  "subdir" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(keys); i++)
		for (const char *p = forge_json_string_or(meta, keys[i], ""); *p; p++)
			if ((unsigned char)*p < ' ' || *p == 0x7f)
				return false;
	return true;
}

/* Loads one package record. A damaged one is an error, because its content is unknown. */
static int load_meta(int dir, const char *place, const char *name, json_t **ret,
		     struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len;
	int rc = forge_read_regular(dir, name, META_MAX, &text, &len);
	/* Not json_loadfd(): it reads byte by byte. */
	json_t *meta = rc < 0 ? NULL : json_loadb(text, len, 0, NULL);

	if (json_is_object(meta) && *forge_json_string_or(meta, "name", "") &&
	    is_plain(meta)) {
		*ret = meta;
		return 0;
	}
	json_decref(meta);
	return forge_hint(err,
			  forge_fail(err, EUCLEAN, "%s/%s is damaged%s%s", place, name,
				     rc < 0 ? ": " : "",
				     rc < 0 ? forge_regular_problem(rc) : ""),
			  "Install that package anew, or the environment");
}

static bool is_record(const char *name)
{
	size_t len = strlen(name);

	return name[0] != '.' && len > 5 && strcmp(name + len - 5, ".json") == 0;
}

/* Calls visit for every package record. */
static int each_record(const char *prefix, int (*visit)(const json_t *meta, void *arg),
		       void *arg, struct forge_error *err)
{
	char path[PATH_MAX];
	size_t n = 0;
	int rc = 0;

	(void)snprintf(path, sizeof(path), "%s/conda-meta", prefix);
	forge_auto_close int top = open(prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = top < 0 ? -errno
			 : forge_open_beneath(top, "conda-meta", O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return forge_fail(err, -fd, "read %s: %s", path,
				  forge_regular_problem(fd));
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	(void)forge_entries_take(&d, fd); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		json_t *meta = NULL;
		if (!is_record(name))
			continue;
		if (++n > RECORDS_MAX)
			return forge_fail(err, EFBIG, "%s has more than %d packages",
					  path, RECORDS_MAX);
		rc = load_meta(forge_entries_fd(&d), path, name, &meta, err);
		if (rc == 0 && visit(meta, arg) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
		json_decref(meta);
	}
	if (d.error)
		return forge_fail_errno(err, -d.error, "read %s", path);
	return rc;
}

static int add_conda(const json_t *meta, void *arg)
{
	const char *sha = forge_json_string_or(meta, "sha256", ""),
		   *md5 = forge_json_string_or(meta, "md5", "");
	forge_auto_free char *hash = *sha   ? forge_asprintf("sha256:%s", sha)
				     : *md5 ? forge_asprintf("md5:%s", md5)
					    : strdup("");

	return hash ? forge_packages_add(arg, "conda",
					 forge_json_string_or(meta, "name", ""),
					 forge_json_string_or(meta, "version", ""),
					 forge_json_string_or(meta, "build", ""), hash,
					 forge_json_string_or(meta, "url", ""))
		    : -ENOMEM;
}

/* Notes the names of the info directories by which Python finds what this package has installed. */
static int claim(const json_t *meta, void *arg)
{
	struct forge_strv *claimed = arg;
	size_t i;
	const json_t *file;

	json_array_foreach (json_object_get(meta, "files"), i, file) {
		const char *path = json_string_value(file);
		const char *end = path ? strstr(path, "-info") : NULL;
		if (!end || (end[5] && end[5] != '/') || end - path < 5)
			continue;
		const char *name = end;
		while (name > path && name[-1] != '/')
			name--;
		forge_auto_free char *dir = strndup(name, (size_t)(end + 5 - name));
		if (!dir)
			return -ENOMEM;
		if (claimed->n && strcmp(claimed->v[claimed->n - 1], dir) == 0)
			continue;
		if (forge_strv_add(claimed, dir) < 0)
			return -ENOMEM;
	}
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool has_name(const struct forge_strv *sorted, const char *name)
{
	return sorted && sorted->n &&
	       bsearch(&name, sorted->v, sorted->n, sizeof(char *), by_text);
}

static void sort_names(struct forge_strv *sv)
{
	if (sv->n)
		qsort(sv->v, sv->n, sizeof(char *), by_text);
}

/* ---- Python distributions ---- */

/* Finds "Key: value" in the head of METADATA or PKG-INFO. */
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

/* Did conda install this? conda-meta must say so too, because any package can write INSTALLER. */
static bool is_condas(int site, const char *dir, const struct forge_strv *claimed)
{
	char path[NAME_MAX + 32];
	forge_auto_free char *text = NULL;
	size_t len;

	(void)snprintf(path, sizeof(path), "%s/INSTALLER", dir);
	return has_name(claimed, dir) &&
	       forge_read_regular(site, path, INFO_MAX, &text, &len) == 0 &&
	       strncmp(text, "conda", 5) == 0;
}

/* RECORD has the hash of every installed file; the files themselves are not read. */
static int hash_record(int site, const char *dir, char digest[FORGE_DIGEST_MAX])
{
	char path[NAME_MAX + 32];
	uint64_t size;

	(void)snprintf(path, sizeof(path), "%s/RECORD", dir);
	forge_auto_close int fd = forge_open_regular(site, path, RECORD_MAX, &size);
	return fd < 0 ? fd : forge_sha256_fd(fd, -1, digest, &size);
}

/* An egg-info may be a file and has no RECORD; a RECORD that cannot be read is a failure. */
static int add_distribution(int site, const char *dir, const char *info,
			    const struct forge_strv *claimed, struct forge_packages *ret,
			    struct forge_error *err)
{
	char path[NAME_MAX + 32], name[256] = "", version[128] = "";
	char digest[FORGE_DIGEST_MAX] = "";
	forge_auto_free char *text = NULL;
	size_t len;

	if (is_condas(site, dir, claimed))
		return 0;
	(void)snprintf(path, sizeof(path), "%s%s%s", dir, *info ? "/" : "", info);
	if (forge_read_regular(site, path, INFO_MAX, &text, &len) == 0) {
		head_value(text, "Name", name, sizeof(name));
		head_value(text, "Version", version, sizeof(version));
	}
	int rc = hash_record(site, dir, digest);
	if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR)
		return forge_fail(err, EUCLEAN, "%s/RECORD is damaged: %s", dir,
				  forge_regular_problem(rc));
	if (rc < 0)
		digest[0] = '\0';
	return forge_packages_add(ret, "pip", *name ? name : dir, version, "", digest,
				  "") < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int add_entry(int site, const char *name, const struct forge_strv *claimed,
		     struct forge_packages *ret, struct forge_error *err)
{
	struct stat st;

	if (ends_with(name, ".dist-info"))
		return add_distribution(site, name, "METADATA", claimed, ret, err);
	if (!ends_with(name, ".egg-info") || fstatat(site, name, &st, 0) < 0)
		return 0;
	return add_distribution(site, name, S_ISDIR(st.st_mode) ? "PKG-INFO" : "",
				claimed, ret, err);
}

static int add_site(int site, const struct forge_strv *claimed,
		    struct forge_packages *ret, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	(void)forge_entries_open(&d, site, "."); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		if (ret->n > RECORDS_MAX)
			return forge_fail(err, EFBIG, "more than %d packages",
					  RECORDS_MAX);
		rc = add_entry(site, name, claimed, ret, err);
	}
	if (d.error)
		return forge_fail_errno(err, -d.error, "read site-packages");
	return rc;
}

/* claimed: sorted names of the info directories in conda-meta, or NULL. */
static int add_sites(const char *prefix, const struct forge_strv *claimed,
		     struct forge_packages *ret, struct forge_error *err)
{
	char path[NAME_MAX + 32];
	forge_auto_close int top = open(prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd =
		top < 0 ? -errno : forge_open_beneath(top, "lib", O_RDONLY | O_DIRECTORY);
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int rc = 0;

	/*
	 * An absent lib is as good as one without a Python; a link that leads out of the prefix
	 * is ignored.
	 */
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -EXDEV || fd == -ELOOP)
		return 0;
	if (fd < 0)
		return forge_fail_errno(err, -fd, "read %s/lib", prefix);
	(void)forge_entries_take(&d, fd); /* d keeps the error */
	for (const char *name; rc == 0 && (name = forge_entries_next(&d));) {
		struct stat st;
		if (strncmp(name, "python", 6) != 0 ||
		    fstatat(forge_entries_fd(&d), name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode)) /* python3.1 -> python3.11 */
			continue;
		(void)snprintf(path, sizeof(path), "lib/%s/site-packages", name);
		forge_auto_close int site =
			forge_open_beneath(top, path, O_RDONLY | O_DIRECTORY);
		if (site >= 0)
			rc = add_site(site, claimed, ret, err);
	}
	if (d.error)
		return forge_fail_errno(err, -d.error, "read %s/lib", prefix);
	return rc;
}

int forge_pip_prefix(const char *prefix, struct forge_packages *ret,
		     struct forge_error *err)
{
	return add_sites(prefix, NULL, ret, err);
}

struct both {
	struct forge_packages *packages;
	struct forge_strv claimed;
};

static int add_and_claim(const json_t *meta, void *arg)
{
	struct both *b = arg;

	return add_conda(meta, b->packages) < 0 || claim(meta, &b->claimed) < 0 ? -ENOMEM
										: 0;
}

int forge_conda_packages(const char *prefix, struct forge_packages *ret,
			 struct forge_error *err)
{
	struct both b = { .packages = ret };
	int rc = each_record(prefix, add_and_claim, &b, err);

	sort_names(&b.claimed);
	if (rc == 0)
		rc = add_sites(prefix, &b.claimed, ret, err);
	forge_strv_done(&b.claimed);
	return rc;
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
	/* The array doubles at every power of two. */
	if ((g->n & (g->n - 1)) == 0) {
		struct node *grown =
			reallocarray(g->v, g->n ? 2 * g->n : 1, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		g->v = grown;
	}
	g->v[g->n++] = (struct node){ .meta = json_incref((json_t *)meta) };
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(forge_json_string_or(((const struct node *)a)->meta, "name", ""),
		      forge_json_string_or(((const struct node *)b)->meta, "name", ""));
}

static int by_key(const void *key, const void *node)
{
	return strcmp(
		key, forge_json_string_or(((const struct node *)node)->meta, "name", ""));
}

static struct node *find(struct graph *g, const char *name, size_t len)
{
	forge_auto_free char *key = strndup(name, len);

	return key ? bsearch(key, g->v, g->n, sizeof(*g->v), by_key) : NULL;
}

/* Leaves out a user name and a token, which a channel's URL may contain and which are secret. */
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

/*
 * Prints a package after its dependencies. It is marked first, so that cycles end. A chain that
 * is longer than any real one is cut.
 */
static void emit(struct graph *g, struct node *n, unsigned depth)
{
	size_t i;
	const json_t *spec;

	if (n->is_done || depth > DEPTH_MAX)
		return;
	n->is_done = true;
	json_array_foreach (json_object_get(n->meta, "depends"), i, spec) {
		const char *s = json_string_value(spec);
		struct node *dep = s ? find(g, s, strcspn(s, " =<>!~[;")) : NULL;
		if (dep)
			emit(g, dep, depth + 1);
	}
	const char *url = forge_json_string_or(n->meta, "url", ""),
		   *md5 = forge_json_string_or(n->meta, "md5", "");
	if (!*url) {
		fprintf(g->out, "# no URL for: %s\n",
			forge_json_string_or(n->meta, "fn", ""));
		return;
	}
	print_url(g->out, url);
	fprintf(g->out, "%s%s\n", *md5 ? "#" : "", md5);
}

static void print_pip(const char *prefix, FILE *out)
{
	forge_auto_strv struct forge_strv claimed = { 0 };
	struct forge_packages p = { .v = NULL };

	if (each_record(prefix, claim, &claimed, NULL) < 0)
		return; /* the digest fails for the same reason and reports it */
	sort_names(&claimed);
	if (add_sites(prefix, &claimed, &p, NULL) == 0) {
		forge_packages_sort(&p);
		for (size_t i = 0; i < p.n; i++)
			fprintf(out, "# pip: %s==%s %s\n", p.v[i].name, p.v[i].version,
				p.v[i].hash);
	}
	forge_packages_done(&p);
}

/* The platform of the first package that has one; all may be "noarch". */
static const char *platform_of(const struct graph *g)
{
	for (size_t i = 0; i < g->n; i++) {
		const char *subdir = forge_json_string_or(g->v[i].meta, "subdir", "");
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
		if (g.n)
			qsort(g.v, g.n, sizeof(*g.v), by_name);
		fputs("# This file may be used to create an environment using:\n"
		      "# $ conda create --name <env> --file <this file>\n",
		      out);
		fprintf(out, "# platform: %s\n# forge digest: %s\n", platform_of(&g),
			forge_packages_digest(&p, digest));
		fputs("@EXPLICIT\n", out);
		for (size_t i = 0; i < g.n; i++)
			emit(&g, &g.v[i], 0);
		print_pip(prefix, out);
	}
	for (size_t i = 0; i < g.n; i++)
		json_decref(g.v[i].meta);
	free(g.v);
	forge_packages_done(&p);
	return rc;
}
