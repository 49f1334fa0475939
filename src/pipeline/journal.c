/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a pipeline: the lock of its head, and its events. */
#include "pipeline/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/sha256.h"

#define FOLLOW_MSEC    200
#define READ_STEP      65536
#define LINE_MAX_BYTES (256u << 20) /* "plan" has all tasks */

static int open_dir(const struct forge_home *home, const struct forge_pipeline *p,
		    struct forge_error *err)
{
	char digest[FORGE_DIGEST_MAX], name[128];
	struct forge_sha256 h;

	forge_sha256_init(&h);
	forge_sha256_add(&h, p->path, strlen(p->path));
	(void)snprintf(name, sizeof(name), "%s-%.12s", p->name,
		       forge_sha256_done(&h, digest) + strlen("sha256:"));
	forge_auto_close int all = forge_home_subdir(home, "pipelines", err);
	if (all < 0)
		return all;
	if (mkdirat(all, name, 0700) < 0 && errno != EEXIST)
		return forge_fail_errno(err, errno, "make %s/pipelines/%s", home->path,
					name);
	int fd = openat(all, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? forge_fail_errno(err, errno, "open %s/pipelines/%s", home->path,
					 name)
		      : fd;
}

int forge_journal_open(const struct forge_home *home, const struct forge_pipeline *p,
		       struct forge_journal *ret, struct forge_error *err)
{
	*ret = FORGE_JOURNAL_INIT;
	ret->dir_fd = open_dir(home, p, err);
	if (ret->dir_fd < 0)
		return ret->dir_fd;
	ret->lock_fd = forge_lock_file(ret->dir_fd, "lock", FORGE_LOCK_EXCLUSIVE,
				       FORGE_LOCK_NO_WAIT, -1);
	if (ret->lock_fd == -EWOULDBLOCK)
		return 1;
	if (ret->lock_fd < 0)
		return forge_fail_errno(err, -ret->lock_fd, "lock the pipeline");
	/* A reader of the old file goes on to read that. */
	if (unlinkat(ret->dir_fd, "events.jsonl", 0) < 0 && errno != ENOENT)
		return forge_fail_errno(err, errno, "remove the old events.jsonl");
	ret->events_fd = openat(ret->dir_fd, "events.jsonl",
				O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	return ret->events_fd < 0 ? forge_fail_errno(err, errno, "make events.jsonl") : 0;
}

void forge_journal_add(struct forge_journal *j, const json_t *event)
{
	char *text = j->events_fd < 0 ? NULL : json_dumps(event, JSON_COMPACT);

	if (!text)
		return;
	size_t len = strlen(text);
	text[len] = '\n'; /* in place of its NUL: one write a line */
	(void)!forge_write_all(j->events_fd, text, len + 1);
	free(text);
}

/* ---- following ---- */

/* A reader of the events: what was read before is not read again. */
struct tail {
	int fd;
	ino_t ino;
	char *text; /* of a line that is not whole yet */
	size_t len, cap;
};

static void tail_done(struct tail *t)
{
	if (t->fd >= 0)
		close(t->fd);
	free(t->text);
	*t = (struct tail){ .fd = -1 };
}

/* Opens the file that is there now, if it is another one than before. 1: there is one, or none yet. */
static int open_events(const struct forge_journal *j, struct tail *t)
{
	struct stat st;

	if (fstatat(j->dir_fd, "events.jsonl", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (t->fd >= 0 && st.st_ino == t->ino)
		return 0;
	tail_done(t);
	t->fd = openat(j->dir_fd, "events.jsonl", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (t->fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(t->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return -EINVAL;
	t->ino = st.st_ino;
	return 1;
}

/* Reads a part of what is new. 0: there is nothing. */
static ssize_t read_more(struct tail *t)
{
	if (t->cap - t->len < READ_STEP) {
		size_t cap = t->cap ? 2 * t->cap : 2 * READ_STEP;
		char *grown = cap <= LINE_MAX_BYTES ? realloc(t->text, cap) : NULL;
		if (!grown)
			return -ENOMEM;
		t->text = grown;
		t->cap = cap;
	}
	ssize_t n = t->fd < 0 ? 0 : read(t->fd, t->text + t->len, t->cap - t->len);
	if (n > 0)
		t->len += (size_t)n;
	return n < 0 ? -errno : n;
}

/* Takes the whole lines out of what was read. 1: the last event of the head was among them. */
static int take_lines(struct tail *t, void (*visit)(void *arg, const json_t *event),
		      void *arg, int *ret_status)
{
	size_t at = 0;
	int rc = 0;

	for (const char *end; rc == 0 && (end = memchr(t->text + at, '\n', t->len - at));
	     at = (size_t)(end - t->text) + 1) {
		forge_auto_json json_t *e =
			json_loadb(t->text + at, (size_t)(end - t->text) - at, 0, NULL);
		if (e)
			visit(arg, e);
		if (strcmp(forge_json_string_or(e, "event", ""), "end") == 0) {
			*ret_status =
				(int)json_integer_value(json_object_get(e, "status"));
			rc = 1;
		}
	}
	/* What follows is a line that the head is just writing, or was when it was killed. */
	memmove(t->text, t->text + at, t->len - at);
	t->len -= at;
	return rc;
}

/* Everything up to now. 1: the head has ended. */
static int read_events(const struct forge_journal *j, struct tail *t,
		       void (*visit)(void *arg, const json_t *event), void *arg,
		       int *ret_status)
{
	for (;;) {
		ssize_t n = read_more(t);
		int rc = n > 0 ? take_lines(t, visit, arg, ret_status) : (int)n;
		if (rc != 0)
			return rc;
		if (n > 0)
			continue;
		/* Another head may have made a new file; this one is read to its end by now. */
		rc = open_events(j, t);
		if (rc <= 0)
			return rc;
	}
}

/* Whether the head is dead: then the lock can be had. */
static bool is_head_gone(struct forge_journal *j)
{
	int fd = forge_lock_file(j->dir_fd, "lock", FORGE_LOCK_EXCLUSIVE,
				 FORGE_LOCK_NO_WAIT, -1);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int forge_journal_follow(struct forge_journal *j, int stop_fd,
			 void (*visit)(void *arg, const json_t *event),
			 void (*tick)(void *arg), void *arg, int *ret_status,
			 struct forge_error *err)
{
	FORGE_CLEANUP(tail_done) struct tail t = { .fd = -1 };

	for (;;) {
		/* Asked before the events are read: what it wrote before its end is there. */
		bool is_gone = is_head_gone(j);
		int rc = read_events(j, &t, visit, arg, ret_status);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "read events.jsonl");
		if (rc == 1)
			return 0;
		if (is_gone)
			return 1;
		if (tick)
			tick(arg);
		struct pollfd p = { .fd = stop_fd, .events = POLLIN };
		if (poll(&p, 1, FOLLOW_MSEC) > 0)
			return -ECANCELED;
	}
}

void forge_journal_close(struct forge_journal *j)
{
	if (j->events_fd >= 0)
		close(j->events_fd);
	if (j->lock_fd >= 0)
		close(j->lock_fd);
	if (j->dir_fd >= 0)
		close(j->dir_fd);
	*j = FORGE_JOURNAL_INIT;
}
