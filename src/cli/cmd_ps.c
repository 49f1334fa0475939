/* SPDX-License-Identifier: Apache-2.0 */
/* forge ps: lists runs. */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "cli/session.h"
#include "cli/table.h"

static struct {
	struct forge_run_filter filter;
	const char *since, *until;
	bool is_json, is_quiet, is_all;
	unsigned limit;
} o;

static const struct forge_opt *ps_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG('r', "running", &o.filter.open_only,
			   "Only those that are not over"),
		FORGE_WORD(0, "status",
			   "queued|preparing|running|collecting|succeeded|failed|killed|"
			   "cancelled|corrupted|lost|rejected",
			   &o.filter.status, "Only those with this status"),
		FORGE_STRING(0, "reason", "WORD", &o.filter.reason,
			     "Only those with this reason"),
		FORGE_STRING(0, "runtime", "NAME", &o.filter.runtime,
			     "Only those in this runtime"),
		FORGE_STRING(0, "analysis", "ANALYSIS_ID", &o.filter.analysis,
			     "Only those of this analysis"),
		FORGE_STRING(0, "user", "NAME", &o.filter.user,
			     "Only those of this user"),
		FORGE_STRING(0, "since", "TIME", &o.since,
			     "Not older than 2h, 3d or 2026-01-31"),
		FORGE_STRING(0, "until", "TIME", &o.until, "Older than that"),
		FORGE_WORD(0, "sort", "created|ended|wall|memory", &o.filter.sort,
			   "Order, the greatest first"),
		FORGE_FLAG(0, "reverse", &o.filter.oldest_first, "The smallest first"),
		FORGE_UINT('n', "limit", "N", &o.limit, "At most so many (20)"),
		FORGE_FLAG('a', "all", &o.is_all, "However many there are"),
		FORGE_STRING(0, "after", "RUN", &o.filter.after,
			     "The next page: those after this one"),
		FORGE_FLAG(0, "json", &o.is_json, "Print JSON lines"),
		FORGE_FLAG('q', "quiet", &o.is_quiet, "Print only ids"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

enum { RUN, ANALYSIS, STATUS, REASON, WALL, MEMORY, CREATED, USER, COLUMNS };

struct listing {
	struct forge_cell *cells;
	size_t rows, cap;
};

/* The text is copied: rows are gone when the next one comes. */
static void set(struct listing *l, size_t row, int column, const char *text,
		enum forge_colour colour)
{
	l->cells[row * COLUMNS + (size_t)column] =
		(struct forge_cell){ text ? strdup(text) : NULL, colour };
}

static bool make_room(struct listing *l)
{
	if (l->rows < l->cap)
		return true;
	size_t cap = l->cap ? 2 * l->cap : 64;
	struct forge_cell *grown = reallocarray(l->cells, cap * COLUMNS, sizeof(*grown));
	if (!grown)
		return false;
	l->cells = grown;
	l->cap = cap;
	return true;
}

static int add_row(const struct forge_run_row *row, void *arg)
{
	struct listing *l = arg;
	char wall[FORGE_FORMAT_MAX], memory[FORGE_FORMAT_MAX];

	if (!make_room(l))
		return -ENOMEM;
	size_t at = l->rows++;
	set(l, at, RUN, row->run_id, FORGE_PLAIN);
	set(l, at, ANALYSIS,
	    strcmp(row->analysis_id, row->run_id) == 0 ? NULL : row->analysis_id,
	    FORGE_PLAIN);
	set(l, at, STATUS, row->status, forge_status_colour(row->status));
	set(l, at, REASON, row->reason, FORGE_PLAIN);
	set(l, at, WALL,
	    row->wall_usec < 0 ? NULL
			       : forge_format_duration(wall, (uint64_t)row->wall_usec),
	    FORGE_PLAIN);
	set(l, at, MEMORY,
	    row->memory_peak < 0 ? NULL
				 : forge_format_size(memory, (uint64_t)row->memory_peak),
	    FORGE_PLAIN);
	set(l, at, CREATED, row->created_at, FORGE_DIM);
	set(l, at, USER, row->user, FORGE_DIM);
	return 0;
}

static int print_id(const struct forge_run_row *row, void *arg)
{
	(void)arg;
	return puts(row->run_id) < 0 ? -EIO : 0;
}

static json_t *number_or_null(int64_t n)
{
	return n < 0 ? json_null() : json_integer(n);
}

static int print_json(const struct forge_run_row *row, void *arg)
{
	(void)arg;
	json_t *j = json_pack(
		"{s:s, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s, s:s?, s:s?, s:s?}",
		"run_id", row->run_id, "analysis_id", row->analysis_id, "status",
		row->status, "reason", row->reason, "runtime", row->runtime, "executor",
		row->executor, "host", row->host, "user", row->user, "created_at",
		row->created_at, "started_at", row->started_at, "ended_at", row->ended_at,
		"completion_notes", row->notes);

	json_object_set_new(j, "wall_seconds",
			    row->wall_usec < 0 ? json_null()
					       : json_real((double)row->wall_usec / 1e6));
	json_object_set_new(j, "memory_peak_bytes", number_or_null(row->memory_peak));
	int rc = json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
	return rc < 0 ? -EIO : 0;
}

static int print_table(struct forge_session *s, struct forge_error *err)
{
	static const char *const heading[COLUMNS] = { "RUN",	 "ANALYSIS", "STATUS",
						      "REASON",	 "WALL",     "MEMORY",
						      "CREATED", "USER" };
	struct listing l = { 0 };
	int rc = make_room(&l) ? 0 : forge_fail(err, ENOMEM, "out of memory");

	if (rc == 0) {
		for (int c = 0; c < COLUMNS; c++)
			set(&l, 0, c, heading[c], FORGE_BOLD);
		l.rows = 1;
		rc = forge_store_list(s->store, &o.filter, add_row, &l, err);
	}
	if (rc >= 0)
		forge_table_print(stdout, l.cells, COLUMNS, l.rows);
	/* stderr: a pipe that counts lines must not count this one. */
	if (rc > 0 && o.filter.limit && (unsigned)rc == o.filter.limit && !o.filter.sort)
		fprintf(stderr, "forge: there may be more: --after %s, or --all\n",
			l.cells[(l.rows - 1) * COLUMNS].text);
	for (size_t i = 0; i < l.rows * COLUMNS; i++)
		free((char *)l.cells[i].text);
	free(l.cells);
	return rc;
}

/* "2h" ago, or a time in UTC as records have it; both become the beginning of an id. */
static int parse_time(const char *option, const char *text, char buf[FORGE_RUN_ID_MAX],
		      const char **ret, struct forge_error *err)
{
	static const char *const formats[] = { "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
					       "%Y-%m-%dT%H:%M", "%Y-%m-%d" };
	uint64_t usec;

	if (!text)
		return 0;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(formats); i++) {
		struct tm tm = { 0 };
		const char *end = strptime(text, formats[i], &tm);
		time_t then = end ? timegm(&tm) : -1;
		if (!end || then < 0 || (*end && *end != '.' && *end != 'Z'))
			continue;
		*ret = forge_run_id_at(buf, (uint64_t)then * 1000);
		return 0;
	}
	int rc = forge_parse_duration(text, &usec, err);
	if (rc < 0 || usec == FORGE_UNLIMITED)
		return forge_hint(
			err,
			forge_fail(err, EINVAL, "--%s: '%.40s' is no time", option, text),
			"Write 2h or 3d for how long ago, or 2026-01-31T12:00:00");
	uint64_t now = (uint64_t)time(NULL) * 1000;
	*ret = forge_run_id_at(buf, now > usec / 1000 ? now - usec / 1000 : 0);
	return 0;
}

static int list(struct forge_session *s, struct forge_error *err)
{
	if (o.is_quiet)
		return forge_store_list(s->store, &o.filter, print_id, NULL, err);
	if (o.is_json)
		return forge_store_list(s->store, &o.filter, print_json, NULL, err);
	return print_table(s, err);
}

static int cmd_ps(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	char since[FORGE_RUN_ID_MAX], until[FORGE_RUN_ID_MAX];
	int rc = forge_refuse_words(&forge_cmd_ps, argc, argv, 0);

	if (rc)
		return rc;
	o.filter.limit = o.is_all ? 0 : o.limit ? o.limit : 20;
	/* Pages are cut by creation; of another order they would leave runs out. */
	if (o.filter.after && o.filter.sort && strcmp(o.filter.sort, "created") != 0)
		rc = forge_fail(&err, EINVAL, "--after goes with --sort created only");
	if (rc == 0)
		rc = parse_time("since", o.since, since, &o.filter.since, &err);
	if (rc == 0)
		rc = parse_time("until", o.until, until, &o.filter.until, &err);
	if (rc == 0)
		rc = forge_session_open(&s, true, &err);
	if (rc == 0)
		rc = list(&s, &err);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_ps = {
	.name = "ps",
	.synopsis = "[OPTIONS]",
	.help = "List runs, the newest first",
	.about = "Without options the last 20 runs, over or not.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_ps,
	.opts = ps_opts,
};
