/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the configuration files and checks that they can be trusted. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config-build.h"
#include "config/config.h"
#include "config/loader.h"
#include "config/runtimes.h"

#define MAX_BYTES (1u << 20)

/*
 * A user who can write the file decides what our runs see and may use, so a file that another user left in
 * the current directory is refused. The check reads the open file, not the path, which could change in
 * between.
 */
static int check_trust(const char *path, const struct stat *st, struct forge_error *err)
{
	bool is_root = geteuid() == 0;
	/* Users often have a group of their own (umask 002); root does not rely on groups. */
	mode_t writers = is_root ? S_IWGRP | S_IWOTH : S_IWOTH;

	if (st->st_uid != 0 && st->st_uid != geteuid()) {
		int rc = forge_fail(err, EPERM,
				    "config %s belongs to user %u, and %s must own "
				    "what %s by",
				    path, (unsigned)st->st_uid,
				    is_root ? "root" : "you or root",
				    is_root ? "root runs" : "you run");
		return forge_hint(err, rc, "Read it, then: chown %s %s",
				  is_root ? "root" : "$USER", path);
	}
	if (st->st_mode & writers) {
		int rc = forge_fail(err, EPERM,
				    "config %s can be written by its group or by "
				    "others (mode %04o)",
				    path, (unsigned)(st->st_mode & 07777));
		return forge_hint(err, rc, "Read it, then: chmod go-w %s", path);
	}
	return 0;
}

/*
 * A user who can put names into the directory could give this name to another file of ours or of root: by a
 * rename where the directory is not sticky, or by a link, which the file's link count shows.
 */
static int check_place(const char *path, const struct stat *st, struct forge_error *err)
{
	const char *slash = strrchr(path, '/');
	forge_auto_free char *dir =
		strndup(path, slash == path ? 1 : (size_t)(slash - path));
	struct stat at, named;

	if (!dir)
		return forge_loader_oom(err);
	if (stat(dir, &at) < 0 || lstat(path, &named) < 0)
		return forge_fail_errno(err, errno, "look at config %s", path);
	if (named.st_dev != st->st_dev || named.st_ino != st->st_ino)
		return forge_fail(err, ESTALE, "config %s was replaced while it was read",
				  path);
	bool is_open = at.st_mode & (geteuid() == 0 ? 022 : 002);
	bool is_foreign = at.st_uid != 0 && at.st_uid != geteuid();
	if (!(is_open && !(at.st_mode & S_ISVTX)) &&
	    !(st->st_nlink > 1 && (is_open || is_foreign)))
		return 0;
	return forge_hint(err,
			  forge_fail(err, EPERM,
				     "others could have put config %s where it is", path),
			  "Put it into a directory that only you can write");
}

static int check_file(const char *path, const struct stat *st, struct forge_error *err)
{
	if (!S_ISREG(st->st_mode))
		return forge_fail(err, EINVAL, "config %s is not a regular file", path);
	if (st->st_size > MAX_BYTES)
		return forge_fail(err, EFBIG, "config %s is larger than 1 MiB", path);
	return check_trust(path, st, err);
}

/* Reads to the end, at most to the cap and one byte more. */
static int read_all(int fd, const char *path, char *buf, size_t size, size_t *ret_len,
		    struct forge_error *err)
{
	size_t len = 0;

	while (len < size) {
		ssize_t n = read(fd, buf + len, size - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return forge_fail_errno(err, errno, "read config %s", path);
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	return 0;
}

/* A file that was read; dir is its real directory, the base of relative paths in it. */
struct source {
	char *text;
	size_t len;
	char *shown, *path, *dir;
	bool is_project;
	dev_t dev;
	ino_t ino;
};

static void source_done(struct source *s)
{
	free(s->text);
	free(s->shown);
	free(s->path);
	free(s->dir);
	*s = (struct source){ .text = NULL };
}

/* The text of the link that name is, or NULL and errno; EPERM: it belongs to another user. */
static char *read_link(const char *name)
{
	forge_auto_close int fd = open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	char text[PATH_MAX];

	if (fd < 0 || fstat(fd, &st) < 0)
		return NULL;
	if (st.st_uid != 0 && st.st_uid != geteuid()) {
		errno = EPERM;
		return NULL;
	}
	ssize_t n = readlinkat(fd, "", text, sizeof(text) - 1);
	if (n < 0)
		return NULL;
	text[n] = '\0';
	const char *slash = strrchr(name, '/');
	return text[0] == '/' || !slash
		       ? strdup(text)
		       : forge_asprintf("%.*s/%s", (int)(slash - name), name, text);
}

#define LINKS_MAX 8

/*
 * Opens the file that shown leads to. Links at its end are followed by ourselves, one by one: each must be
 * ours or root's, because the owner of a link chooses the file. -ENOENT: there is none.
 */
static int open_config(const char *shown, struct forge_error *err)
{
	forge_auto_free char *at = strdup(shown);

	for (int links = 0; at && links <= LINKS_MAX; links++) {
		/* O_NONBLOCK: opening a FIFO must not block; it is refused later. */
		int fd = open(at,
			      O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
		if (fd >= 0)
			return fd;
		if (errno == ENOENT || errno == ENOTDIR)
			return -ENOENT;
		/* Do not skip a file after any other failure: its caps would be lost. */
		if (errno != ELOOP)
			return forge_fail_errno(err, errno, "open config %s", shown);
		char *next = read_link(at);
		if (!next && errno == EPERM)
			return forge_hint(err,
					  forge_fail(err, EPERM,
						     "config %s is a link that somebody "
						     "else made",
						     at),
					  "Make your own, or name the file itself");
		if (!next)
			return forge_fail_errno(err, errno, "open config %s", shown);
		free(at);
		at = next;
	}
	return at ? forge_fail_errno(err, ELOOP, "open config %s", shown)
		  : forge_loader_oom(err);
}

/* The real path of an open file; relative paths in it are relative to that. */
static char *real_path(int fd)
{
	char self[40], path[PATH_MAX];

	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(self, path, sizeof(path) - 1);
	if (n < 0)
		return NULL;
	path[n] = '\0';
	if (path[0] != '/') {
		errno = ENOENT;
		return NULL;
	}
	return strdup(path);
}

/* Returns 1 and the file in *ret, or 0 when there is no such file. */
static int read_source(const char *shown, struct source *ret, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_close int fd = open_config(shown, &why);
	struct stat st;

	*ret = (struct source){ .text = NULL };
	if (fd == -ENOENT && !why.code)
		return 0;
	if (fd < 0) {
		if (err)
			*err = why;
		return fd;
	}
	if (fstat(fd, &st) < 0)
		return forge_fail_errno(err, errno, "stat config %s", shown);
	int rc = check_file(shown, &st, err);
	if (rc < 0)
		return rc;
	struct source s = { .path = real_path(fd), .dev = st.st_dev, .ino = st.st_ino };
	if (!s.path)
		return forge_fail_errno(err, errno, "find the directory of config %s",
					shown);
	rc = check_place(s.path, &st, err);
	size_t size = (size_t)st.st_size + 1;
	s.text = malloc(size);
	s.shown = strdup(shown);
	s.dir = strdup(s.path);
	if (rc == 0 && (!s.text || !s.shown || !s.dir))
		rc = forge_loader_oom(err);
	if (rc == 0) {
		s.dir[strrchr(s.dir, '/') - s.dir + 1] = '\0';
		rc = read_all(fd, shown, s.text, size, &s.len, err);
	}
	if (rc < 0) {
		source_done(&s);
		return rc;
	}
	*ret = s;
	return 1;
}

int forge_config_read(const char *path, struct forge_config **ret,
		      struct forge_error *err)
{
	struct source s;
	int rc = read_source(path, &s, err);

	if (rc <= 0)
		return rc;
	rc = forge_config_parse(s.text, s.len, s.shown, s.dir, ret, err);
	if (rc == 0)
		(*ret)->path = forge_take_ptr(s.path);
	source_done(&s);
	return rc < 0 ? rc : 1;
}

static int add_runtimes(struct forge_config *c, const char *path, struct forge_error *err)
{
	struct source s;
	int rc = read_source(path, &s, err);

	if (rc == 1)
		rc = forge_config_add_runtimes(c, s.text, s.len, s.shown, s.dir, err);
	source_done(&s);
	return rc;
}

#define LAYERS_MAX 4

struct layers {
	struct source at[LAYERS_MAX];
	size_t n;
};

enum role { HOSTS, USERS, PROJECTS, NAMED };

/*
 * A file under two names is one layer: at the place where it was named, else at its
 * outermost place (the current directory may be the user's ~/.config/forge).
 */
static int add_layer(struct layers *l, enum role role, const char *shown,
		     const char *named_by, struct forge_error *err)
{
	struct source s;
	int rc = shown ? read_source(shown, &s, err) : 0;

	if (rc == 0 && role == NAMED)
		return forge_fail(err, ENOENT, "config %s (named by %s) does not exist",
				  shown, named_by);
	if (rc <= 0)
		return rc;
	s.is_project = role == PROJECTS;
	for (size_t i = 0; i < l->n; i++) {
		if (l->at[i].dev != s.dev || l->at[i].ino != s.ino)
			continue;
		if (role != NAMED) {
			source_done(&s);
			return 0;
		}
		source_done(&l->at[i]);
		memmove(&l->at[i], &l->at[i + 1], (l->n - i - 1) * sizeof(l->at[0]));
		l->n--;
		break;
	}
	l->at[l->n++] = s;
	return 0;
}

#define PROJECT_FILE "./forge.yaml"

/* Reads the files of the host, the user and the project, and the named one. */
static int read_layers(const char *explicit_path, bool has_project, struct layers *l,
		       struct forge_error *err)
{
	const char *home = getenv("HOME"), *env = getenv("FORGE_CONFIG");
	forge_auto_free char *user = NULL;

	if (home && *home == '/') {
		user = forge_asprintf("%s/.config/forge/forge.yaml", home);
		if (!user)
			return forge_loader_oom(err);
	}
	int rc = add_layer(l, HOSTS, "/etc/forge/forge.yaml", NULL, err);
	if (rc == 0)
		rc = add_layer(l, USERS, user, NULL, err);
	if (rc == 0 && has_project)
		rc = add_layer(l, PROJECTS, PROJECT_FILE, NULL, err);
	if (rc == 0 && explicit_path)
		rc = add_layer(l, NAMED, explicit_path, "--config", err);
	else if (rc == 0 && env && *env)
		rc = add_layer(l, NAMED, env, "$FORGE_CONFIG", err);
	return rc;
}

static int is_yaml(const struct dirent *e)
{
	const char *dot = strrchr(e->d_name, '.');

	return e->d_name[0] != '.' && dot && strcmp(dot, ".yaml") == 0;
}

static int read_runtimes_d(struct forge_config *c, const char *dir,
			   struct forge_error *err)
{
	struct dirent **list = NULL;
	int n = scandir(dir, &list, is_yaml, alphasort), rc = 0;

	/* A skipped directory would make its runtimes unknown, without an error. */
	if (n < 0 && errno != ENOENT && errno != ENOTDIR)
		return errno == ENOMEM ? forge_loader_oom(err)
				       : forge_fail_errno(err, errno, "read %s", dir);
	for (int i = 0; i < n; i++) {
		forge_auto_free char *path =
			forge_asprintf("%s/%s", dir, list[i]->d_name);
		if (rc >= 0)
			rc = path ? add_runtimes(c, path, err) : forge_loader_oom(err);
		free(list[i]);
	}
	free(list);
	return rc < 0 ? rc : 0;
}

/*
 * Reads runtimes.d beside each file, the innermost first, then the user's and the host's.
 * The first declaration of a name counts.
 */
static int read_all_runtimes(struct forge_config *c, struct forge_error *err)
{
	const char *home = getenv("HOME");
	forge_auto_strv struct forge_strv dirs = { 0 };
	int rc = 0;

	for (size_t i = c->files.n; i-- > 0 && rc == 0;)
		rc = forge_strv_addf(&dirs, "%.*s/runtimes.d",
				     (int)(strrchr(c->files.v[i], '/') - c->files.v[i]),
				     c->files.v[i]);
	if (rc == 0 && home && *home == '/')
		rc = forge_strv_addf(&dirs, "%s/.config/forge/runtimes.d", home);
	if (rc == 0)
		rc = forge_strv_add(&dirs, "/etc/forge/runtimes.d");
	if (rc < 0)
		return forge_loader_oom(err);
	forge_strv_foreach (dir, &dirs)
		if (rc == 0)
			rc = read_runtimes_d(c, dir, err);
	return rc;
}

/* The directory of the runtimes that come with forge: installed, or in the sources. */
static char *find_shipped(void)
{
	static const char *const places[] = { "../share/forge/runtimes.d",
					      "../../../examples/runtimes" };
	const char *said = getenv("FORGE_DATADIR");
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (said)
		return forge_asprintf("%s/runtimes.d", said);
	self[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(self, '/');
	for (size_t i = 0; slash && i < FORGE_ARRAY_SIZE(places); i++) {
		char *dir =
			forge_asprintf("%.*s/%s", (int)(slash - self), self, places[i]);
		if (!dir || access(dir, F_OK) == 0)
			return dir;
		free(dir);
	}
	return strdup(FORGE_DATADIR "/runtimes.d");
}

int forge_config_shipped(const struct forge_config *c, struct forge_config **ret,
			 struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_free char *dir = find_shipped();
	forge_auto_config struct forge_config *shipped = NULL;
	int rc = dir ? forge_config_parse("", 0, "shipped", NULL, &shipped, err)
		     : forge_loader_oom(err);

	if (rc < 0)
		return rc;
	shipped->caps = c->caps;
	shipped->allow_unlimited = c->allow_unlimited;
	if (read_runtimes_d(shipped, dir, &why) == -ENOMEM)
		return forge_loader_oom(err);
	for (size_t i = 0; i < shipped->n_runtimes; i++)
		shipped->runtimes[i].is_shipped = true;
	*ret = forge_take_ptr(shipped);
	return 0;
}

static int load(const char *explicit_path, bool has_project, struct forge_config **ret,
		struct forge_error *err)
{
	struct forge_config_layer texts[LAYERS_MAX];
	struct layers l = { .n = 0 };
	int rc = read_layers(explicit_path, has_project, &l, err);

	for (size_t i = 0; i < l.n; i++)
		texts[i] = (struct forge_config_layer){ l.at[i].text, l.at[i].len,
							l.at[i].shown, l.at[i].dir,
							l.at[i].is_project };
	if (rc == 0)
		rc = forge_config_parse_layers(texts, l.n, ret, err);
	for (size_t i = 0; i < l.n; i++) {
		if (rc == 0 && forge_strv_add(&(*ret)->files, l.at[i].path) < 0)
			rc = forge_loader_oom(err);
		if (rc == 0 && i + 1 == l.n)
			(*ret)->path = forge_take_ptr(l.at[i].path);
		source_done(&l.at[i]);
	}
	return rc;
}

static int load_all(const char *explicit_path, bool has_project,
		    struct forge_config **ret, struct forge_error *err)
{
	forge_auto_config struct forge_config *c = NULL;
	int rc = load(explicit_path, has_project, &c, err);

	if (rc == 0)
		rc = read_all_runtimes(c, err);
	if (rc == 0)
		*ret = forge_take_ptr(c);
	return rc;
}

int forge_config_load(const char *explicit_path, struct forge_config **ret,
		      struct forge_error *err)
{
	return load_all(explicit_path, true, ret, err);
}

int forge_config_load_outer(const char *explicit_path, struct forge_config **ret,
			    bool *ret_may_name_store, struct forge_error *err)
{
	struct source s;
	int rc = read_source(PROJECT_FILE, &s, err);

	if (rc < 0)
		return rc;
	/* Looks for the text only: a file with errors cannot be parsed reliably. */
	bool may_name_store = rc == 1 && memmem(s.text, s.len, "store", strlen("store"));
	source_done(&s);
	rc = load_all(explicit_path, false, ret, err);
	if (rc == 0)
		*ret_may_name_store = may_name_store;
	return rc;
}
