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

#define EVENTS_MAX  (256u << 20)
#define FOLLOW_MSEC 200

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

int forge_journal_read(struct forge_journal *j, json_t **ret, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_file(j->dir_fd, "events.jsonl", EVENTS_MAX, &text, &len);

	if (rc < 0 && rc != -ENOENT)
		return forge_fail_errno(err, -rc, "read events.jsonl");
	*ret = json_array();
	for (size_t at = 0; rc == 0 && at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		if (!end)
			break; /* the head is just writing it, or was killed */
		json_array_append_new(
			*ret, json_loadb(text + at, (size_t)(end - text) - at, 0, NULL));
		at = (size_t)(end - text) + 1;
	}
	return 0;
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
			 void (*visit)(void *arg, const json_t *event), void *arg,
			 int *ret_status, struct forge_error *err)
{
	size_t seen = 0;

	for (;;) {
		forge_auto_json json_t *events = NULL;
		/* Asked before the events are read: what it wrote before its end is there. */
		bool is_gone = is_head_gone(j);
		int rc = forge_journal_read(j, &events, err);
		if (rc < 0)
			return rc;
		for (; seen < json_array_size(events); seen++) {
			const json_t *e = json_array_get(events, seen);
			visit(arg, e);
			if (strcmp(forge_json_string_or(e, "event", ""), "end") == 0) {
				*ret_status = (int)json_integer_value(
					json_object_get(e, "status"));
				return 0;
			}
		}
		if (is_gone)
			return 1;
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
