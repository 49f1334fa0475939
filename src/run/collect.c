/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the workdir, selects outputs and publishes them as objects. */
#include "run/collect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/glob.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/sys.h"
#include "executor/results.h"

#define DEPTH_MAX     256 /* one descriptor per level; deeper trees are killed */
#define PATH_LEN_MAX  4000
#define LISTED_MAX    1000
#define NAMES_MAX     (16u << 20) /* bytes of all names: they end up in the record */
#define ENTRIES_MAX   2000000
#define THREADS_MAX   8
#define SYNC_EACH_MAX 32 /* with more files one syncfs is cheaper */

/* What a pattern matched. */
enum { MATCHED_FILE = 1, MATCHED_LINK = 2, MATCHED_SPECIAL = 4 };

struct file {
	char *path;
	uint64_t size;
	struct forge_object object;
	int error; /* -errno, 0: stored */
};

struct walk {
	const struct forge_collect_spec *spec;
	struct forge_collected *ret;
	struct file *files;
	size_t n, cap;
	uint64_t bytes, holes, seen, names;
	uint8_t *matched; /* of each pattern: MATCHED_ flags */
	unsigned aside;	  /* the number of hidden directories above */
	char path[PATH_LEN_MAX + 256];
	bool is_out_of_memory;
};

FORGE_PRINTF(2, 3)
static void problem(struct forge_collected *c, const char *fmt, ...)
{
	va_list ap;

	if (c->problem[0])
		return; /* only the first is reported */
	va_start(ap, fmt);
	(void)vsnprintf(c->problem, sizeof(c->problem), fmt, ap);
	va_end(ap);
	for (char *p = c->problem; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = '?';
}

/* Whether stop_fd ends the collecting; polled now and then. */
static bool is_stopped(struct walk *w)
{
	struct pollfd p = { .fd = w->spec->stop_fd, .events = POLLIN };

	if (!w->ret->is_stopped && p.fd >= 0 && poll(&p, 1, 0) > 0)
		w->ret->is_stopped = true;
	return w->ret->is_stopped;
}

static const char *kind_of(mode_t mode)
{
	return S_ISLNK(mode)	? "a symbolic link"
	       : S_ISFIFO(mode) ? "a fifo"
	       : S_ISSOCK(mode) ? "a socket"
	       : S_ISBLK(mode)	? "a block device"
	       : S_ISCHR(mode)	? "a character device"
				: "no regular file";
}

static void skip(struct walk *w, const char *why)
{
	if (json_array_size(w->ret->skipped) < LISTED_MAX)
		json_array_append_new(w->ret->skipped,
				      json_pack("{s:o, s:s}", "path",
						forge_json_name(w->path), "why", why));
}

/* A bound is exceeded: nothing is stored, and the files stay in the workdir. */
static void too_much(struct walk *w)
{
	w->ret->is_too_much = true;
}

/* Prefers the file that a user would look for first: nearest to the top, then by name. */
static void set_example(struct walk *w)
{
	const char *have = w->ret->example;
	size_t mine = 0, its = 0;

	for (const char *p = w->path; *p; p++)
		mine += *p == '/';
	for (const char *p = have; p && *p; p++)
		its += *p == '/';
	if (have && (mine > its || (mine == its && strcmp(w->path, have) > 0)))
		return;
	free(w->ret->example);
	w->ret->example = strdup(w->path); /* NULL: no example */
}

static bool is_checkpoint(const struct forge_collect_spec *spec, const char *path)
{
	return spec->checkpoint && forge_glob_match(spec->checkpoint, path);
}

/* Whether any pattern matches w->path. Marks those that do; mark: a MATCHED_ flag, 0 for a directory. */
static bool is_declared(struct walk *w, uint8_t mark)
{
	const char *always = w->spec->always;
	bool found = (w->spec->takes_all && w->aside == 0) ||
		     (always && strcmp(always, w->path) == 0) ||
		     (w->spec->takes_checkpoint && is_checkpoint(w->spec, w->path));

	for (size_t i = 0; i < w->spec->patterns->n; i++)
		if (forge_glob_match(w->spec->patterns->v[i], w->path)) {
			w->matched[i] |= mark;
			found = true;
		}
	return found;
}

static bool is_our_link(const struct walk *w)
{
	const struct forge_strv *links = w->spec->links;

	for (size_t i = 0; i + 1 < links->n; i += 2)
		if (strcmp(links->v[i], w->path) == 0)
			return true;
	return false;
}

static void add_file(struct walk *w, const struct stat *st)
{
	if (w->n == w->spec->max_files) {
		too_much(w);
		problem(w->ret,
			"there are more than %llu output files (outputs.max_files)",
			(unsigned long long)w->spec->max_files);
		return;
	}
	w->names += strlen(w->path);
	if (w->names > NAMES_MAX) {
		too_much(w);
		problem(w->ret, "the names of its outputs are more than %u MiB",
			NAMES_MAX >> 20);
		return;
	}
	if (w->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 64;
		struct file *grown = reallocarray(w->files, cap, sizeof(*grown));
		if (!grown) {
			w->is_out_of_memory = true;
			return;
		}
		w->files = grown;
		w->cap = cap;
	}
	char *path = strdup(w->path);
	if (!path) {
		w->is_out_of_memory = true;
		return;
	}
	uint64_t size = (uint64_t)st->st_size, on_disk = (uint64_t)st->st_blocks * 512;
	w->files[w->n++] = (struct file){ .path = path, .size = size };
	/* Saturates: the sizes of sparse files can overflow the sum. */
	w->bytes = w->bytes + size < size ? UINT64_MAX : w->bytes + size;
	size = size > on_disk ? size - on_disk : 0;
	w->holes = w->holes + size < size ? UINT64_MAX : w->holes + size;
}

static void add_undeclared(struct walk *w, const struct stat *st)
{
	if (w->aside == 0 && w->ret->n_undeclared == w->ret->n_aside) {
		free(w->ret->example); /* was of a link */
		w->ret->example = NULL;
	}
	w->ret->n_undeclared++;
	if (w->aside == 0)
		set_example(w);
	else
		w->ret->n_aside++;
	if (json_array_size(w->ret->undeclared) < LISTED_MAX)
		json_array_append_new(w->ret->undeclared,
				      json_pack("{s:o, s:I}", "path",
						forge_json_name(w->path), "size",
						(json_int_t)st->st_size));
}

static void look_at(struct walk *w, const struct stat *st)
{
	if (S_ISLNK(st->st_mode) && is_our_link(w))
		return;
	if (!is_declared(w, S_ISREG(st->st_mode)   ? MATCHED_FILE
			    : S_ISLNK(st->st_mode) ? MATCHED_LINK
						   : MATCHED_SPECIAL)) {
		if (!is_checkpoint(w->spec, w->path))
			add_undeclared(w, st);
		return;
	}
	if (S_ISREG(st->st_mode)) {
		add_file(w, st);
		return;
	}
	skip(w, kind_of(st->st_mode));
	if (!S_ISLNK(st->st_mode))
		return;
	/* A file that is not collected is the better example. */
	w->ret->n_links++;
	if (w->ret->n_undeclared == w->ret->n_aside)
		set_example(w);
}

/* The run of an ordinary user may have removed its own permissions from a directory. */
static int open_dir(int parent, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
	int fd = openat(parent, name, flags);

	/* All processes of the run are dead: the directory cannot be replaced. */
	if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
		fd = openat(parent, name, flags);
	return fd;
}

/* Something could not be read, so it is not known whether every output is stored. */
static void not_seen(struct walk *w, int code)
{
	skip(w, strerror(code));
	problem(w->ret, "%s could not be looked at: %s",
		*w->path ? w->path : "the workdir", strerror(code));
}

static void walk_dir(struct walk *w, int fd, size_t len, unsigned depth);

/* Walks the directory name in dir, whose path is w->path. */
static void enter(struct walk *w, int dir, const char *name, unsigned depth)
{
	size_t n = strlen(w->path);

	if (depth == DEPTH_MAX || n > PATH_LEN_MAX - 256) {
		skip(w, "too deep");
		if (is_declared(w, 0)) {
			too_much(w);
			problem(w->ret, "its directories are nested too deep to collect");
		}
		return;
	}
	int sub = open_dir(dir, name);
	if (sub >= 0)
		walk_dir(w, sub, n, depth + 1);
	else
		not_seen(w, errno); /* its content is unknown */
}

static void walk_dir(struct walk *w, int fd, size_t len, unsigned depth)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	if (forge_entries_take(&d, fd) == -ENOMEM)
		w->is_out_of_memory = true;
	for (const char *name; !w->is_out_of_memory && !w->ret->is_stopped &&
			       (name = forge_entries_next(&d));) {
		int dir = forge_entries_fd(&d);
		struct stat st;
		if (w->seen % 64 == 0 && is_stopped(w))
			break;
		if (++w->seen > ENTRIES_MAX) {
			too_much(w);
			problem(w->ret, "the workdir has more than %d entries",
				ENTRIES_MAX);
			return;
		}
		(void)snprintf(w->path + len, sizeof(w->path) - len, "%s%s",
			       len ? "/" : "", name);
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			not_seen(w, errno);
			continue;
		}
		bool aside = forge_results_is_aside(name);
		w->aside += aside;
		if (!S_ISDIR(st.st_mode))
			look_at(w, &st);
		else if (!aside || !w->spec->takes_all)
			enter(w, dir, name, depth);
		w->aside -= aside;
	}
	w->path[len] = '\0';
	if (d.error && !w->is_out_of_memory)
		not_seen(w, -d.error);
}

/* ---- publishing, by several threads ---- */

struct publish {
	struct walk *w;
	struct forge_objects *objects;
	size_t next;
	bool sync, may_link;
};

static int open_file(int dir, const char *path)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	int fd = forge_open_inside(dir, path, flags);

	/* No process of the run is left that could replace a directory. */
	if (fd == -EACCES && fchmodat(dir, path, 0400, 0) == 0)
		fd = forge_open_inside(dir, path, flags);
	return fd;
}

static int publish_one(const struct publish *p, struct file *f)
{
	struct stat st;
	forge_auto_close int fd = open_file(p->w->spec->workdir_fd, f->path);

	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return forge_objects_put(p->objects, fd, p->may_link, p->sync, &f->object);
}

static void *publish_some(void *arg)
{
	struct publish *p = arg;

	for (;;) {
		size_t i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
		if (i >= p->w->n)
			return NULL;
		/* stop_fd stays readable, so it stops all files that follow. */
		p->w->files[i].error = publish_one(p, &p->w->files[i]);
	}
}

/* The workdir is kept with its files if an output is missing, so those are not linked. */
static bool has_all(const struct walk *w)
{
	for (size_t i = 0; w->spec->must_match && i < w->spec->patterns->n; i++)
		if (!(w->matched[i] & MATCHED_FILE))
			return false;
	return !w->ret->problem[0];
}

static void publish_all(struct walk *w, struct forge_objects *objects)
{
	struct publish p = { .w = w,
			     .objects = objects,
			     .sync = w->n <= SYNC_EACH_MAX,
			     .may_link = w->spec->may_link && has_all(w) };
	pthread_t threads[THREADS_MAX];
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t n = 0;

	/* This thread works too. Threads that cannot be made are not needed. */
	while (n < THREADS_MAX && (long)n + 1 < cpus && n + 1 < w->n &&
	       pthread_create(&threads[n], NULL, publish_some, &p) == 0)
		n++;
	(void)publish_some(&p);
	while (n > 0)
		(void)pthread_join(threads[--n], NULL);
	int rc = forge_objects_sync(objects, !p.sync);
	if (rc < 0)
		problem(w->ret, "outputs could not be written to disk: %s",
			strerror(-rc));
}

/*
 * When not every output could be stored, the workdir is kept for the user. A stored
 * output must not stay there as another name of its object: the user could write to it.
 */
static void take_out_stored(struct walk *w)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct file *f = &w->files[i];
		const char *slash = strrchr(f->path, '/');
		forge_auto_free char *dir =
			slash ? strndup(f->path, (size_t)(slash - f->path)) : strdup(".");
		forge_auto_close int fd =
			f->error || !dir ? -1
					 : forge_open_inside(w->spec->workdir_fd, dir,
							     O_PATH | O_DIRECTORY);
		const char *name = slash ? slash + 1 : f->path;
		struct stat st;
		if (fd >= 0 && fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_nlink > 1)
			(void)unlinkat(fd, name, 0); /* the object stays */
	}
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static void list_files(struct walk *w)
{
	char stored[FORGE_STORED_MAX];

	for (size_t i = 0; i < w->n; i++)
		w->ret->is_stopped |= w->files[i].error == -ECANCELED;
	for (size_t i = 0; i < w->n; i++) {
		const struct file *f = &w->files[i];
		if (f->error == -ECANCELED)
			continue;
		if (f->error) {
			problem(w->ret, "output %s could not be collected: %s", f->path,
				strerror(-f->error));
			continue;
		}
		json_t *o = json_pack(
			"{s:o, s:I, s:s, s:s}", "path", forge_json_name(f->path), "size",
			(json_int_t)f->object.size, "sha256", f->object.digest,
			"stored_as", forge_objects_path(stored, f->object.digest));
		if (w->spec->is_partial || w->ret->is_stopped)
			json_object_set_new(o, "partial", json_true());
		if (is_checkpoint(w->spec, f->path))
			json_object_set_new(o, "checkpoint", json_true());
		json_array_append_new(w->ret->outputs, o);
	}
}

/* If the outputs are too large nothing is stored: half of them would look like all. */
static bool is_within_size(struct walk *w)
{
	char have[FORGE_FORMAT_MAX], most[FORGE_FORMAT_MAX], size[FORGE_FORMAT_MAX];
	const struct file *largest = w->files;

	if (w->bytes <= w->spec->max_bytes && w->holes <= w->spec->max_holes)
		return true;
	too_much(w);
	for (size_t i = 1; i < w->n; i++)
		if (w->files[i].size > largest->size)
			largest = &w->files[i];
	if (w->bytes <= w->spec->max_bytes) {
		problem(w->ret,
			"its outputs have holes of %s, more than %s (to collect them set "
			"outputs.max_size)",
			forge_format_size(have, w->holes),
			forge_format_size(most, w->spec->max_holes));
		return false;
	}
	problem(w->ret,
		"its outputs are %s, more than the %s that may be collected "
		"(outputs.max_size); the largest is %.100s with %s",
		forge_format_size(have, w->bytes),
		forge_format_size(most, w->spec->max_bytes), largest->path,
		forge_format_size(size, largest->size));
	return false;
}

static void check_patterns(struct walk *w)
{
	for (size_t i = 0; w->spec->must_match && i < w->spec->patterns->n; i++)
		if (!(w->matched[i] & MATCHED_FILE)) {
			w->ret->is_missing |= !w->ret->problem[0];
			problem(w->ret, "it left no output '%.200s'%s",
				w->spec->patterns->v[i],
				w->matched[i] & MATCHED_LINK
					? ", only symbolic links, which are not kept"
				: w->matched[i]
					? ", only special files, which are not kept"
					: "");
		}
}

static int collect(struct walk *w, struct forge_objects *objects, struct forge_error *err)
{
	int fd = openat(w->spec->workdir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* The workdir belongs to this user; the run may have changed its mode. */
	if (fd < 0 && errno == EACCES && fchmod(w->spec->workdir_fd, 0700) == 0)
		fd = openat(w->spec->workdir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		problem(w->ret, "the workdir cannot be read: %s", strerror(errno));
		return 0;
	}
	walk_dir(w, fd, 0, 0);
	if (w->is_out_of_memory)
		return forge_fail(err, ENOMEM, "collect outputs: out of memory");
	if (!w->ret->is_stopped && is_within_size(w) && !w->ret->is_too_much) {
		if (w->n) {
			qsort(w->files, w->n, sizeof(*w->files), by_path);
			publish_all(w, objects);
			list_files(w);
			if (w->ret->problem[0])
				take_out_stored(w);
		}
		check_patterns(w);
	}
	return 0;
}

int forge_collect(const struct forge_collect_spec *spec, struct forge_objects *objects,
		  struct forge_collected *ret, struct forge_error *err)
{
	*ret = (struct forge_collected){ .outputs = json_array(),
					 .skipped = json_array(),
					 .undeclared = json_array() };
	struct walk *w = calloc(1, sizeof(*w));
	uint8_t *matched = calloc(spec->patterns->n ? spec->patterns->n : 1, 1);
	int rc = -ENOMEM;

	if (w && matched && ret->outputs && ret->skipped && ret->undeclared) {
		w->spec = spec;
		w->ret = ret;
		w->matched = matched;
		rc = collect(w, objects, err);
	} else {
		rc = forge_fail(err, ENOMEM, "collect outputs: out of memory");
	}
	for (size_t i = 0; w && i < w->n; i++)
		free(w->files[i].path);
	if (w)
		free(w->files);
	free(w);
	free(matched);
	return rc;
}

void forge_collected_done(struct forge_collected *c)
{
	json_decref(c->outputs);
	json_decref(c->skipped);
	json_decref(c->undeclared);
	free(c->example);
	*c = (struct forge_collected){ .outputs = NULL };
}
