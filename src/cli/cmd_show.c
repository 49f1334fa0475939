/* SPDX-License-Identifier: Apache-2.0 */
/* forge show: shows one run, the verdict first. */
#include "cli/cli.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/chart.h"
#include "cli/session.h"
#include "cli/table.h"
#include "executor/executor.h"
#include "record/foreign.h"
#include "record/record.h"
#include "run/admit.h"
#include "state/samples.h"
#include "state/slot.h"
#include "store/state.h"

static bool is_json, is_chart;

static const struct forge_opt *show_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "json", &is_json, "Print the record as JSON"),
		FORGE_FLAG(0, "chart", &is_chart,
			   "Draw what it used over time; with --json, the points"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static void print_line(const char *label, const char *text)
{
	if (!text || !*text)
		return;
	printf("%-10s", label);
	forge_print_clean(stdout, text, strlen(text));
	putchar('\n');
}

/* ---- used against allowed ---- */

enum unit { BYTES, SECONDS, COUNT };

static const struct {
	const char *name, *used, *allowed;
	enum unit unit;
} rows[] = {
	{ "memory", "memory_peak_bytes", "memory_bytes", BYTES },
	{ "wall time", "wall_seconds", "wall_seconds", SECONDS },
	{ "CPU time", "cpu_seconds", "cpu_seconds", SECONDS },
	{ "processes", "pids_peak", "pids", COUNT },
	{ "disk", "disk_peak_bytes", "disk_bytes", BYTES },
	{ "files", "inodes_peak", "inodes", COUNT },
	{ "stdout", "stdout_bytes", "output_bytes", BYTES },
	{ "stderr", "stderr_bytes", "output_bytes", BYTES },
};

#define BAR 20

static const char *format(char buf[FORGE_FORMAT_MAX], const json_t *j, enum unit unit)
{
	if (!json_is_number(j))
		return NULL;
	double n = json_number_value(j);
	if (unit == SECONDS)
		return forge_format_duration(buf, (uint64_t)(n * 1e6));
	if (unit == BYTES)
		return forge_format_size(buf, (uint64_t)n);
	(void)snprintf(buf, FORGE_FORMAT_MAX, "%.0f", n);
	return buf;
}

/* Any usage is at least one mark. */
static void draw_bar(char *buf, size_t size, double share, bool is_utf8)
{
	int full = share >= 1 ? BAR : (int)(share * BAR);
	size_t len = 0;

	full = full == 0 && share > 0.001 ? 1 : full;
	for (int i = 0; i < BAR && len + 4 < size; i++)
		len += (size_t)snprintf(buf + len, size - len, "%s",
					i < full ? (is_utf8 ? "█" : "#")
						 : (is_utf8 ? "░" : "."));
	(void)snprintf(buf + len, size - len, " %3.0f %%", share * 100);
}

static void print_budget(const json_t *record)
{
	enum { NAME, USED, ALLOWED, SHARE, COLUMNS };
	const json_t *usage = json_object_get(record, "usage"),
		     *limits = json_object_get(record, "limits");
	struct forge_cell cells[(1 + FORGE_ARRAY_SIZE(rows)) * COLUMNS] = {
		{ "BUDGET", FORGE_BOLD },
		{ "USED", FORGE_BOLD },
		{ "ALLOWED", FORGE_BOLD },
		{ " ", FORGE_PLAIN }
	};
	char text[FORGE_ARRAY_SIZE(rows)][2][FORGE_FORMAT_MAX],
		bars[FORGE_ARRAY_SIZE(rows)][128];
	bool is_utf8 =
		setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	size_t n = 1;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		const json_t *used = json_object_get(usage, rows[i].used);
		const json_t *allowed = json_object_get(limits, rows[i].allowed);
		struct forge_cell *row = &cells[n * COLUMNS];
		if (!json_is_number(used))
			continue;
		row[NAME].text = rows[i].name;
		row[USED].text = format(text[i][0], used, rows[i].unit);
		row[ALLOWED].text = format(text[i][1], allowed, rows[i].unit);
		if (!row[ALLOWED].text)
			row[ALLOWED].text = "unlimited";
		row[SHARE].text = " ";
		if (json_is_number(allowed) && json_number_value(allowed) > 0) {
			double share =
				json_number_value(used) / json_number_value(allowed);
			draw_bar(bars[i], sizeof(bars[i]), share, is_utf8);
			row[SHARE] = (struct forge_cell){ bars[i],
							  share > 0.9	? FORGE_RED
							  : share > 0.7 ? FORGE_YELLOW
									: FORGE_GREEN };
		}
		n++;
	}
	if (n > 1) {
		putchar('\n');
		forge_table_print(stdout, cells, COLUMNS, n);
	}
}

/* ---- files ---- */

#define FILES_SHOWN 20

static void print_files(const json_t *record, const char *key, const char *heading)
{
	enum { PATH, SIZE, DIGEST, COLUMNS };
	const json_t *files = json_object_get(record, key), *f;
	struct forge_cell cells[(1 + FILES_SHOWN) * COLUMNS] = {
		{ heading, FORGE_BOLD }, { "SIZE", FORGE_BOLD }, { "SHA-256", FORGE_BOLD }
	};
	char sizes[FILES_SHOWN][FORGE_FORMAT_MAX], damaged[FILES_SHOWN][96];
	size_t i, n = json_array_size(files);

	if (n == 0)
		return;
	json_array_foreach (files, i, f) {
		if (i == FILES_SHOWN)
			break;
		const char *digest = forge_json_string(f, "sha256");
		struct forge_cell *row = &cells[(i + 1) * COLUMNS];
		row[PATH].text = forge_json_string(f, "path");
		row[SIZE].text = format(sizes[i], json_object_get(f, "size"), BYTES);
		row[DIGEST].text = digest ? digest + strlen("sha256:")
					  : forge_json_string(f, "error");
		row[DIGEST].colour = FORGE_DIM;
		if (!json_is_true(json_object_get(f, "damaged")))
			continue;
		(void)snprintf(damaged[i], sizeof(damaged[i]), "%s (damaged)",
			       row[DIGEST].text);
		row[DIGEST] = (struct forge_cell){ damaged[i], FORGE_RED };
	}
	putchar('\n');
	forge_table_print(stdout, cells, COLUMNS,
			  1 + (n < FILES_SHOWN ? n : FILES_SHOWN));
	if (n > FILES_SHOWN)
		printf("... and %zu more\n", n - FILES_SHOWN);
}

static void print_command(const json_t *record)
{
	size_t i;
	const json_t *word;

	printf("%-10s", "command");
	json_array_foreach (json_object_get(record, "command"), i, word) {
		const char *s = json_string_value(word);
		bool is_plain = *s && !s[strcspn(s, " \t\n\"'\\$&;|<>()*?[]#~`")];
		if (i > 0)
			putchar(' ');
		if (!is_plain)
			putchar('\'');
		forge_print_clean(stdout, s, strlen(s));
		if (!is_plain)
			putchar('\'');
	}
	putchar('\n');
}

static void print_isolation(const json_t *record)
{
	const json_t *isolation = json_object_get(record, "isolation"),
		     *missing = json_object_get(isolation, "missing"), *m;
	const char *level = forge_json_string(isolation, "level");
	size_t i;

	if (!level)
		return;
	printf("%-10s%s", "isolation", level);
	json_array_foreach (missing, i, m)
		printf("%s%s", i ? ", " : ", without ", json_string_value(m));
	putchar('\n');
}

/* Where it ran, if not in a sandbox on this machine. */
static void print_executor(const json_t *record)
{
	const char *name = forge_json_string_or(record, "executor", "local");
	const json_t *image = json_object_get(record, "image");
	char text[400];

	if (strcmp(name, "local") == 0)
		return;
	(void)snprintf(text, sizeof(text), "%.64s%s%.200s%s%.24s", name,
		       image ? ", image " : "", forge_json_string_or(image, "name", ""),
		       image ? " " : "", forge_json_string_or(image, "id", ""));
	print_line("executor", text);
}

static void print_runtime(const json_t *record)
{
	const json_t *runtime = json_object_get(record, "runtime");
	const char *digest = forge_json_string(runtime, "digest");

	if (!json_is_object(runtime))
		return;
	printf("%-10s%s (%s), %.19s, %s%s\n", "runtime",
	       forge_json_string(runtime, "name"), forge_json_string(runtime, "kind"),
	       digest ? digest : "", forge_json_string(runtime, "why"),
	       json_object_get(runtime, "changed_to") ? "; CHANGED during the run" : "");
}

static void print_post_process(const json_t *record)
{
	const json_t *post = json_object_get(record, "post_process");

	if (!json_is_object(post))
		return;
	printf("%-10s%s, %lld records: ", "post", forge_json_string(post, "status"),
	       (long long)json_integer_value(json_object_get(post, "records")));
	const char *notes = forge_json_string(post, "completion_notes");
	forge_print_clean(stdout, notes ? notes : "", notes ? strlen(notes) : 0);
	putchar('\n');
}

static const char *phase_word(const json_t *phase)
{
	return !phase					    ? "not checked"
	       : json_is_true(json_object_get(phase, "ok")) ? "ok"
							    : "failed";
}

/* pre ok, post ok (0 guarded files changed by this run; 3 changed by others) */
static void print_health(const json_t *record)
{
	const json_t *health = json_object_get(record, "health"),
		     *post = json_object_get(health, "post"),
		     *guard = json_object_get(post, "guard"),
		     *cleared = json_object_get(record, "cleared");

	if (!json_is_object(health))
		return;
	printf("%-10spre %s, post %s", "health",
	       phase_word(json_object_get(health, "pre")), phase_word(post));
	if (json_object_get(guard, "by_run")) {
		json_int_t own = json_integer_value(json_object_get(guard, "by_run")),
			   others = json_integer_value(
				   json_object_get(guard, "by_others")),
			   unknown = json_integer_value(
				   json_object_get(guard, "unattributed"));
		printf(" (%lld guarded file%s changed by this run; %lld changed by "
		       "others",
		       (long long)own, own == 1 ? "" : "s", (long long)others);
		if (unknown)
			printf("; %lld by whom is not known", (long long)unknown);
		putchar(')');
	}
	putchar('\n');
	if (json_is_true(json_object_get(record, "quarantine")))
		print_line("held", "in quarantine (forge health clear)");
	if (cleared) {
		char text[700];
		(void)snprintf(text, sizeof(text), "%s by %.64s: %.500s",
			       forge_json_string_or(cleared, "at", ""),
			       forge_json_string_or(cleared, "by", ""),
			       forge_json_string_or(cleared, "note", ""));
		print_line("cleared", text);
	}
}

/* The attempts around this one. */
static void print_attempt(const json_t *record)
{
	json_int_t attempt = json_integer_value(json_object_get(record, "attempt"));
	const char *parent = forge_json_string(record, "parent_run");
	const char *next = forge_json_string(record, "retried_by");

	if (attempt > 1 || next)
		printf("%-10s%lld%s%s%s%s\n", "attempt", (long long)attempt,
		       attempt > 1 && parent ? ", after " : "",
		       attempt > 1 && parent ? parent : "", next ? ", retried by " : "",
		       next ? next : "");
}

static void show(const json_t *record)
{
	const char *status = forge_json_string(record, "status");
	const char *notes = forge_json_string(record, "completion_notes");
	bool has_colour = forge_has_colour(stdout);

	if (has_colour)
		fputs(forge_colour_code(forge_status_colour(status)), stdout);
	if (notes)
		forge_print_clean(stdout, notes, strlen(notes));
	else
		printf("%c%s.", status[0] - 'a' + 'A', status + 1);
	if (has_colour)
		fputs(forge_colour_code(FORGE_PLAIN), stdout);
	fputs("\n\n", stdout);
	print_line("run", forge_json_string(record, "run_id"));
	print_line("analysis", forge_json_string(record, "analysis_id"));
	print_attempt(record);
	print_line("status", status);
	print_line("reason", forge_json_string(record, "reason"));
	print_command(record);
	print_executor(record);
	print_line("host", forge_json_string(record, "host"));
	print_line("user", forge_json_string(record, "user"));
	print_line("created", forge_json_string(record, "created_at"));
	print_line("started", forge_json_string(record, "started_at"));
	print_line("ended", forge_json_string(record, "ended_at"));
	print_runtime(record);
	print_isolation(record);
	print_health(record);
	print_post_process(record);
	print_line("stdout",
		   forge_json_string(json_object_get(record, "logs"), "stdout"));
	print_line("stderr",
		   forge_json_string(json_object_get(record, "logs"), "stderr"));
	if (json_is_true(json_object_get(record, "workdir_kept")))
		print_line("workdir", forge_json_string(record, "workdir"));
	print_budget(record);
	print_files(record, "inputs", "INPUT");
	print_files(record, "outputs", "OUTPUT");
	json_int_t left = json_integer_value(json_object_get(record, "undeclared_count"));
	if (left)
		printf("\n%lld file%s in the workdir %s no declared output (--json lists "
		       "them)\n",
		       (long long)left, left == 1 ? "" : "s", left == 1 ? "was" : "were");
}

/* ---- what it used over time ---- */

/* The file of a run of another FORGE_HOME is found there; a path in the record is never opened. */
static int read_samples(const struct forge_session *s, const json_t *record, json_t **ret,
			struct forge_error *err)
{
	const char *run_id = forge_json_string_or(record, "run_id", "");
	forge_auto_home struct forge_home theirs = FORGE_HOME_INIT;

	if (!forge_record_is_here(record))
		return forge_foreign_fail(record, "samples", EREMOTE, err);
	if (!forge_foreign_is(&s->home, record))
		return forge_samples_read(&s->home, run_id, ret, err);
	int rc = forge_foreign_open(record, "samples", &theirs, err);
	if (rc < 0)
		return rc;
	forge_auto_close int fd =
		forge_foreign_open_log(&theirs, record, FORGE_SAMPLES_FILE);
	if (fd == -ENOENT) /* the form without any point */
		return forge_samples_read(&s->home, run_id, ret, err);
	return fd < 0 ? forge_foreign_fail(record, "samples", -fd, err)
		      : forge_samples_read_fd(fd, ret, err);
}

static const char *why_no_samples(const json_t *record)
{
	if (json_is_true(json_object_get(record, "logs_removed")))
		return "forge gc removed them with its logs";
	if (!forge_status_is_terminal(
		    forge_status_of(forge_json_string(record, "status"))))
		return "there is none yet; those of a run on a cluster come when it ends";
	return "it was too short, or sampling.interval was off";
}

static int show_chart(const struct forge_session *s, const json_t *record,
		      struct forge_error *err)
{
	forge_auto_json json_t *samples = NULL;
	char name[FORGE_RUN_NAME_MAX];
	int rc = read_samples(s, record, &samples, err);

	if (rc < 0)
		return rc;
	if (is_json) {
		forge_print_json(samples);
		return 0;
	}
	printf("%s", forge_record_name(record, name));
	if (json_array_size(json_object_get(samples, "samples"))) {
		putchar('\n');
		forge_chart_print(stdout, record, samples);
	} else {
		printf(" has no samples: %s\n", why_no_samples(record));
	}
	return 0;
}

/* Of a run that is not over: what it uses now, or why it waits. */
static void add_now(const struct forge_session *s, json_t *record)
{
	struct forge_usage_now u;
	char why[FORGE_WHY_MAX];
	const char *run_id = forge_json_string(record, "run_id");
	const char *status = forge_json_string_or(record, "status", "");

	if (forge_record_is_over(record) || !forge_record_is_here(record))
		return;
	forge_auto_json json_t *slots = forge_slot_all(&s->home);
	json_t *now = json_object();
	forge_run_usage(slots, run_id, &u);
	json_object_set_new(now, "memory_bytes", forge_json_number(u.memory_bytes));
	json_object_set_new(now, "cpu_seconds", forge_json_seconds(u.cpu_usec));
	if (strcmp(status, "queued") == 0) {
		const struct forge_need need = {
			.memory_bytes = forge_record_limit(record, "memory_bytes", 1),
			.cpus_milli = forge_record_limit(record, "cpus", 1000),
			.run_id = run_id,
		};
		const char *pending = forge_run_pending(slots, run_id);
		json_object_set_new(now, "waits",
				    forge_json_text(pending ? pending
							    : forge_admit_why(&s->home,
									      s->cfg,
									      &need,
									      why)));
	}
	json_object_set_new(record, "now", now);
}

static int cmd_show(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_strv struct forge_strv ids = { 0 };
	forge_session_rule = FORGE_SESSION_LOOKS;
	int rc = forge_session_runs(&s, &forge_cmd_show, argc, argv, false, &ids, &err);

	if (rc > 0)
		return rc;
	for (size_t i = 0; i < ids.n && rc == 0; i++) {
		forge_auto_json json_t *record = NULL;
		rc = forge_session_record(&s, ids.v[i], &record, &err);
		if (rc < 0)
			break;
		forge_session_note_damage(&s, record);
		if (is_json && !is_chart) {
			add_now(&s, record);
			forge_print_json(record);
			continue;
		}
		if (i && !is_json)
			putchar('\n');
		if (is_chart)
			rc = show_chart(&s, record, &err);
		else
			show(record);
	}
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_show = {
	.name = "show",
	.synopsis = "[OPTIONS] RUN...",
	.help = "Show how a run ended, what it used and what it left",
	.about = "RUN is a run id or the beginning of one, an analysis id (its newest "
		 "run), or\n"
		 "last.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_show,
	.opts = show_opts,
};
