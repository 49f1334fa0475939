/* SPDX-License-Identifier: Apache-2.0 */
/* /var/lib/dpkg: status has versions and dependencies, info/NAME.list the files. */
#include "runtime/dpkg.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"

#define DPKG	   "var/lib/dpkg" /* below a root */
#define STATUS_MAX (256u << 20)
/* Between two parts of one installation the database is unchanged for less than this. */
#define STILL_SECONDS 5

/* A package as status has it; strings point into the file's text. */
struct deb {
	const char *name, *version, *depends, *provides;
	size_t name_len, version_len, depends_len, provides_len;
	bool is_wanted;
};

struct database {
	char *text; /* owned */
	size_t len;
	struct deb *debs; /* sorted by name */
	size_t n, cap;
};

static int by_name(const void *a, const void *b)
{
	const struct deb *x = a, *y = b;
	size_t len = x->name_len < y->name_len ? x->name_len : y->name_len;
	int rc = memcmp(x->name, y->name, len);

	return rc ? rc : (x->name_len > y->name_len) - (x->name_len < y->name_len);
}

/* "Key: value" at p? Then value and its length. */
static bool field(const char *p, const char *end, const char *key, const char **ret,
		  size_t *ret_len)
{
	size_t n = strlen(key);

	if ((size_t)(end - p) < n + 2 || memcmp(p, key, n) != 0 || p[n] != ':')
		return false;
	p += n + 1;
	while (p < end && *p == ' ')
		p++;
	*ret = p;
	*ret_len = (size_t)(end - p);
	return true;
}

static int add_deb(struct database *db, const struct deb *d)
{
	if (db->n == db->cap) {
		size_t cap = db->cap ? 2 * db->cap : 1024;
		struct deb *grown = reallocarray(db->debs, cap, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		db->debs = grown;
		db->cap = cap;
	}
	db->debs[db->n++] = *d;
	return 0;
}

/* Parses the paragraphs; only installed packages count. */
static int parse_status(struct database *db)
{
	struct deb d = { .name = NULL };
	bool is_installed = false;
	const char *v;
	size_t n;

	for (const char *p = db->text, *stop = db->text + db->len; p < stop;) {
		const char *end = memchr(p, '\n', (size_t)(stop - p));
		end = end ? end : stop;
		if (field(p, end, "Package", &v, &n)) {
			d.name = v;
			d.name_len = n;
		} else if (field(p, end, "Version", &v, &n)) {
			d.version = v;
			d.version_len = n;
		} else if (field(p, end, "Depends", &v, &n)) {
			d.depends = v;
			d.depends_len = n;
		} else if (field(p, end, "Provides", &v, &n)) {
			d.provides = v;
			d.provides_len = n;
		} else if (field(p, end, "Status", &v, &n)) {
			is_installed =
				n >= 10 && memcmp(v + n - 10, " installed", 10) == 0;
		} else if (end == p) {
			if (is_installed && d.name && d.version && add_deb(db, &d) < 0)
				return -ENOMEM;
			d = (struct deb){ .name = NULL };
			is_installed = false;
		}
		p = end + 1;
	}
	if (is_installed && d.name && d.version && add_deb(db, &d) < 0)
		return -ENOMEM;
	if (db->n)
		qsort(db->debs, db->n, sizeof(*db->debs), by_name);
	return 0;
}

/*
 * Reads the file instead of mapping it: the owner of another system's tree may truncate it
 * meanwhile.
 */
static int open_database(struct database *db, const char *root)
{
	forge_auto_close int top =
		open(*root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc = top < 0 ? -errno
			 : forge_read_regular(top, DPKG "/status", STATUS_MAX, &db->text,
					      &db->len);

	if (rc == -ENOENT || rc == -ENOTDIR || (rc == 0 && db->len == 0))
		return -ENOENT;
	return rc < 0 ? rc : parse_status(db);
}

static void close_database(struct database *db)
{
	free(db->text);
	free(db->debs);
}

static struct deb *find_deb(const struct database *db, const char *name, size_t len)
{
	struct deb key = { .name = name, .name_len = len };

	return db->n ? bsearch(&key, db->debs, db->n, sizeof(key), by_name) : NULL;
}

/* Whether a "Provides" list has this name. */
static bool provides(const struct deb *d, const char *name, size_t len)
{
	for (const char *p = d->provides, *end = p + d->provides_len; p && p < end;) {
		size_t n = 0;
		while (p + n < end && !strchr(" ,(", p[n]))
			n++;
		if (n == len && memcmp(p, name, len) == 0)
			return true;
		while (p < end && *p != ',')
			p++;
		while (p < end && (*p == ',' || *p == ' '))
			p++;
	}
	return false;
}

static void want(struct database *db, struct deb *d);

/* Of alternatives, marks all that are installed: one of them is in use. */
static void want_name(struct database *db, const char *name, size_t len)
{
	struct deb *d = find_deb(db, name, len);

	if (d) {
		want(db, d);
		return;
	}
	for (size_t i = 0; i < db->n; i++)
		if (provides(&db->debs[i], name, len))
			want(db, &db->debs[i]);
}

static void want(struct database *db, struct deb *d)
{
	if (d->is_wanted)
		return;
	d->is_wanted = true;
	for (const char *p = d->depends, *end = p + d->depends_len; p && p < end;) {
		size_t n = 0;
		while (p + n < end && !strchr(" ,|(:", p[n]))
			n++;
		if (n)
			want_name(db, p, n);
		while (p < end && *p != ',' && *p != '|')
			p++;
		while (p < end && strchr(",| ", *p))
			p++;
	}
}

/* ---- which package owns a file ---- */

/* Looks for the files' lines in one list; lists are small and read whole. */
static bool list_has(int dir, const char *name, const struct forge_strv *files,
		     bool *found)
{
	struct stat st;
	bool any = false;
	forge_auto_close int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < 4)
		return false;
	const char *text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (text == MAP_FAILED)
		return false;
	for (size_t i = 0; i < files->n; i++) {
		size_t len = strlen(files->v[i]);
		const char *p = text, *end = text + st.st_size;
		while (p && (size_t)(end - p) > len) {
			p = memmem(p, (size_t)(end - p), files->v[i], len);
			if (p && (p == text || p[-1] == '\n') && p + len < end &&
			    p[len] == '\n') {
				found[i] = any = true;
				break;
			}
			p = p ? p + 1 : NULL;
		}
	}
	(void)munmap((void *)text, (size_t)st.st_size);
	return any;
}

/* Debian 12 moved /bin into /usr; dpkg's lists have both spellings. */
static int add_spellings(const struct forge_strv *files, struct forge_strv *ret)
{
	int rc = 0;

	forge_strv_foreach (f, files) {
		bool is_usr = strncmp(f, "/usr/", 5) == 0;
		if (rc == 0)
			rc = forge_strv_add(ret, f);
		if (rc == 0)
			rc = forge_strv_addf(ret, "%s%s", is_usr ? "" : "/usr",
					     is_usr ? f + 4 : f);
	}
	return rc;
}

/* -ENOENT: this host has no such database. */
static int want_owners(struct database *db, const struct forge_strv *spellings,
		       bool *found)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_follow(&d, "/" DPKG "/info"); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		size_t len = strlen(name);
		if (len < 6 || strcmp(name + len - 5, ".list") != 0 ||
		    !list_has(forge_entries_fd(&d), name, spellings, found))
			continue;
		struct deb *deb = find_deb(db, name, strcspn(name, ":"));
		if (!deb)
			deb = find_deb(db, name, len - 5);
		if (deb)
			want(db, deb);
	}
	return d.error;
}

static int add_file(const char *path, struct forge_packages *ret)
{
	char digest[FORGE_DIGEST_MAX];
	uint64_t size;
	forge_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int rc = fd < 0 ? -errno : forge_sha256_fd(fd, -1, digest, &size);
	const char *name = strrchr(path, '/') + 1;

	if (rc < 0)
		return forge_strv_addf(&ret->notes, "%s: %s", path, strerror(-rc));
	return forge_packages_add(ret, "file", name, "", "", digest, "");
}

static int add_wanted(const struct database *db, struct forge_packages *ret)
{
	int rc = 0;

	for (size_t i = 0; i < db->n && rc == 0; i++) {
		const struct deb *d = &db->debs[i];
		if (!d->is_wanted)
			continue;
		forge_auto_free char *name = strndup(d->name, d->name_len);
		forge_auto_free char *version = strndup(d->version, d->version_len);
		rc = name && version
			     ? forge_packages_add(ret, "deb", name, version, "", "", "")
			     : -ENOMEM;
	}
	return rc;
}

int forge_dpkg_installed(const char *root, struct forge_packages *ret,
			 struct forge_error *err)
{
	struct database db = { .text = NULL };
	int rc = open_database(&db, root);

	for (size_t i = 0; i < db.n; i++)
		db.debs[i].is_wanted = true;
	if (rc == 0)
		rc = add_wanted(&db, ret);
	close_database(&db);
	if (rc == -ENOENT)
		return rc;
	return rc < 0 ? forge_fail_errno(err, -rc, "read the package database") : 0;
}

static int add_results(struct database *db, const struct forge_strv *files,
		       const bool *found, struct forge_packages *ret)
{
	int rc = add_wanted(db, ret);

	for (size_t i = 0; i < files->n && rc == 0; i++)
		if (!found[2 * i] && !found[2 * i + 1])
			rc = add_file(files->v[i], ret);
	return rc;
}

int forge_dpkg_packages(const struct forge_strv *files, struct forge_packages *ret,
			struct forge_error *err)
{
	forge_auto_strv struct forge_strv spellings = { 0 };
	struct database db = { .text = NULL };
	forge_auto_free bool *found = calloc(2 * files->n + 1, sizeof(bool));
	int rc = found ? add_spellings(files, &spellings) : -ENOMEM;

	if (rc == 0) {
		rc = open_database(&db, "");
		rc = rc == -ENOENT ? 0 : rc;
	}
	if (rc == 0 && db.n) {
		rc = want_owners(&db, &spellings, found);
		rc = rc == -ENOENT ? 0 : rc;
	}
	if (rc == 0)
		rc = add_results(&db, files, found, ret);
	close_database(&db);
	return rc < 0 ? forge_fail_errno(err, -rc, "read the package database") : 0;
}

/* Is a lock of fcntl(2) held on the file? -errno when we may not open it. */
static int is_locked(const char *path)
{
	forge_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	if (fd < 0 || fcntl(fd, F_GETLK, &lock) < 0)
		return -errno;
	return lock.l_type != F_UNLCK;
}

bool forge_dpkg_is_busy(void)
{
	/* apt holds the first lock for a whole installation, dpkg the second for each part. */
	int frontend = is_locked("/" DPKG "/lock-frontend"),
	    self = is_locked("/" DPKG "/lock");
	struct stat st;

	if (frontend != -EACCES || self != -EACCES)
		return frontend > 0 || self > 0;
	if (stat("/" DPKG "/status", &st) < 0)
		return false;
	time_t age = time(NULL) - st.st_mtim.tv_sec;
	return age >= 0 && age < STILL_SECONDS;
}

uint64_t forge_dpkg_stamp(void)
{
	struct stat st;

	if (stat("/" DPKG "/status", &st) < 0)
		return 0;
	/*
	 * dpkg replaces the file, so its inode changes; a file written in place gets another
	 * time.
	 */
	return ((uint64_t)st.st_ino << 32) ^ (uint64_t)st.st_mtim.tv_sec * 1000000000 ^
	       (uint64_t)st.st_mtim.tv_nsec;
}
