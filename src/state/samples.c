/* SPDX-License-Identifier: Apache-2.0 */
/* Takes points, thins them out, and reads them back. */
#include "state/samples.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"

#define UNKNOWN UINT64_MAX
/* One line; and a file that this program can have written. */
#define LINE_MAX_BYTES 160
#define FILE_MAX_BYTES (2ul * FORGE_SAMPLES_MAX * LINE_MAX_BYTES)
#define COLUMNS	       5
/* Points of a young run are this far apart, and later an eighth of its age, up to the interval. */
#define YOUNG_USEC 250000

void forge_samples_init(struct forge_samples *s, const struct forge_home *home,
			const char *run_id, uint64_t interval_usec)
{
	*s = FORGE_SAMPLES_INIT;
	s->home = home;
	s->run_id = run_id;
	s->interval_usec = interval_usec;
}

void forge_samples_done(struct forge_samples *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->points);
	*s = FORGE_SAMPLES_INIT;
}

uint64_t forge_samples_pause_usec(const struct forge_samples *s, uint64_t age_usec)
{
	uint64_t pause = age_usec / 8 < YOUNG_USEC ? YOUNG_USEC : age_usec / 8;

	return pause < s->interval_usec ? pause : s->interval_usec;
}

/* ---- as text ---- */

static size_t put_text(char *buf, size_t len, const char *text)
{
	return len + (size_t)snprintf(buf + len, LINE_MAX_BYTES - len, "%s", text);
}

static size_t put_number(char *buf, size_t len, uint64_t n)
{
	if (n == UNKNOWN)
		return put_text(buf, len, ",null");
	return len + (size_t)snprintf(buf + len, LINE_MAX_BYTES - len, ",%" PRIu64, n);
}

/* Not by %f, which writes a comma in some locales. */
static size_t put_seconds(char *buf, size_t len, uint64_t usec)
{
	if (usec == UNKNOWN)
		return put_text(buf, len, "null");
	return len + (size_t)snprintf(buf + len, LINE_MAX_BYTES - len,
				      "%" PRIu64 ".%06" PRIu64, usec / 1000000,
				      usec % 1000000);
}

static size_t format_line(char buf[LINE_MAX_BYTES], const struct forge_sample *p)
{
	size_t len = put_text(buf, 0, "[");

	len = put_seconds(buf, len, p->usec);
	len = put_number(buf, len, p->memory_bytes);
	len = put_text(buf, len, ",");
	len = put_seconds(buf, len, p->cpu_usec);
	len = put_number(buf, len, p->pids);
	len = put_number(buf, len, p->disk_bytes);
	return put_text(buf, len, "]\n");
}

/* All numbers are below 2^53, so that every reader of JSON has them exactly. */
static bool take_number(const json_t *j, double scale, uint64_t *ret)
{
	double n = json_number_value(j) * scale;

	*ret = UNKNOWN;
	if (json_is_null(j))
		return true;
	if (!json_is_number(j) || !(n >= 0 && n < 9007199254740992.0))
		return false;
	*ret = (uint64_t)(n + 0.5);
	return true;
}

static bool take_row(const json_t *row, struct forge_sample *ret)
{
	return json_array_size(row) >= COLUMNS &&
	       take_number(json_array_get(row, 0), 1e6, &ret->usec) &&
	       ret->usec != UNKNOWN &&
	       take_number(json_array_get(row, 1), 1, &ret->memory_bytes) &&
	       take_number(json_array_get(row, 2), 1e6, &ret->cpu_usec) &&
	       take_number(json_array_get(row, 3), 1, &ret->pids) &&
	       take_number(json_array_get(row, 4), 1, &ret->disk_bytes);
}

/* Adds a point if it is later than those before. */
static void append(struct forge_sample *points, size_t *n, const struct forge_sample *p)
{
	if (*n < FORGE_SAMPLES_MAX && (*n == 0 || p->usec > points[*n - 1].usec))
		points[(*n)++] = *p;
}

/* The complete lines that are points. points has FORGE_SAMPLES_MAX. */
static size_t parse(const char *text, size_t len, struct forge_sample *points)
{
	size_t n = 0;
	const char *end;

	for (; (end = memchr(text, '\n', len));
	     len -= (size_t)(end + 1 - text), text = end + 1) {
		forge_auto_json json_t *row =
			json_loadb(text, (size_t)(end - text), 0, NULL);
		struct forge_sample p;
		if (take_row(row, &p))
			append(points, &n, &p);
	}
	return n;
}

static json_t *rows_json(const struct forge_sample *points, size_t n)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < n && rows; i++) {
		const struct forge_sample *p = &points[i];
		json_t *row = json_pack("[o, o, o, o, o]", forge_json_seconds(p->usec),
					forge_json_number(p->memory_bytes),
					forge_json_seconds(p->cpu_usec),
					forge_json_number(p->pids),
					forge_json_number(p->disk_bytes));
		if (json_array_append_new(rows, row) < 0) {
			json_decref(rows);
			rows = NULL;
		}
	}
	return rows;
}

json_t *forge_samples_json(const struct forge_samples *s)
{
	return rows_json(s->points, s->n);
}

/* ---- the file ---- */

static int open_append(const struct forge_home *home, int dir)
{
	int fd = openat(dir, FORGE_SAMPLES_FILE,
			O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	forge_home_share(home, fd);
	return fd;
}

/* Whole or not at all: a reader, and the next supervisor, see the old file or the new one. */
static int write_all(const struct forge_home *home, int dir,
		     const struct forge_sample *points, size_t n)
{
	forge_auto_free char *text = malloc(n * LINE_MAX_BYTES + 1);
	size_t len = 0;

	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		len += format_line(text + len, &points[i]);
	int rc = forge_replace_file(dir, FORGE_SAMPLES_FILE, text, len, false);
	return rc < 0 ? rc : open_append(home, dir);
}

static int rewrite(struct forge_samples *s)
{
	forge_auto_close int dir = forge_home_open_run(s->home, s->run_id);

	if (dir < 0)
		return dir;
	int fd = write_all(s->home, dir, s->points, s->n);
	if (fd < 0)
		return fd;
	if (s->fd >= 0)
		close(s->fd);
	s->fd = fd;
	return 0;
}

/* Drops every second point; the newest stays. */
static void thin(struct forge_samples *s)
{
	size_t kept = 0;

	for (size_t i = 1; i < s->n; i += 2)
		s->points[kept++] = s->points[i];
	s->n = kept;
	s->interval_usec *= 2;
}

/* Another supervisor may have been killed while it wrote, and may have had a longer interval. */
static int take_over(struct forge_samples *s)
{
	forge_auto_free char *text = NULL;
	size_t len;
	int rc = forge_read_fd(s->fd, FILE_MAX_BYTES, &text, &len);

	if (rc < 0 || len == 0)
		return rc;
	s->n = parse(text, len, s->points);
	if (s->n > 1) {
		uint64_t last = s->points[s->n - 1].usec - s->points[s->n - 2].usec;
		while (s->interval_usec < last / 2)
			s->interval_usec *= 2;
	}
	return rewrite(s);
}

static int begin(struct forge_samples *s)
{
	s->points = calloc(FORGE_SAMPLES_MAX, sizeof(*s->points));
	if (!s->points)
		return -ENOMEM;
	if (!s->home)
		return 0;
	forge_auto_close int dir = forge_home_open_run(s->home, s->run_id);
	if (dir < 0)
		return dir;
	s->fd = open_append(s->home, dir);
	return s->fd < 0 ? s->fd : take_over(s);
}

int forge_samples_add(struct forge_samples *s, const struct forge_sample *point)
{
	char line[LINE_MAX_BYTES];
	int rc = s->points ? 0 : begin(s);

	if (rc == 0 && s->n == FORGE_SAMPLES_MAX) {
		thin(s);
		rc = s->home ? rewrite(s) : 0;
	}
	if (rc < 0)
		return rc;
	size_t before = s->n;
	append(s->points, &s->n, point);
	return s->n > before && s->home
		       ? forge_write_all(s->fd, line, format_line(line, point))
		       : 0;
}

int forge_samples_store(const struct forge_home *home, const char *run_id,
			const json_t *rows, struct forge_error *err)
{
	forge_auto_free struct forge_sample *points =
		calloc(FORGE_SAMPLES_MAX, sizeof(*points));
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	struct forge_sample p;
	size_t i, n = 0;
	const json_t *row;

	if (!points)
		return forge_fail(err, ENOMEM, "out of memory");
	json_array_foreach (rows, i, row)
		if (take_row(row, &p))
			append(points, &n, &p);
	if (n == 0)
		return 0;
	int fd = dir < 0 ? dir : write_all(home, dir, points, n);
	if (fd < 0)
		return forge_fail_errno(err, -fd, "write the samples of run %s", run_id);
	close(fd);
	return 0;
}

static int to_json(const char *text, size_t len, json_t **ret, struct forge_error *err)
{
	forge_auto_free struct forge_sample *points =
		calloc(FORGE_SAMPLES_MAX, sizeof(*points));

	if (!points)
		return forge_fail(err, ENOMEM, "out of memory");
	json_t *j = json_pack("{s:[s, s, s, s, s], s:o}", "columns", "seconds",
			      "memory_bytes", "cpu_seconds", "pids", "disk_bytes",
			      "samples", rows_json(points, parse(text, len, points)));
	if (!j)
		return forge_fail(err, ENOMEM, "out of memory");
	*ret = j;
	return 0;
}

int forge_samples_read_fd(int fd, json_t **ret, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_fd(fd, FILE_MAX_BYTES, &text, &len);

	if (rc < 0)
		return forge_fail(err, -rc, "read the samples of the run: %s",
				  forge_regular_problem(rc));
	return to_json(text, len, ret, err);
}

int forge_samples_read(const struct forge_home *home, const char *run_id, json_t **ret,
		       struct forge_error *err)
{
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	forge_auto_free char *text = NULL;
	size_t len = 0;

	if (dir == -EINVAL)
		return forge_fail(err, EINVAL, "this is no run id");
	int rc = dir < 0 ? dir
			 : forge_read_file(dir, FORGE_SAMPLES_FILE, FILE_MAX_BYTES, &text,
					   &len);
	if (rc < 0 && rc != -ENOENT)
		return forge_fail(err, -rc, "read the samples of run %s: %s", run_id,
				  forge_regular_problem(rc));
	return to_json(rc < 0 ? "" : text, len, ret, err);
}
