/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines of this FORGE_HOME, from the events that their heads have reported (pipeline/journal.h). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "record/view.h"
#include "server/route.h"
#include "server/shared.h"

#define EVENTS_MAX     (64 * 1024 * 1024)
#define LINE_MAX_SHORT 65536 /* of the first and the last event */
#define PIPELINES_MAX  500

/* The name of a directory below pipelines/, and no way out of it. */
static bool is_id(const char *name)
{
	size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				"0123456789._-");

	return n > 0 && n < 200 && !name[n] && *name != '.' && strcmp(name, "keys") != 0;
}

/* The fd of events.jsonl, or -errno. */
static int open_events(const struct forge_server *sv, const char *id)
{
	forge_auto_free char *path = forge_asprintf("pipelines/%s/events.jsonl", id);
	uint64_t size;

	return path ? forge_open_regular(sv->home.fd, path, EVENTS_MAX, &size) : -ENOMEM;
}

/*
 * Whether the process that wrote "begin" lives. A process that has got its number since then has started after the
 * event.
 */
static bool is_alive(const json_t *begin)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(begin, "pid"));
	uint64_t ticks = pid > 0 ? forge_proc_start_time(pid) : 0;
	struct timespec up;

	if (!ticks)
		return false;
	clock_gettime(CLOCK_BOOTTIME, &up);
	time_t started =
		time(NULL) - up.tv_sec + (time_t)(ticks / (uint64_t)sysconf(_SC_CLK_TCK));
	return started <= forge_record_time(forge_json_string(begin, "time")) + 2;
}

static const char *state_of(const json_t *begin, const json_t *end)
{
	if (end)
		return json_integer_value(json_object_get(end, "status")) == 0
			       ? "done"
			       : "stopped";
	return is_alive(begin) ? "running" : "stopped";
}

/* {"done", "running", "failed", "waiting", "cached"} of the counts that "end" has. */
static json_t *counts_of_end(const json_t *end)
{
	const json_t *tasks = json_object_get(end, "tasks");
	json_int_t n[5] = { 0 };
	static const struct {
		const char *state;
		int at;
	} map[] = { { "done", 0 },   { "running", 1 }, { "failed", 2 }, { "waiting", 3 },
		    { "ready", 3 },  { "blocked", 3 }, { "left", 3 },	{ "skipped", 3 },
		    { "cached", 4 }, { "given", 4 } };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(map); i++)
		n[map[i].at] += json_integer_value(json_object_get(tasks, map[i].state));
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "done", n[0], "running", n[1],
			 "failed", n[2], "waiting", n[3], "cached", n[4]);
}

static json_t *head_of(const char *id, const json_t *begin, const json_t *end)
{
	const json_t *ended = json_object_get(end, "time");

	return json_pack("{s:s, s:O?, s:O?, s:s, s:O?, s:O?}", "id", id, "name",
			 json_object_get(begin, "pipeline"), "file",
			 json_object_get(begin, "file"), "state", state_of(begin, end),
			 "started_at", json_object_get(begin, "time"), "ended_at", ended);
}

/* ---- all events of one ---- */

struct story {
	json_t *begin, *end;
	json_t *tasks; /* by name: the object of the answer */
	json_t *order; /* the same objects */
};

static void story_done(struct story *s)
{
	json_decref(s->begin);
	json_decref(s->end);
	json_decref(s->tasks);
	json_decref(s->order);
}

static json_t *task_of(struct story *s, const char *name, const char *step)
{
	json_t *t = json_object_get(s->tasks, name);

	if (t)
		return t;
	t = json_pack("{s:s, s:s, s:[], s:s, s:n, s:s, s:n, s:n, s:n, s:n, s:n, s:i}",
		      "task", name, "step", step ? step : name, "needs", "state",
		      "waiting", "run_id", "why", "", "started_at", "ended_at",
		      "wall_seconds", "memory_peak_bytes", "memory_limit_bytes",
		      "attempt", 1);
	if (!t)
		return NULL;
	(void)json_object_set_new(s->tasks, name, t);
	(void)json_array_append(s->order, t);
	return t;
}

static void copy_key(json_t *to, const char *as, const json_t *from, const char *key)
{
	json_t *value = json_object_get(from, key);

	if (value && !json_is_null(value))
		(void)json_object_set(to, as, value);
}

static void take_plan(struct story *s, const json_t *event)
{
	size_t i;
	json_t *planned;

	json_array_foreach (json_object_get(event, "tasks"), i, planned) {
		const char *name = forge_json_string(planned, "task");
		json_t *t = name ? task_of(s, name, forge_json_string(planned, "step"))
				 : NULL;
		if (!t)
			continue;
		copy_key(t, "needs", planned, "needs");
		if (json_object_get(planned, "skipped") ||
		    json_object_get(planned, "left"))
			(void)json_object_set_new(t, "state", json_string("skipped"));
		copy_key(t, "why", planned, "skipped");
	}
}

/* What an event makes of its task. NULL: it changes nothing. */
static const char *new_state(const char *event)
{
	static const char *const map[][2] = {
		{ "cached", "cached" }, { "given", "cached" },	{ "started", "running" },
		{ "done", "ran" },	{ "failed", "failed" }, { "blocked", "skipped" },
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(map); i++)
		if (strcmp(map[i][0], event) == 0)
			return map[i][1];
	return NULL;
}

static void take_event(struct story *s, json_t *event)
{
	const char *what = forge_json_string_or(event, "event", "");
	const char *name = forge_json_string(event, "task");

	if (strcmp(what, "begin") == 0) {
		/* A head that takes over writes a new file; this is only a precaution. */
		json_decref(s->begin);
		s->begin = json_incref(event);
	} else if (strcmp(what, "end") == 0) {
		json_decref(s->end);
		s->end = json_incref(event);
	} else if (strcmp(what, "plan") == 0) {
		take_plan(s, event);
	}
	json_t *t = name ? task_of(s, name, NULL) : NULL;
	if (!t)
		return;
	const char *state = new_state(what);
	if (state)
		(void)json_object_set_new(t, "state", json_string(state));
	copy_key(t, "run_id", event, "run_id");
	copy_key(t, "why", event, "why");
	copy_key(t, "why", event, "notes");
	copy_key(t, "attempt", event, "attempt");
	if (strcmp(what, "started") == 0 || strcmp(what, "run") == 0)
		copy_key(t, "started_at", event, "time");
	if (strcmp(what, "done") == 0 || strcmp(what, "failed") == 0)
		copy_key(t, "ended_at", event, "time");
	const json_t *usage = json_object_get(event, "usage");
	copy_key(t, "wall_seconds", usage, "wall_seconds");
	copy_key(t, "memory_peak_bytes", usage, "memory_peak_bytes");
	copy_key(t, "memory_limit_bytes", json_object_get(event, "limits"),
		 "memory_bytes");
}

/* Reads all of them. -ENOENT: there is no such pipeline. */
static int read_story(const struct forge_server *sv, const char *id, struct story *ret)
{
	forge_auto_close int fd = open_events(sv, id);
	forge_auto_free char *text = NULL;
	size_t len;
	int rc = fd < 0 ? fd : forge_read_fd(fd, EVENTS_MAX, &text, &len);

	if (rc < 0)
		return rc;
	*ret = (struct story){ .tasks = json_object(), .order = json_array() };
	/* A line without an end is one that is being written. */
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		forge_auto_json json_t *event =
			json_loadb(line, (size_t)(end - line), 0, NULL);
		if (event)
			take_event(ret, event);
	}
	return ret->begin ? 0 : -ENOENT;
}

static json_t *counts_of_tasks(const struct story *s)
{
	static const char *const states[][2] = {
		{ "ran", "done" },	  { "running", "running" },
		{ "failed", "failed" },	  { "waiting", "waiting" },
		{ "skipped", "waiting" }, { "cached", "cached" }
	};
	json_t *counts = json_pack("{s:i, s:i, s:i, s:i, s:i}", "done", 0, "running", 0,
				   "failed", 0, "waiting", 0, "cached", 0);
	size_t i;
	json_t *t;

	json_array_foreach (s->order, i, t)
		for (size_t k = 0; k < FORGE_ARRAY_SIZE(states); k++) {
			if (strcmp(forge_json_string_or(t, "state", ""), states[k][0]) !=
			    0)
				continue;
			json_t *n = json_object_get(counts, states[k][1]);
			(void)json_integer_set(n, json_integer_value(n) + 1);
		}
	/* Those that no event has named yet. */
	json_int_t all = json_integer_value(json_object_get(s->begin, "tasks"));
	json_int_t unnamed = all - (json_int_t)json_array_size(s->order);
	json_t *waiting = json_object_get(counts, "waiting");
	if (unnamed > 0)
		(void)json_integer_set(waiting, json_integer_value(waiting) + unnamed);
	return counts;
}

void forge_api_pipeline(struct forge_server *sv, const struct forge_ask *ask,
			struct forge_answer *a)
{
	struct story s = { .begin = NULL };
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = is_id(ask->params[0]) ? read_story(sv, ask->params[0], &s) : -ENOENT;

	if (rc < 0) {
		(void)forge_fail_errno(&err, -rc, "pipeline %.64s", ask->params[0]);
		forge_answer_fail(a, rc, &err);
	} else {
		json_t *j = head_of(ask->params[0], s.begin, s.end);
		(void)json_object_set(j, "tasks", s.order);
		(void)json_object_set_new(j, "counts", counts_of_tasks(&s));
		forge_answer_json(a, 200, j);
	}
	story_done(&s);
}

/* ---- the list ---- */

/* The last event, if it is "end". */
static json_t *read_end(int fd)
{
	forge_auto_free char *buf = malloc(LINE_MAX_SHORT + 1);
	struct stat st;

	if (!buf || fstat(fd, &st) < 0)
		return NULL;
	off_t from = st.st_size > LINE_MAX_SHORT ? st.st_size - LINE_MAX_SHORT : 0;
	ssize_t n = pread(fd, buf, LINE_MAX_SHORT, from);
	if (n < 2 || buf[n - 1] != '\n')
		return NULL;
	buf[n - 1] = '\0';
	const char *last = strrchr(buf, '\n');
	json_t *event = json_loads(last ? last + 1 : buf, 0, NULL);
	if (strcmp(forge_json_string_or(event, "event", ""), "end") == 0)
		return event;
	json_decref(event);
	return NULL;
}

static json_t *read_begin(int fd)
{
	forge_auto_free char *buf = malloc(LINE_MAX_SHORT + 1);
	ssize_t n = buf ? pread(fd, buf, LINE_MAX_SHORT, 0) : -1;
	const char *end = n > 0 ? memchr(buf, '\n', (size_t)n) : NULL;
	json_t *event = end ? json_loadb(buf, (size_t)(end - buf), 0, NULL) : NULL;

	if (strcmp(forge_json_string_or(event, "event", ""), "begin") == 0)
		return event;
	json_decref(event);
	return NULL;
}

/* One line of the list; NULL: nothing is known of it. */
static json_t *summary(const struct forge_server *sv, const char *id)
{
	forge_auto_close int fd = open_events(sv, id);
	forge_auto_json json_t *end = fd < 0 ? NULL : read_end(fd);
	forge_auto_json json_t *begin = fd < 0 ? NULL : read_begin(fd);

	/* A directory without events is one that is being made; what cannot be read is shown as such. */
	if (!begin && (fd == -ENOENT || fd >= 0))
		return NULL;
	if (!begin)
		return json_pack("{s:s, s:s, s:n, s:s, s:n, s:n, s:n}", "id", id, "name",
				 id, "file", "state", "unreadable", "started_at",
				 "ended_at", "counts");
	json_t *j = head_of(id, begin, end), *counts = NULL;
	if (end) {
		counts = counts_of_end(end);
	} else {
		struct story s = { .begin = NULL };
		if (read_story(sv, id, &s) == 0)
			counts = counts_of_tasks(&s);
		story_done(&s);
	}
	(void)json_object_set_new(j, "counts", counts ? counts : json_null());
	return j;
}

static int by_start(const void *a, const void *b)
{
	return strcmp(forge_json_string_or(*(json_t *const *)b, "started_at", ""),
		      forge_json_string_or(*(json_t *const *)a, "started_at", ""));
}

void forge_api_pipelines(struct forge_server *sv, const struct forge_ask *ask,
			 struct forge_answer *a)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	json_t **found = NULL;
	size_t n = 0, cap = 0;
	bool has_room = true;

	(void)ask;
	(void)forge_entries_open(&d, sv->home.fd, "pipelines"); /* d keeps the error */
	for (const char *name; has_room && (name = forge_entries_next(&d));) {
		json_t *one = is_id(name) ? summary(sv, name) : NULL;
		if (!one)
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 64;
			json_t **grown = reallocarray(found, cap, sizeof(json_t *));
			has_room = grown != NULL;
			found = grown ? grown : found;
		}
		if (has_room)
			found[n++] = one;
		else
			json_decref(one);
	}
	if (!has_room || (d.error && d.error != -ENOENT)) {
		struct forge_error err = FORGE_ERROR_INIT;
		int rc = has_room ? d.error : -ENOMEM;
		(void)forge_fail_errno(&err, -rc, "read pipelines");
		while (n)
			json_decref(found[--n]);
		free(found);
		forge_answer_fail(a, rc, &err);
		return;
	}
	if (n)
		qsort(found, n, sizeof(*found), by_start);
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++) {
		if (i < PIPELINES_MAX)
			(void)json_array_append(list, found[i]);
		json_decref(found[i]);
	}
	free(found);
	forge_answer_json(a, 200, json_pack("{s:o}", "pipelines", list));
}
