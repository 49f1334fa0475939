/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of `forge setup`: plans every row, writes the manifest, then the files, then puts
 * them in force. The manifest comes first and has the digests, so that an interrupted setup can
 * be undone too: a file that is absent or has another content is not removed.
 */
#include "doctor/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sha256.h"
#include "doctor/setup_rows.h"

#define STATE_DIR     "/etc/forge"
#define MANIFEST      STATE_DIR "/setup.json"
#define LOCK_FILE     STATE_DIR "/setup.lock"
#define FILE_MAX_SIZE (1u << 20)

extern char **environ;

const char *const forge_setup_state_names[FORGE_SETUP_STATES] = {
	[FORGE_SETUP_UNNEEDED] = "not needed", [FORGE_SETUP_DONE] = "done",
	[FORGE_SETUP_PENDING] = "to do",       [FORGE_SETUP_MADE] = "made",
	[FORGE_SETUP_REMOVED] = "removed",     [FORGE_SETUP_LEFT] = "left",
	[FORGE_SETUP_CANNOT] = "cannot",
};

char *forge_setup_path(const struct forge_setup_host *host, const char *path)
{
	return forge_asprintf("%s%s", host->root, path);
}

bool forge_setup_exists(const struct forge_setup_host *host, const char *path)
{
	forge_auto_free char *full = forge_setup_path(host, path);

	return full && access(full, F_OK) == 0;
}

char *forge_setup_read(const struct forge_setup_host *host, const char *path)
{
	forge_auto_free char *full = forge_setup_path(host, path);
	char *text = full ? malloc(FILE_MAX_SIZE) : NULL;

	if (text && forge_read_at(AT_FDCWD, full, text, FILE_MAX_SIZE) >= 0)
		return text;
	free(text);
	return NULL;
}

int forge_setup_add_file(struct forge_setup_step *step, const char *path, mode_t mode,
			 char *text)
{
	struct forge_setup_file *files =
		reallocarray(step->files, step->n_files + 1, sizeof(*files));

	if (!files || !text) {
		if (files)
			step->files = files;
		free(text);
		return -ENOMEM;
	}
	step->files = files;
	files[step->n_files++] = (struct forge_setup_file){ strdup(path), text, mode };
	return files[step->n_files - 1].path ? forge_strv_add(&step->result->files, path)
					     : -ENOMEM;
}

int forge_setup_run(const char *const argv[])
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status;

	if (posix_spawn_file_actions_init(&actions) != 0)
		return -ENOMEM;
	int rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
						  O_RDONLY, 0);
	/* Its output is for people; our standard output may be JSON. */
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO,
						      STDOUT_FILENO);
	if (rc == 0)
		rc = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv,
				  environ);
	(void)posix_spawn_file_actions_destroy(&actions); /* cannot fail */
	if (rc != 0)
		return -rc;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void step_done(struct forge_setup_step *step)
{
	for (size_t i = 0; i < step->n_files; i++) {
		free(step->files[i].path);
		free(step->files[i].text);
	}
	free(step->files);
	json_decref(step->live);
}

static void digest_of(const char *text, char buf[FORGE_DIGEST_MAX])
{
	struct forge_sha256 h;

	forge_sha256_init(&h);
	forge_sha256_add(&h, text, strlen(text));
	(void)forge_sha256_done(&h, buf);
}

/* ---- the lock: one setup at a time */

/* Is the file of fd still the one at path? Its last holder may have removed it meanwhile. */
static bool is_at(int fd, const char *path)
{
	struct stat ours, there;

	return fstat(fd, &ours) == 0 && stat(path, &there) == 0 &&
	       ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/*
 * Takes the lock. Where the file cannot be made, nothing can be written, so nothing is locked.
 * make: also makes the directory; undo does not, because without it there is nothing to undo.
 */
static int lock_host(struct forge_setup_host *host, bool make, struct forge_error *err)
{
	forge_auto_free char *path = forge_setup_path(host, LOCK_FILE);
	forge_auto_free char *dir = forge_setup_path(host, STATE_DIR);

	if (!path || !dir)
		return forge_fail(err, ENOMEM, "out of memory");
	for (int tries = 0; tries < 100; tries++) {
		if (make && access(dir, F_OK) < 0) {
			if (forge_mkdirs(dir, 0755) < 0)
				return 0;
			host->has_made_dir = true;
		}
		forge_auto_close int fd =
			open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (fd < 0 && (errno != ENOENT || !make))
			return 0;
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
			return errno == EWOULDBLOCK
				       ? forge_fail(err, EBUSY,
						    "another forge setup is running")
				       : forge_fail_errno(err, errno, "lock %s", path);
		if (fd >= 0 && is_at(fd, path)) {
			host->lock_fd = forge_take_fd(fd);
			return 0;
		}
	}
	return forge_fail_errno(err, ESTALE, "lock %s", path);
}

/* The file is removed while it is locked: a process that has it open then finds that it is gone. */
static void unlock_host(struct forge_setup_host *host)
{
	if (host->lock_fd < 0)
		return;
	forge_auto_free char *path = forge_setup_path(host, LOCK_FILE);
	forge_auto_free char *dir = forge_setup_path(host, STATE_DIR);
	if (path)
		(void)unlink(path);
	if (dir && host->has_made_dir)
		(void)rmdir(dir); /* fails if it is not empty */
	close(host->lock_fd);
}

/*
 * ---- the manifest: {"version", "users", "rows": {NAME: {"files": {PATH: DIGEST},
 * "dirs", "live"}}}
 */

static int load_manifest(struct forge_setup_host *host, struct forge_error *err)
{
	forge_auto_free char *path = forge_setup_path(host, MANIFEST);
	json_error_t e;

	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	if (access(path, F_OK) < 0) {
		if (errno != ENOENT)
			return forge_fail_errno(err, errno, "read %s", path);
		host->manifest =
			json_pack("{s:i, s:[], s:{}}", "version", 1, "users", "rows");
		return host->manifest ? 0 : forge_fail(err, ENOMEM, "out of memory");
	}
	host->manifest = json_load_file(path, 0, &e);
	if (!json_is_object(json_object_get(host->manifest, "rows")))
		return forge_hint(
			err,
			forge_fail(err, EBADMSG, "%s cannot be read: %s", path,
				   host->manifest ? "no rows" : e.text),
			"It says what an earlier setup has written; restore it, "
			"or remove it and what it named");
	return 0;
}

static int save_manifest(struct forge_setup_host *host, struct forge_error *err)
{
	forge_auto_free char *path = forge_setup_path(host, MANIFEST);
	forge_auto_free char *text =
		json_dumps(host->manifest, JSON_INDENT(2) | JSON_SORT_KEYS);

	if (!path || !text)
		return forge_fail(err, ENOMEM, "out of memory");
	char *slash = strrchr(path, '/');
	*slash = '\0';
	int rc = forge_mkdirs(path, 0755);
	forge_auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0 && dir < 0)
		rc = -errno;
	if (rc == 0)
		rc = forge_replace_file(dir, slash + 1, text, strlen(text), true);
	/* Any user may read it, for --dry-run. */
	if (rc == 0 && fchmodat(dir, slash + 1, 0644, 0) < 0)
		rc = -errno;
	return rc < 0 ? forge_fail_errno(err, -rc, "write %s/%s", path, slash + 1) : 0;
}

/* The part of a row in the manifest, made when it is not there. Borrowed. */
static json_t *part_of(struct forge_setup_host *host, const char *name)
{
	json_t *rows = json_object_get(host->manifest, "rows");
	json_t *part = json_object_get(rows, name);

	if (!part) {
		part = json_pack("{s:{}, s:[], s:{}}", "files", "dirs", "live");
		if (!part || json_object_set_new(rows, name, part) < 0)
			return NULL;
	}
	return part;
}

static int join_users(struct forge_setup_host *host, struct forge_error *err)
{
	json_t *list = json_object_get(host->manifest, "users");
	size_t i;
	json_t *name;
	int rc = forge_strv_copy(&host->users, &host->req->users);

	json_array_foreach (list, i, name) {
		bool is_known = false;
		forge_strv_foreach (u, &host->req->users)
			is_known |= strcmp(u, json_string_value(name)) == 0;
		if (!is_known && rc == 0)
			rc = forge_strv_add(&host->users, json_string_value(name));
	}
	json_t *all = json_array();
	forge_strv_foreach (u, &host->users)
		if (json_array_append_new(all, json_string(u)) < 0)
			rc = -EINVAL;
	if (rc == 0 && json_object_set_new(host->manifest, "users", all) < 0)
		rc = -ENOMEM;
	return rc < 0 ? forge_fail_errno(err, -rc, "users") : 0;
}

/* ---- files */

enum found {
	FOUND_NOTHING,
	FOUND_WANTED,  /* it has the wanted content */
	FOUND_OURS,    /* it has the content we wrote, but another one is wanted now */
	FOUND_CHANGED, /* we wrote it, and it was changed since */
	FOUND_FOREIGN, /* we did not write it */
};

/*
 * Is digest that of something we wrote? noted is one digest, or the old and the new one while a
 * file is replaced.
 */
static bool is_noted(const json_t *noted, const char *digest)
{
	size_t i;
	json_t *one;

	if (json_is_string(noted))
		return strcmp(json_string_value(noted), digest) == 0;
	json_array_foreach ((json_t *)noted, i, one)
		if (json_is_string(one) && strcmp(json_string_value(one), digest) == 0)
			return true;
	return false;
}

static enum found look_for(struct forge_setup_host *host, const char *row,
			   const struct forge_setup_file *f)
{
	forge_auto_free char *text = forge_setup_read(host, f->path);
	const json_t *files = json_object_get(
		json_object_get(json_object_get(host->manifest, "rows"), row), "files");
	const json_t *noted = json_object_get(files, f->path);
	char digest[FORGE_DIGEST_MAX];

	if (!text)
		return forge_setup_exists(host, f->path) ? FOUND_FOREIGN : FOUND_NOTHING;
	if (strcmp(text, f->text) == 0)
		return FOUND_WANTED;
	digest_of(text, digest);
	if (!noted)
		return FOUND_FOREIGN;
	return is_noted(noted, digest) ? FOUND_OURS : FOUND_CHANGED;
}

/* Makes the directories above path that do not exist, and notes them, the highest first. */
static int make_parents(struct forge_setup_host *host, const char *path, json_t *dirs)
{
	for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		forge_auto_free char *dir = strndup(path, (size_t)(p - path));
		forge_auto_free char *full = dir ? forge_setup_path(host, dir) : NULL;
		if (!full)
			return -ENOMEM;
		if (mkdir(full, 0755) == 0) {
			if (json_array_append_new(dirs, json_string(dir)) < 0)
				return -ENOMEM;
		} else if (errno != EEXIST) {
			return -errno;
		}
	}
	return 0;
}

static int write_file(struct forge_setup_host *host, const char *row,
		      const struct forge_setup_file *f, json_t *dirs,
		      struct forge_error *err)
{
	forge_auto_free char *full = forge_setup_path(host, f->path);
	int rc = full ? make_parents(host, f->path, dirs) : -ENOMEM;

	if (rc < 0)
		return forge_fail_errno(err, -rc, "make directories for %s", f->path);
	char *slash = strrchr(full, '/');
	*slash = '\0';
	forge_auto_close int dir = open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return forge_fail_errno(err, errno, "open %s", full);
	rc = forge_replace_file(dir, slash + 1, f->text, strlen(f->text), true);
	if (rc == 0 && fchmodat(dir, slash + 1, f->mode, 0) < 0)
		rc = -errno;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "write %s/%s", full, slash + 1);
	char digest[FORGE_DIGEST_MAX];
	digest_of(f->text, digest);
	return json_object_set_new(json_object_get(part_of(host, row), "files"), f->path,
				   json_string(digest)) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static void add_text(struct forge_setup_result *r, const char *fmt, ...)
	FORGE_PRINTF(2, 3);
static void add_text(struct forge_setup_result *r, const char *fmt, ...)
{
	size_t n = strlen(r->text);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(r->text + n, sizeof(r->text) - n, fmt, ap);
	va_end(ap);
}

/* Notes the files that will be written. Returns how many there are, or -errno. */
static int note_files(struct forge_setup_host *host, struct forge_setup_step *step,
		      bool *to_write)
{
	struct forge_setup_result *r = step->result;
	int n = 0;

	for (size_t i = 0; i < step->n_files; i++) {
		const struct forge_setup_file *f = &step->files[i];
		enum found found = look_for(host, r->name, f);
		char digest[FORGE_DIGEST_MAX];
		to_write[i] = found == FOUND_NOTHING || found == FOUND_OURS;
		if (found == FOUND_CHANGED || found == FOUND_FOREIGN) {
			add_text(r, "; %s %s, left as it is", f->path,
				 found == FOUND_CHANGED ? "was changed by hand"
							: "is not forge's");
			r->state = FORGE_SETUP_LEFT;
			step->is_blocked |= i == 0;
		}
		if (!to_write[i] || step->is_blocked)
			continue;
		n++;
		digest_of(f->text, digest);
		json_t *files = json_object_get(part_of(host, r->name), "files");
		json_t *before = json_object_get(files, f->path);
		json_t *noted = found == FOUND_OURS ? json_pack("[O, s]", before, digest)
						    : json_string(digest);
		if (json_object_set_new(files, f->path, noted) < 0)
			return -ENOMEM;
	}
	return n;
}

static int put_in_force(struct forge_setup_host *host, const struct forge_setup_row *row,
			struct forge_setup_step *step, struct forge_error *err)
{
	if (!row->apply || *host->root)
		return 0;
	int rc = row->apply(host, step, err);
	/*
	 * Noted also after a failure, so that a half-done change is undone. Undo restores the
	 * state before the first setup, so old values stay.
	 */
	json_t *part = step->live ? part_of(host, row->name) : NULL;
	if (part)
		(void)json_object_update_missing(json_object_get(part, "live"),
						 step->live);
	return rc;
}

static int make_step(struct forge_setup_host *host, const struct forge_setup_row *row,
		     struct forge_setup_step *step, struct forge_error *err)
{
	struct forge_setup_result *r = step->result;
	forge_auto_free bool *to_write = calloc(step->n_files + 1, sizeof(*to_write));
	int n = to_write ? note_files(host, step, to_write) : -ENOMEM;

	if (n < 0)
		return forge_fail_errno(err, -n, "%s", row->name);
	/* A file that forge did not write is not put in force. */
	bool is_live = *host->root || step->is_blocked || !row->is_live ||
		       row->is_live(host, step);
	if (n == 0 && is_live) {
		if (r->state == FORGE_SETUP_PENDING)
			r->state = FORGE_SETUP_DONE;
		return 0;
	}
	if (host->req->dry_run)
		return 0;
	int rc = save_manifest(host, err);
	if (rc < 0)
		return rc;
	json_t *dirs = json_object_get(part_of(host, row->name), "dirs");
	for (size_t i = 0; i < step->n_files && rc == 0; i++)
		if (to_write[i])
			rc = write_file(host, row->name, &step->files[i], dirs, err);
	if (rc == 0)
		rc = put_in_force(host, row, step, err);
	int saved = save_manifest(host, rc == 0 ? err : NULL);
	if (rc == 0 && r->state == FORGE_SETUP_PENDING)
		r->state = FORGE_SETUP_MADE;
	return rc < 0 ? rc : saved;
}

static int new_report(struct forge_setup_report *ret, struct forge_error *err)
{
	size_t n = 0;

	while (forge_setup_rows[n].name)
		n++;
	*ret = (struct forge_setup_report){ .n = n, .is_complete = true };
	ret->results = calloc(n, sizeof(*ret->results));
	return ret->results ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

void forge_setup_report_done(struct forge_setup_report *r)
{
	for (size_t i = 0; r->results && i < r->n; i++)
		forge_strv_done(&r->results[i].files);
	free(r->results);
	*r = (struct forge_setup_report){ 0 };
}

static int open_host(struct forge_setup_host *host, bool make, struct forge_error *err)
{
	host->root = host->req->root ? host->req->root : "";
	if (!*host->root && !host->req->dry_run && geteuid() != 0)
		return forge_hint(err,
				  forge_fail(err, EPERM, "only root can set up a host"),
				  "sudo forge setup; --dry-run shows what it would do");
	if (*host->root && access(host->root, X_OK) < 0)
		return forge_fail_errno(err, errno, "--root %s", host->root);
	int rc = host->req->dry_run ? 0 : lock_host(host, make, err);
	return rc < 0 ? rc : load_manifest(host, err);
}

static void close_host(struct forge_setup_host *host)
{
	unlock_host(host);
	forge_strv_done(&host->users);
	json_decref(host->manifest);
}

int forge_setup(const struct forge_config *cfg, const struct forge_setup_request *req,
		struct forge_setup_report *ret, struct forge_error *err)
{
	struct forge_setup_host host FORGE_CLEANUP(
		close_host) = { .cfg = cfg, .req = req, .lock_fd = -1 };
	int rc = open_host(&host, true, err);

	if (rc == 0)
		rc = join_users(&host, err);
	if (rc == 0)
		rc = new_report(ret, err);
	for (size_t i = 0; rc == 0 && forge_setup_rows[i].name; i++) {
		const struct forge_setup_row *row = &forge_setup_rows[i];
		struct forge_setup_step step FORGE_CLEANUP(
			step_done) = { .result = &ret->results[i] };
		step.result->name = row->name;
		rc = row->plan(&host, &step, err);
		if (rc == 0 && step.result->state == FORGE_SETUP_PENDING)
			rc = make_step(&host, row, &step, err);
		if (rc < 0)
			return forge_wrap(err, rc, "%s", row->name);
		if (step.result->state == FORGE_SETUP_CANNOT)
			ret->is_complete = false;
	}
	return rc;
}

/* ---- undo */

/* Removes the files that still have the content we wrote. */
static void remove_files(struct forge_setup_host *host, struct forge_setup_result *r,
			 json_t *files)
{
	const char *path;
	json_t *noted;
	void *next;

	json_object_foreach_safe(files, next, path, noted)
	{
		forge_auto_free char *full = forge_setup_path(host, path);
		forge_auto_free char *text = forge_setup_read(host, path);
		char digest[FORGE_DIGEST_MAX] = "";
		if (text)
			digest_of(text, digest);
		if (text && !is_noted(noted, digest)) {
			r->state = FORGE_SETUP_LEFT;
			add_text(r, "%s%s was changed by hand and is left",
				 *r->text ? "; " : "", path);
			continue;
		}
		if (text && !host->req->dry_run && full && unlink(full) < 0) {
			r->state = FORGE_SETUP_CANNOT;
			add_text(r, "%scannot remove %s: %s", *r->text ? "; " : "", path,
				 strerror(errno));
			continue;
		}
		if (text)
			(void)!forge_strv_add(&r->files, path);
		(void)json_object_del(files, path);
	}
}

/* Removes the lowest directory first; one that is not empty stays. */
static void remove_dirs(struct forge_setup_host *host, const json_t *dirs)
{
	for (size_t i = json_array_size(dirs); i-- > 0;) {
		forge_auto_free char *full = forge_setup_path(
			host, json_string_value(json_array_get(dirs, i)));
		if (full)
			(void)rmdir(full);
	}
}

static int undo_row(struct forge_setup_host *host, const struct forge_setup_row *row,
		    struct forge_setup_result *r, struct forge_error *err)
{
	json_t *rows = json_object_get(host->manifest, "rows");
	json_t *part = json_object_get(rows, row->name);
	bool is_now = !*host->root && !host->req->dry_run;

	r->state = FORGE_SETUP_UNNEEDED;
	if (!part) {
		add_text(r, "nothing was made");
		return 0;
	}
	r->state = host->req->dry_run ? FORGE_SETUP_PENDING : FORGE_SETUP_REMOVED;
	json_t *live = json_object_get(part, "live");
	if (is_now && row->retract && row->retract(host, live, err) < 0) {
		r->state = FORGE_SETUP_LEFT;
		add_text(r, "%s", err->msg);
		*err = FORGE_ERROR_INIT;
		return 0;
	}
	remove_files(host, r, json_object_get(part, "files"));
	if (!*r->text)
		add_text(r, host->req->dry_run ? "would be taken back" : "taken back");
	if (host->req->dry_run)
		return 0;
	remove_dirs(host, json_object_get(part, "dirs"));
	if (is_now && row->settle)
		row->settle(host);
	if (json_object_size(json_object_get(part, "files")) == 0)
		(void)json_object_del(rows, row->name);
	return 0;
}

int forge_setup_undo(const struct forge_setup_request *req,
		     struct forge_setup_report *ret, struct forge_error *err)
{
	struct forge_setup_host host FORGE_CLEANUP(close_host) = { .req = req,
								   .lock_fd = -1 };
	int rc = open_host(&host, false, err);

	if (rc == 0)
		rc = new_report(ret, err);
	for (size_t i = 0; rc == 0 && forge_setup_rows[i].name; i++) {
		ret->results[i].name = forge_setup_rows[i].name;
		rc = undo_row(&host, &forge_setup_rows[i], &ret->results[i], err);
		if (ret->results[i].state == FORGE_SETUP_CANNOT)
			ret->is_complete = false;
	}
	if (rc < 0 || req->dry_run)
		return rc;
	forge_auto_free char *path = forge_setup_path(&host, MANIFEST);
	/*
	 * What could not be removed stays in the manifest, for another try; the list of users
	 * is cleared.
	 */
	(void)json_array_clear(json_object_get(host.manifest, "users"));
	if (json_object_size(json_object_get(host.manifest, "rows")) > 0)
		return save_manifest(&host, err);
	if (path && unlink(path) < 0 && errno != ENOENT)
		return forge_fail_errno(err, errno, "remove %s", path);
	/* An earlier setup made the directory; it stays if it has a configuration in it. */
	host.has_made_dir = true;
	return 0;
}
