/* SPDX-License-Identifier: Apache-2.0 */
/* forge top: shows running and queued runs on a page that is redrawn. */
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/strv.h"
#include "cli/session.h"
#include "cli/table.h"
#include "executor/executor.h"
#include "state/slot.h"
#include "record/record.h"
#include "run/admit.h"

static const char *delay_text, *sort = "memory";
static bool is_once, all_users;

static const struct forge_opt *top_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING('d', "delay", "TIME", &delay_text,
			     "Draw it again after so long (2s)"),
		FORGE_WORD(0, "sort", "memory|cpu", &sort, "What has most comes first"),
		FORGE_FLAG(0, "all-users", &all_users,
			   "Others' runs of the store as well"),
		FORGE_FLAG(0, "once", &is_once, "Print it once, and no page"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

struct row {
	char id[FORGE_RUN_ID_MAX];
	char *name, *command, *why; /* why: it is queued */
	char *status;
	uint64_t memory, memory_limit, cpu_usec; /* UINT64_MAX: unknown */
	double cpus; /* CPUs in use since the last update, < 0: unknown */
	time_t since;
};

struct page {
	struct forge_session *s;
	json_t *slots; /* as they are now */
	struct row *rows;
	size_t n;
	/* the previous update: CPU times by run id */
	struct row *before;
	size_t n_before;
	uint64_t looked_usec, before_usec;
	time_t now;
};

static void free_rows(struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(rows[i].name);
		free(rows[i].command);
		free(rows[i].why);
		free(rows[i].status);
	}
	free(rows);
}

static int add_row(const struct forge_run_row *r, void *arg)
{
	struct page *p = arg;
	struct row *grown = reallocarray(p->rows, p->n + 1, sizeof(*grown));
	struct forge_usage_now u;
	char why[FORGE_WHY_MAX];

	if (!grown)
		return -ENOMEM;
	p->rows = grown;
	struct row *row = &grown[p->n++];
	forge_auto_json json_t *record =
		r->record ? json_loads(r->record, 0, NULL) : NULL;
	*row = (struct row){
		.memory_limit = forge_record_limit(record, "memory_bytes", 1),
		.cpus = -1,
		.since = forge_record_time(r->started_at ? r->started_at : r->created_at)
	};
	(void)snprintf(row->id, sizeof(row->id), "%s", r->run_id);
	row->status = strdup(r->status);
	if (strcmp(r->analysis_id, r->run_id) != 0)
		row->name = strdup(r->analysis_id);
	row->command = forge_record_command(record);
	forge_run_usage(p->slots, r->run_id, &u);
	row->memory = u.memory_bytes;
	row->cpu_usec = u.cpu_usec;
	if (strcmp(r->status, "queued") == 0) {
		struct forge_need need = { .memory_bytes = row->memory_limit,
					   .cpus_milli = forge_record_limit(record,
									    "cpus", 1000),
					   .run_id = r->run_id };
		const char *pending = forge_run_pending(p->slots, r->run_id);
		row->why = strdup(
			pending ? pending
				: forge_admit_why(&p->s->home, p->s->cfg, &need, why));
	}
	for (size_t i = 0; i < p->n_before; i++)
		if (strcmp(p->before[i].id, row->id) == 0 && u.cpu_usec != UINT64_MAX &&
		    p->before[i].cpu_usec <= u.cpu_usec &&
		    p->looked_usec > p->before_usec)
			row->cpus = (double)(u.cpu_usec - p->before[i].cpu_usec) /
				    (double)(p->looked_usec - p->before_usec);
	return 0;
}

/* Running before queued runs; then by --sort. */
static int compare(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (!x->why != !y->why)
		return x->why ? 1 : -1;
	if (x->why)
		return strcmp(x->id, y->id);
	if (strcmp(sort, "cpu") == 0 && x->cpus != y->cpus)
		return x->cpus < y->cpus ? 1 : -1;
	uint64_t m = x->memory == UINT64_MAX ? 0 : x->memory;
	uint64_t n = y->memory == UINT64_MAX ? 0 : y->memory;
	return m < n ? 1 : m > n ? -1 : strcmp(x->id, y->id);
}

static int look(struct page *p, struct forge_error *err)
{
	char user[FORGE_USER_MAX];
	const struct forge_run_filter f = { .open_only = true,
					    .with_record = true,
					    .oldest_first = true,
					    .user = all_users ? NULL
							      : forge_user_name(user) };

	free_rows(p->before, p->n_before);
	p->before = p->rows;
	p->n_before = p->n;
	p->before_usec = p->looked_usec;
	p->rows = NULL;
	p->n = 0;
	p->looked_usec = forge_now_usec();
	p->now = time(NULL);
	p->slots = forge_slot_all(&p->s->home);
	int rc = forge_store_list(p->s->store, &f, add_row, p, err);
	json_decref(p->slots);
	if (rc >= 0 && p->n)
		qsort(p->rows, p->n, sizeof(*p->rows), compare);
	return rc < 0 ? rc : 0;
}

enum { RUN, NAME, TIME, CPUS, MEMORY, LIMIT, COMMAND, COLUMNS };

static void fill(const struct page *p, const struct row *r, struct forge_cell *cells,
		 char text[COLUMNS][FORGE_WHY_MAX])
{
	char size[FORGE_FORMAT_MAX];

	(void)snprintf(text[RUN], FORGE_WHY_MAX, "%.13s", r->id);
	(void)snprintf(text[TIME], FORGE_WHY_MAX, "%s",
		       forge_format_duration(
			       size, r->since && p->now > r->since
					     ? (uint64_t)(p->now - r->since) * 1000000
					     : 0));
	(void)snprintf(text[CPUS], FORGE_WHY_MAX, r->cpus < 0 ? "-" : "%.2f", r->cpus);
	(void)snprintf(text[MEMORY], FORGE_WHY_MAX, "%s",
		       r->memory == UINT64_MAX ? "-"
					       : forge_format_size(size, r->memory));
	(void)snprintf(text[LIMIT], FORGE_WHY_MAX, "%s",
		       forge_format_size(size, r->memory_limit));
	for (int c = 0; c < COLUMNS; c++)
		cells[c] = (struct forge_cell){ text[c], FORGE_PLAIN };
	cells[NAME].text = r->name;
	cells[COMMAND].text = r->why ? r->why : r->command;
	if (r->why)
		cells[COMMAND].colour = FORGE_YELLOW;
	/* Highlights a usage of nine tenths of the limit. */
	if (r->memory != UINT64_MAX && r->memory_limit != FORGE_UNLIMITED &&
	    r->memory > r->memory_limit / 10 * 9)
		cells[MEMORY].colour = FORGE_RED;
}

static void print_head(const struct page *p)
{
	size_t queued = 0;
	char clock[16] = "";
	struct tm tm;

	for (size_t i = 0; i < p->n; i++)
		queued += p->rows[i].why != NULL;
	if (localtime_r(&p->now, &tm))
		(void)strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	printf("forge top  %s  %zu running, %zu queued  by %s%s\n\n", clock,
	       p->n - queued, queued, sort, is_once ? "" : "  (m memory, c CPU, q quit)");
}

static void draw(const struct page *p, size_t height)
{
	static const char *const heading[COLUMNS] = { "RUN",	"NAME",	 "TIME",   "CPUS",
						      "MEMORY", "LIMIT", "COMMAND" };
	/* The head has three lines, and the cursor needs one. */
	size_t shown = height > 5 && p->n > height - 5 ? height - 5 : p->n;
	struct forge_cell *cells = calloc((shown + 1) * COLUMNS, sizeof(*cells));
	char(*texts)[COLUMNS][FORGE_WHY_MAX] = calloc(shown + 1, sizeof(*texts));

	print_head(p);
	for (size_t c = 0; cells && c < COLUMNS; c++)
		cells[c] = (struct forge_cell){ heading[c], FORGE_BOLD };
	for (size_t i = 0; cells && texts && i < shown; i++)
		fill(p, &p->rows[i], &cells[(i + 1) * COLUMNS], texts[i]);
	if (cells && texts)
		forge_table_print_lines(stdout, cells, COLUMNS, shown + 1);
	if (shown < p->n)
		printf("... and %zu more\n", p->n - shown);
	free(cells);
	free(texts);
}

/* ---- the terminal ---- */

static struct termios terminal;

static void open_page(void)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal) == 0) {
		raw = terminal;
		raw.c_lflag &= (tcflag_t) ~(ICANON | ECHO);
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	/* The alternate screen, so that the old one is restored; no cursor. */
	fputs("\033[?1049h\033[?25l", stdout);
}

static void close_page(void)
{
	fputs("\033[?25h\033[?1049l", stdout);
	(void)fflush(stdout);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
}

static size_t height_of(void)
{
	struct winsize ws;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_row ? ws.ws_row : 24;
}

/* False: the user wants to quit. */
static bool take_key(void)
{
	char key;
	ssize_t n = read(STDIN_FILENO, &key, 1);

	if (n <= 0 || key == 'q' || key == 'Q')
		return false;
	if (key == 'm' || key == 'M')
		sort = "memory";
	if (key == 'c' || key == 'C')
		sort = "cpu";
	return true;
}

static int serve(struct page *p, int delay_msec, struct forge_error *err)
{
	sigset_t set, before;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGWINCH);
	(void)sigprocmask(SIG_BLOCK, &set, &before);
	forge_auto_close int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	bool goes_on = signals >= 0;
	int rc = 0;

	open_page();
	while (goes_on && (rc = look(p, err)) == 0) {
		struct signalfd_siginfo si;
		struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
					{ .fd = signals, .events = POLLIN } };
		fputs("\033[H\033[2J", stdout);
		draw(p, height_of());
		(void)fflush(stdout);
		if (poll(fds, 2, delay_msec) < 0 && errno != EINTR)
			break;
		if (fds[0].revents)
			goes_on = take_key();
		if (fds[1].revents && read(signals, &si, sizeof(si)) > 0 &&
		    si.ssi_signo != SIGWINCH)
			goes_on = false;
	}
	close_page();
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int cmd_top(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	struct page p = { .s = &s };
	uint64_t usec = 2000000;
	int rc = forge_refuse_words(&forge_cmd_top, argc, argv, 0);

	if (rc)
		return rc;
	if (delay_text)
		rc = forge_parse_duration(delay_text, &usec, &err);
	if (rc < 0)
		(void)forge_wrap(&err, rc, "--delay");
	forge_session_rule = FORGE_SESSION_LOOKS;
	if (rc == 0)
		rc = forge_session_open(&s, true, &err);
	if (rc == 0 && (is_once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))) {
		is_once = true;
		rc = look(&p, &err);
		if (rc == 0)
			draw(&p, SIZE_MAX);
	} else if (rc == 0) {
		rc = serve(&p, usec > 3600000000ULL ? 3600000 : (int)(usec / 1000) + 1,
			   &err);
	}
	free_rows(p.rows, p.n);
	free_rows(p.before, p.n_before);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_top = {
	.name = "top",
	.synopsis = "[OPTIONS]",
	.help = "Watch what runs and what waits",
	.about = "A page of the runs that are not over: CPUs they keep busy, memory they "
		 "have now\n"
		 "and may have, and why the queued ones wait. m sorts by memory, c by "
		 "CPU, q "
		 "ends it.\n"
		 "Without a terminal, or with --once, it is printed once.",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_top,
	.opts = top_opts,
};
