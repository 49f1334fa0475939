/* SPDX-License-Identifier: Apache-2.0 */
/* forge ps: lists runs. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/entries.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/sha256.h"
#include "cli/session.h"
#include "cli/table.h"
#include "executor/executor.h"
#include "record/record.h"
#include "run/admit.h"
#include "state/objects.h"
#include "state/slot.h"
#include "store/state.h"

static struct {
	struct forge_run_filter filter;
	const char *since, *until, *output;
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
			     "Only those of this analysis; * and ? stand for letters"),
		FORGE_STRING(0, "user", "NAME", &o.filter.user,
			     "Only those of this user"),
		FORGE_STRING(
			0, "output", "FILE", &o.output,
			"Only those that left a file like this one, or of this sha256"),
		FORGE_STRING(0, "since", "TIME", &o.since,
			     "Not older than 2h, 3d or 2026-01-31"),
		FORGE_STRING(0, "until", "TIME", &o.until, "Older than that"),
		FORGE_WORD(0, "sort", "created|ended|wall|memory", &o.filter.sort,
			   "Order, the greatest first"),
		FORGE_FLAG(0, "reverse", &o.filter.oldest_first, "The smallest first"),
		FORGE_UINT('n', "limit", "N", &o.limit, "At most so many (20)"),
		FORGE_FLAG('a', "all", &o.is_all,
			   "However many there are, probes and post-processes too"),
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

/* The table of runs while it is built. */
struct listing {
	const struct forge_session *session;
	json_t *slots; /* of the runs that are open */
	bool is_terminal;
	time_t now;
	struct forge_cell *cells;
	size_t rows, cap;
};

enum { RUN, NAME, STATUS, TIME, MEMORY, CREATED, USER, COMMAND, COLUMNS };

/* Copies the text: a row of the store is valid only until the next one. */
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

/* On a terminal local time, without the date for today; else the time of the record. */
static const char *format_time(const struct listing *l, const char *text, char buf[32])
{
	time_t then = forge_record_time(text);
	struct tm tm, today;

	if (!l->is_terminal || then <= 0 || !localtime_r(&then, &tm) ||
	    !localtime_r(&l->now, &today))
		return text;
	bool is_today = tm.tm_year == today.tm_year && tm.tm_yday == today.tm_yday;
	size_t n = is_today			 ? strftime(buf, 32, "%H:%M:%S", &tm)
		   : tm.tm_year == today.tm_year ? strftime(buf, 32, "%b %d %H:%M", &tm)
						 : strftime(buf, 32, "%Y-%m-%d", &tm);
	return n ? buf : text;
}

/* Drops the hundredths of whole numbers: there is little room. */
static void set_size(struct listing *l, size_t at, uint64_t bytes)
{
	char text[FORGE_FORMAT_MAX];
	char *point = strstr(forge_format_size(text, bytes), ".00 ");

	if (point)
		memmove(point, point + 3, strlen(point + 3) + 1);
	set(l, at, MEMORY, text, FORGE_PLAIN);
}

/* A live run shows its current usage; a queued one the reason why it waits. */
static void add_open(struct listing *l, const struct forge_run_row *row,
		     const json_t *record, const char *command, size_t at)
{
	char text[FORGE_FORMAT_MAX], why[FORGE_WHY_MAX];
	struct forge_usage_now u;
	time_t start =
		forge_record_time(row->started_at ? row->started_at : row->created_at);

	if (strcmp(row->status, "queued") == 0) {
		struct forge_need need = {
			.memory_bytes = forge_record_limit(record, "memory_bytes", 1),
			.cpus_milli = forge_record_limit(record, "cpus", 1000),
			.run_id = row->run_id,
		};
		const char *pending = forge_run_pending(l->slots, row->run_id);
		forge_auto_free char *both = forge_asprintf(
			"%s | %s",
			pending ? pending
				: forge_admit_why(&l->session->home, l->session->cfg,
						  &need, why),
			command ? command : "");
		set(l, at, COMMAND, both, FORGE_PLAIN);
	}
	set(l, at, STATUS, row->status, forge_status_colour(row->status));
	if (start > 0 && l->now >= start)
		set(l, at, TIME,
		    forge_format_duration(text, (uint64_t)(l->now - start) * 1000000),
		    FORGE_PLAIN);
	forge_run_usage(l->slots, row->run_id, &u);
	if (u.memory_bytes != UINT64_MAX)
		set_size(l, at, u.memory_bytes);
}

static void add_over(struct listing *l, const struct forge_run_row *row, size_t at)
{
	char text[FORGE_FORMAT_MAX], status[128];
	bool is_plain = !row->reason || strcmp(row->reason, "exit") == 0 ||
			strcmp(row->reason, row->status) == 0;

	/* Something about the host that the sentence of the run tells. */
	bool has_mark = row->notes && strstr(row->notes, "Health: ");

	(void)snprintf(status, sizeof(status), "%s%s%s%s", row->status,
		       is_plain ? "" : ": ", is_plain ? "" : row->reason,
		       has_mark ? " (health!)" : "");
	set(l, at, STATUS, status, forge_status_colour(row->status));
	if (row->wall_usec >= 0)
		set(l, at, TIME, forge_format_duration(text, (uint64_t)row->wall_usec),
		    FORGE_PLAIN);
	if (row->memory_peak >= 0)
		set_size(l, at, (uint64_t)row->memory_peak);
}

/* Later attempts are runs of their own; their status says so. */
static void add_attempt(struct listing *l, const struct forge_run_row *row, size_t at)
{
	struct forge_cell *cell = &l->cells[at * COLUMNS + STATUS];
	char *text = row->attempt > 1 && cell->text
			     ? forge_asprintf("%s (attempt %" PRId64 ")", cell->text,
					      row->attempt)
			     : NULL;

	if (!text)
		return;
	free((char *)cell->text);
	cell->text = text;
}

static int add_row(const struct forge_run_row *row, void *arg)
{
	struct listing *l = arg;
	char when[32];

	if (!make_room(l))
		return -ENOMEM;
	size_t at = l->rows++;
	forge_auto_json json_t *record =
		row->record ? json_loads(row->record, 0, NULL) : NULL;
	forge_auto_free char *command = forge_record_command(record);
	for (int c = 0; c < COLUMNS; c++)
		set(l, at, c, NULL, FORGE_PLAIN);
	set(l, at, RUN, row->run_id, FORGE_PLAIN);
	if (strcmp(row->analysis_id, row->run_id) != 0)
		set(l, at, NAME, row->analysis_id, FORGE_PLAIN);
	if (forge_status_is_terminal(forge_status_of(row->status)))
		add_over(l, row, at);
	else
		add_open(l, row, record, command, at);
	add_attempt(l, row, at);
	set(l, at, CREATED, format_time(l, row->created_at, when), FORGE_DIM);
	set(l, at, USER, row->user, FORGE_DIM);
	if (!l->cells[at * COLUMNS + COMMAND].text)
		set(l, at, COMMAND, command, FORGE_PLAIN);
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
	json_object_set_new(j, "parent_run",
			    row->parent_run ? json_string(row->parent_run) : json_null());
	json_object_set_new(j, "attempt", number_or_null(row->attempt));
	int rc = json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
	return rc < 0 ? -EIO : 0;
}

/* Cuts the ids to the length at which they differ: every command takes a prefix. */
static void shorten_ids(struct listing *l)
{
	size_t n = 13;

	for (size_t a = 1; a < l->rows; a++)
		for (size_t b = a + 1; b < l->rows; b++)
			while (n < FORGE_RUN_ID_MAX - 1 &&
			       strncmp(l->cells[a * COLUMNS].text,
				       l->cells[b * COLUMNS].text, n) == 0)
				n++;
	for (size_t r = 1; r < l->rows; r++)
		if (strlen(l->cells[r * COLUMNS].text) > n)
			((char *)l->cells[r * COLUMNS].text)[n] = '\0';
}

/* An empty column is left out. */
static bool is_empty(const struct listing *l, int column)
{
	char buf[FORGE_USER_MAX];
	const char *user = forge_user_name(buf);

	for (size_t r = 1; r < l->rows; r++) {
		const char *text = l->cells[r * COLUMNS + (size_t)column].text;
		if (text && (column != USER || strcmp(text, user) != 0))
			return false;
	}
	return true;
}

static void print_cells(const struct listing *l)
{
	struct forge_cell *kept = calloc(l->rows * COLUMNS, sizeof(*kept));
	bool is_left_out[COLUMNS] = {
		[NAME] = is_empty(l, NAME), [USER] = is_empty(l, USER)
	};
	size_t n = 0, columns = 0;

	if (!kept)
		return;
	for (int c = 0; c < COLUMNS; c++)
		columns += !is_left_out[c];
	for (size_t r = 0; r < l->rows; r++)
		for (int c = 0; c < COLUMNS; c++)
			if (!is_left_out[c])
				kept[n++] = l->cells[r * COLUMNS + (size_t)c];
	forge_table_print_lines(stdout, kept, columns, l->rows);
	free(kept);
}

static int stop_at_first(const struct forge_run_row *row, void *arg)
{
	(void)row;
	(void)arg;
	return 1;
}

/* The store is empty, and there were runs: says how they come back. */
static void note_empty(struct forge_session *s)
{
	const struct forge_run_filter any = { .with_parts = true, .limit = 1 };
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	if (forge_store_list(s->store, &any, stop_at_first, NULL, NULL) != 0)
		return;
	(void)forge_entries_open(&d, s->home.runs_fd, "."); /* then there is no hint */
	for (const char *name; (name = forge_entries_next(&d));)
		if (forge_run_id_is_valid(name)) {
			fprintf(stderr,
				"forge: the store has no run, and there are directories "
				"of runs in %s: `forge gc` stores those again that were "
				"in "
				"it\n",
				s->home.path);
			return;
		}
}

static int print_table(struct forge_session *s, struct forge_error *err)
{
	static const char *const heading[COLUMNS] = { "RUN",  "NAME",	"STATUS",
						      "TIME", "MEMORY", "CREATED",
						      "USER", "COMMAND" };
	struct listing l = { .session = s,
			     .slots = forge_slot_all(&s->home),
			     .is_terminal = isatty(STDOUT_FILENO),
			     .now = time(NULL) };
	int rc = make_room(&l) ? 0 : forge_fail(err, ENOMEM, "out of memory");

	o.filter.with_record = true;
	if (rc == 0) {
		for (int c = 0; c < COLUMNS; c++)
			set(&l, 0, c, heading[c], FORGE_BOLD);
		l.rows = 1;
		rc = forge_store_list(s->store, &o.filter, add_row, &l, err);
	}
	forge_auto_free char *last =
		l.rows > 1 ? strdup(l.cells[(l.rows - 1) * COLUMNS].text) : NULL;
	if (rc >= 0 && l.is_terminal && l.rows < 1000)
		shorten_ids(&l);
	if (rc >= 0)
		print_cells(&l);
	/* On stderr: a pipe that counts lines must not count this one. */
	if (rc > 0 && o.filter.limit && (unsigned)rc == o.filter.limit && !o.filter.sort)
		fprintf(stderr, "forge: there may be more: --after %s, or --all\n",
			last ? last : "");
	if (rc == 0)
		note_empty(s);
	for (size_t i = 0; i < l.rows * COLUMNS; i++)
		free((char *)l.cells[i].text);
	free(l.cells);
	json_decref(l.slots);
	return rc;
}

/* *ret stays where there is no such option. */
static int parse_time(const char *option, const char *text, char buf[FORGE_RUN_ID_MAX],
		      const char **ret, struct forge_error *err)
{
	int rc = text ? forge_record_time_to_id(text, buf, err) : 0;

	if (text && rc == 0)
		*ret = buf;
	return rc < 0 ? forge_wrap(err, rc, "--%s", option) : rc;
}

/* A digest as in records or as sha256sum prints it, or a file to be hashed. */
static int digest_of(const char *word, char buf[FORGE_DIGEST_MAX],
		     struct forge_error *err)
{
	uint64_t size;

	if (!word)
		return 0;
	const char *hex = strncmp(word, "sha256:", 7) == 0 ? word + 7 : word;
	(void)snprintf(buf, FORGE_DIGEST_MAX, "sha256:%.65s", hex);
	o.filter.output = buf;
	if (forge_objects_is_digest(buf))
		return 0;
	forge_auto_close int fd =
		open(word, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	int rc = fd < 0 ? -errno : forge_sha256_fd(fd, -1, buf, &size);
	return rc < 0 ? forge_fail_errno(err, -rc, "--output %s", word) : 0;
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
	char since[FORGE_RUN_ID_MAX], until[FORGE_RUN_ID_MAX], digest[FORGE_DIGEST_MAX];
	int rc = forge_refuse_words(&forge_cmd_ps, argc, argv, 0);

	if (rc)
		return rc;
	o.filter.limit = o.is_all ? 0 : o.limit ? o.limit : 20;
	o.filter.with_parts = o.is_all;
	/* Pages are by creation; with another order runs would be missing. */
	if (o.filter.after && o.filter.sort && strcmp(o.filter.sort, "created") != 0)
		rc = forge_fail(&err, EINVAL, "--after goes with --sort created only");
	if (rc == 0)
		rc = parse_time("since", o.since, since, &o.filter.since, &err);
	if (rc == 0)
		rc = parse_time("until", o.until, until, &o.filter.until, &err);
	if (rc == 0)
		rc = digest_of(o.output, digest, &err);
	forge_session_rule = FORGE_SESSION_LOOKS;
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
	.about = "Without options the last 20 runs, over or not: what goes on with the "
		 "time "
		 "and\n"
		 "memory it has used so far, what waits with the reason.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_ps,
	.opts = ps_opts,
};
