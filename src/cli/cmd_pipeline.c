/* SPDX-License-Identifier: Apache-2.0 */
/* forge pipeline: steps that are joined by files. */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/strv.h"
#include "cli/pipeline_cli.h"
#include "cli/pipeline_replay.h"
#include "cli/pipeline_view.h"
#include "cli/session.h"
#include "pipeline/draw.h"
#include "pipeline/head.h"
#include "pipeline/journal.h"
#include "pipeline/report.h"

static const char *file, *params_file, *format;
static struct forge_strv params;
static struct forge_strv force, from, only, given;
static const char *entry;
#define JOBS_UNSET ~0u
static unsigned jobs = JOBS_UNSET;
static bool is_json, is_quiet, stops, goes_on, is_dry, is_sure, replaces;
static const char *to;

static const struct forge_opt *pipeline_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING('f', "file", "FILE", &file,
			     "The pipeline (./pipeline.yaml), where the word is a step"),
		FORGE_STRV('p', "param", "NAME=VALUE", &params,
			   "Set a parameter of the pipeline"),
		FORGE_STRING(0, "params", "FILE", &params_file,
			     "Read parameters from a YAML or JSON file"),
		FORGE_STRV(0, "force", "STEP", &force,
			   "Run this step even if it is up to date"),
		FORGE_STRV(0, "from", "STEP", &from,
			   "Run this step and all that follow from it"),
		FORGE_STRV(0, "only", "STEP", &only, "Run nothing but this step"),
		FORGE_STRING(0, "entry", "NAME", &entry,
			     "Start at this entry of the pipeline"),
		FORGE_STRV(
			0, "given", "STEP=DIR", &given,
			"Take the outputs of a step that does not run from a directory"),
		FORGE_UINT('j', "jobs", "N", &jobs,
			   "Have at most N tasks running or queued, from 1"),
		FORGE_FLAG(0, "keep-going", &goes_on,
			   "Go on with what does not need a step that failed (the usual "
			   "way)"),
		FORGE_FLAG(0, "stop", &stops,
			   "Start nothing more after a step has failed"),
		FORGE_FLAG('n', "dry-run", &is_dry, "Say what would run, and why"),
		FORGE_WORD(0, "format", "text|svg|mermaid", &format,
			   "How to draw the graph"),
		FORGE_STRING('C', "copy", "DIR", &to,
			     "outputs: copy them below this directory; report: its file"),
		FORGE_FLAG(0, "replace", &replaces,
			   "Let --copy replace files that are there"),
		FORGE_FLAG('y', "yes", &is_sure, "clean: do not ask"),
		FORGE_FLAG(0, "json", &is_json, "Print JSON; of a run, an event a line"),
		FORGE_FLAG('q', "quiet", &is_quiet, "Show only what failed"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* ---- a pipeline and all that is needed to evaluate it ---- */

struct place {
	struct forge_config *cfg;
	struct forge_home home;
	char *store;
	struct forge_pipeline *p;
	struct forge_graph g;
	struct forge_head h;
};
#define PLACE_INIT ((struct place){ .home = FORGE_HOME_INIT, .h = FORGE_HEAD_INIT })

static void place_done(struct place *w)
{
	forge_head_close(&w->h);
	forge_graph_done(&w->g);
	forge_pipeline_free(w->p);
	forge_home_close(&w->home);
	forge_config_free(w->cfg);
	free(w->store);
}

static struct forge_pipeline_given typed(void)
{
	return (struct forge_pipeline_given){ &params, params_file };
}

/* With only the file: for lint and graph. */
static int read_file(struct place *w, const char *path,
		     const struct forge_pipeline_given *g, struct forge_error *err)
{
	int rc = forge_pipeline_read(path, g, &w->p, err);

	return rc < 0 ? rc : forge_graph_make(w->p, &w->g, err);
}

/* Repairs, and delivers what earlier runs could not: the store is closed again before anything forks. */
static int open_place(struct place *w, const char *path,
		      const struct forge_pipeline_given *g, struct forge_error *err)
{
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	int rc = forge_session_open(&s, true, err);

	if (rc < 0)
		return rc;
	w->store = strdup(s.url);
	w->cfg = forge_take_ptr(s.cfg);
	rc = w->store ? forge_home_open(true, &w->home, err)
		      : forge_fail(err, ENOMEM, "out of memory");
	return rc < 0 ? rc : read_file(w, path, g, err);
}

/* ---- run ---- */

#define DRAW_USEC 500000

struct running {
	const struct forge_pipeline_run *asked;
	struct forge_pipeline_view view;
	struct forge_journal journal;
	struct forge_replay replay; /* the head that is followed */
	uint64_t drawn_usec;
	const char *resume;  /* the command that goes on; NULL: not known */
	const char *options; /* a digest of what was asked for */
	bool is_other;	     /* the head that is followed was asked for something else */
};

static void show(struct running *r, const json_t *event)
{
	if (r->asked->on_event)
		r->asked->on_event(r->asked->arg, event);
	else
		forge_view_event(&r->view, event);
}

static void on_event(void *arg, const json_t *event)
{
	struct running *r = arg;

	forge_journal_add(&r->journal, event);
	show(r, event);
}

static void on_tick(void *arg)
{
	struct running *r = arg;

	forge_view_draw(&r->view);
}

static void show_event(void *arg, const json_t *event)
{
	struct running *r = arg;

	if (strcmp(forge_json_string_or(event, "event", ""), "begin") == 0)
		r->is_other = strcmp(forge_json_string_or(event, "options", ""),
				     r->options) != 0;
	forge_replay_event(&r->replay, event);
	r->view.h = r->replay.h.g ? &r->replay.h : NULL;
	/* What another request runs is no answer to this one. */
	if (!r->is_other || !r->asked->on_event)
		show(r, event);
}

static void show_tick(void *arg)
{
	struct running *r = arg;

	if (forge_now_usec() - r->drawn_usec < DRAW_USEC)
		return;
	r->drawn_usec = forge_now_usec();
	forge_view_draw(&r->view);
}

/* Shows what the head does that is there already. The exit status; -EAGAIN: it was killed, and this is the head now. */
static int follow(struct running *r, struct forge_error *err)
{
	sigset_t ours, before;
	int status = 0;

	fputs("forge: the pipeline is running already; this shows it, and ^C ends only "
	      "that\n",
	      stderr);
	sigemptyset(&ours);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGTERM);
	(void)sigprocmask(SIG_BLOCK, &ours, &before);
	forge_auto_close int signals = signalfd(-1, &ours, SFD_CLOEXEC);
	int rc = forge_journal_follow(&r->journal, signals, show_event, show_tick, r,
				      &status, err);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	if (rc == 0 && !r->is_other && r->view.h)
		rc = forge_view_end(&r->view, r->resume, err);
	forge_view_clear(&r->view);
	r->view.h = NULL;
	forge_replay_done(&r->replay);
	if (rc == -ECANCELED)
		return 130;
	if (rc == 1) {
		fputs("forge: the process that ran it was killed; going on\n", stderr);
		return -EAGAIN;
	}
	if (rc == 0 && r->is_other) {
		fputs("forge: that had other parameters or options; now these\n", stderr);
		return -EAGAIN;
	}
	return rc < 0 ? rc : status;
}

/* 1: another process is the head. */
static int become_head(struct place *w, struct running *r, struct forge_error *err)
{
	int rc = forge_journal_open(&w->home, w->p, &r->journal, err);

	r->replay.h.home = &w->home;
	while (rc == 1) {
		rc = follow(r, err);
		if (rc != -EAGAIN)
			return rc < 0 ? rc : 1000 + rc;
		forge_journal_close(&r->journal);
		rc = forge_journal_open(&w->home, w->p, &r->journal, err);
	}
	return rc;
}

static json_t *summary(const struct forge_head *h, int status)
{
	json_t *o = json_object();

	for (size_t i = 0; i < FORGE_TASK_STATES; i++)
		json_object_set_new(o, forge_task_state_names[i],
				    json_integer((json_int_t)h->counts[i]));
	return json_pack("{s:i, s:o, s:f}", "status", status, "tasks", o, "seconds",
			 (double)(forge_now_usec() - h->began_usec) / 1e6);
}

/* What is forced, or repeated with what follows, is so once. */
static char *resume_command(const struct forge_pipeline_run *r, const struct place *w)
{
	struct forge_pipeline_run again = *r;

	again.force = NULL;
	return forge_pipeline_command(&again, w->p->shown);
}

static int run_head(const struct forge_pipeline_run *r, struct place *w,
		    struct running *running, struct forge_error *err)
{
	const struct forge_head_options o = {
		.force = r->force,
		.from = r->from,
		.only = r->only,
		.entry = r->entry,
		.given = r->given,
		.jobs = r->jobs,
		.stops_at_failure = r->stops,
		.limits_of = r->limits_of,
		.limits = r->limits,
		.given_params = r->given_json,
		.on_event = on_event,
		.on_tick = running->view.is_live ? on_tick : NULL,
		.arg = running,
	};
	forge_auto_free char *resume = resume_command(r, w);
	int rc =
		forge_head_open(&w->h, &w->g, w->cfg, &w->home, w->store, &o, false, err);

	if (rc < 0)
		return rc;
	running->view.h = &w->h;
	forge_head_event(&w->h, "begin", -1,
			 json_pack("{s:s, s:s, s:I, s:i, s:s}", "pipeline", w->p->name,
				   "file", w->p->path, "tasks", (json_int_t)w->g.n, "pid",
				   (int)getpid(), "options", running->options));
	forge_head_plan_event(&w->h);
	rc = forge_head_run(&w->h, err);
	int status = rc < 0 || rc > 0 ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
	if (w->h.is_stopping && !r->stops)
		status = 130;
	forge_head_event(&w->h, "end", -1, summary(&w->h, status));
	if (rc < 0) {
		forge_view_clear(&running->view);
		if (resume && !r->is_json && w->h.n_jobs > 0)
			fprintf(stderr,
				"forge: what runs goes on without this process; then: "
				"%s\n",
				resume);
		return rc;
	}
	rc = forge_view_end(&running->view, resume, err);
	return rc < 0 ? rc : status;
}

static void add_words(struct forge_sha256 *h, const struct forge_strv *words)
{
	for (size_t i = 0; words && i < words->n; i++)
		forge_sha256_add(h, words->v[i], strlen(words->v[i]) + 1);
	forge_sha256_add(h, "", 1);
}

/* Of everything that makes a run of the same file another one. */
static void digest_options(const struct forge_pipeline_run *r, char ret[FORGE_DIGEST_MAX])
{
	const struct forge_strv *const lists[] = { r->params, r->force, r->from, r->only,
						   r->given };
	const char *const texts[] = { r->params_file, r->entry, r->limits_of,
				      r->resume_of };
	struct forge_sha256 h;

	forge_sha256_init(&h);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists); i++)
		add_words(&h, lists[i]);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts); i++)
		forge_sha256_add(&h, texts[i] ? texts[i] : "",
				 texts[i] ? strlen(texts[i]) + 1 : 1);
	forge_sha256_add(&h, &r->limits, sizeof(r->limits));
	(void)forge_sha256_done(&h, ret);
}

int forge_pipeline_run_file(const struct forge_pipeline_run *r, struct forge_error *err)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	struct forge_pipeline_run with = *r;
	struct running running = {
		.asked = r,
		.view = { .is_json = r->is_json,
			  .is_quiet = r->is_quiet,
			  .is_live =
				  !r->is_json && !r->is_quiet && isatty(STDERR_FILENO) },
		.journal = FORGE_JOURNAL_INIT,
	};
	char options[FORGE_DIGEST_MAX];
	digest_options(r, options);
	running.options = options;
	const struct forge_pipeline_given g = { r->params, r->params_file };
	forge_auto_json json_t *how = forge_pipeline_given_json(r);
	int rc = open_place(&w, r->path, &g, err);
	forge_auto_free char *resume = rc == 0 ? resume_command(r, &w) : NULL;

	with.given_json = how;
	running.resume = resume;
	if (rc == 0)
		rc = become_head(&w, &running, err);
	if (rc == 0)
		rc = run_head(&with, &w, &running, err);
	else if (rc >= 1000)
		rc -= 1000;
	/* The launcher must not hold the lock when this process is gone. */
	forge_head_close(&w.h);
	forge_journal_close(&running.journal);
	return rc;
}

/* ---- plans ---- */

/* Opens the pipeline and finds out which tasks are up to date. */
static int open_evaluated(struct place *w, const char *path,
			  const struct forge_head_options *o, struct forge_error *err)
{
	const struct forge_pipeline_given g = typed();
	int rc = open_place(w, path, &g, err);

	if (rc == 0)
		rc = forge_head_open(&w->h, &w->g, w->cfg, &w->home, w->store, o, true,
				     err);
	return rc < 0 ? rc : forge_head_evaluate(&w->h, err);
}

static int plan(const char *path, const char *step, struct forge_error *err)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	const struct forge_head_options o = { .force = &force,
					      .from = &from,
					      .only = &only,
					      .entry = entry,
					      .given = &given };
	size_t n = 0;
	int task = -1;
	int rc = open_evaluated(&w, path, &o, err);

	if (rc == 0 && step) {
		task = forge_graph_find(&w.g, step, &n, err);
		rc = task < 0 ? task : 0;
	}
	if (rc == 0)
		rc = forge_head_explain_all(&w.h, err);
	return rc < 0 ? rc : forge_view_plan(&w.h, task, n, is_json, err);
}

/* ---- outputs, clean ---- */

static int outputs(const char *path, struct forge_error *err)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	const struct forge_head_options o = { .force = NULL };
	const struct forge_pipeline_run r = { .params = &params,
					      .params_file = params_file };
	int rc = open_evaluated(&w, path, &o, err);

	if (rc < 0)
		return rc;
	forge_auto_free char *run = resume_command(&r, &w);
	const struct forge_outputs_wanted wanted = { .only = &only,
						     .to = to,
						     .run = run,
						     .replaces = replaces,
						     .is_json = is_json,
						     .is_quiet = is_quiet };
	return forge_pipeline_outputs(&w.h, &wanted, err);
}

static int clean(const char *path, struct forge_error *err)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	const struct forge_head_options o = { .force = NULL };
	int rc = open_evaluated(&w, path, &o, err);

	return rc < 0 ? rc : forge_pipeline_clean(&w.h, is_dry, is_sure, err);
}

/* ---- report ---- */

static int report(const char *path, struct forge_error *err)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	const struct forge_head_options o = { .force = NULL };
	int rc = open_evaluated(&w, path, &o, err);

	if (rc == 0)
		rc = forge_head_explain_all(&w.h, err);
	if (rc < 0)
		return rc;
	if (!to)
		return forge_report_write(stdout, &w.h, err);
	forge_auto_file FILE *f = fopen(to, "we");
	if (!f)
		return forge_fail_errno(err, errno, "%s", to);
	rc = forge_report_write(f, &w.h, err);
	if (rc == 0 && fflush(f) != 0)
		rc = forge_fail_errno(err, errno, "%s", to);
	return rc;
}

/* ---- the verbs ---- */

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len)
		if ((p == list || p[-1] == ' ') && (p[len] == ' ' || !p[len]))
			return true;
	return false;
}

/* An option that the verb does nothing with would be taken for done. 0, or the exit status. */
static int check_use(const char *verb)
{
	static const char evaluates[] = "run status explain";
	const struct {
		const char *option;
		bool is_given;
		const char *verbs;
	} uses[] = {
		{ "--force", force.n, evaluates },
		{ "--from", from.n, evaluates },
		{ "--only", only.n, "run status explain outputs" },
		{ "--entry", entry, evaluates },
		{ "--given", given.n, evaluates },
		{ "--jobs", jobs != JOBS_UNSET, "run" },
		{ "--stop", stops, "run" },
		{ "--keep-going", goes_on, "run" },
		{ "--dry-run", is_dry, "run clean" },
		{ "--format", format, "graph" },
		{ "--copy", to, "outputs report" },
		{ "--replace", replaces, "outputs" },
		{ "--yes", is_sure, "clean" },
	};
	struct forge_error err = FORGE_ERROR_INIT;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(uses) && !err.code; i++)
		if (uses[i].is_given && !has_word(uses[i].verbs, verb))
			(void)forge_fail(
				&err, EINVAL,
				"pipeline %s: %s does nothing there (it is of: %s)", verb,
				uses[i].option, uses[i].verbs);
	if (!err.code && jobs == 0)
		(void)forge_fail(&err, EINVAL, "--jobs: 0 tasks would never end; from 1");
	if (!err.code && stops && goes_on)
		(void)forge_fail(&err, EINVAL, "--stop does not go with --keep-going");
	if (!err.code && only.n && from.n)
		(void)forge_fail(&err, EINVAL, "--only does not go with --from");
	return err.code ? forge_print_usage(&forge_cmd_pipeline, &err) : 0;
}

static int answer(int rc, const struct forge_error *err)
{
	return rc < 0 ? forge_session_fail(err) : rc;
}

static int run_run(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_pipeline_run r = {
		.path = word ? word : file,
		.params = &params,
		.params_file = params_file,
		.force = &force,
		.from = &from,
		.only = &only,
		.given = &given,
		.entry = entry,
		.jobs = jobs == JOBS_UNSET ? 0 : jobs,
		.stops = stops,
		.is_json = is_json,
		.is_quiet = is_quiet,
	};
	return answer(is_dry ? plan(r.path, NULL, &err)
			     : forge_pipeline_run_file(&r, &err),
		      &err);
}

static int run_status(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return answer(plan(word ? word : file, NULL, &err), &err);
}

static int run_explain(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return answer(plan(file, word, &err), &err);
}

static int run_outputs(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return answer(outputs(word ? word : file, &err), &err);
}

static int run_clean(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return answer(clean(word ? word : file, &err), &err);
}

static int run_report(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return answer(report(word ? word : file, &err), &err);
}

/* ---- without a store ---- */

static int run_lint(const char *word)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_pipeline_given g = typed();
	int rc = read_file(&w, word ? word : file, &g, &err);

	/* As a run does: what is skipped reads nothing. */
	for (size_t i = 0; i < w.g.n && rc == 0; i++)
		if (!w.g.tasks[i].is_skipped)
			rc = forge_graph_check_files(&w.g, &w.g.tasks[i], &err);
	if (rc == 0)
		rc = forge_config_load(forge_session_config, &w.cfg, &err);
	if (rc == 0)
		rc = forge_head_lint(&w.h, &w.g, w.cfg, &err);
	if (rc == 0)
		printf("%s: %zu steps, %zu tasks\n", w.p->shown, w.p->n_steps, w.g.n);
	return answer(rc, &err);
}

static int run_graph(const char *word)
{
	FORGE_CLEANUP(place_done) struct place w = PLACE_INIT;
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_pipeline_given g = typed();
	int rc = read_file(&w, word ? word : file, &g, &err);

	if (rc < 0)
		return answer(rc, &err);
	if (!format || strcmp(format, "text") == 0)
		forge_draw_text(stdout, &w.g);
	else if (strcmp(format, "svg") == 0)
		rc = forge_draw_svg(stdout, &w.g, NULL, &err);
	else
		forge_draw_mermaid(stdout, &w.g);
	return answer(rc, &err);
}

static int run_schema(const char *word)
{
	forge_auto_json json_t *schema = forge_pipeline_schema();

	(void)word;
	forge_print_json(schema);
	return FORGE_EXIT_OK;
}

static const struct forge_verb verbs[] = {
	{ "run", "[FILE]", "runs every step that is not up to date", run_run },
	{ "status", "[FILE]",
	  "says which steps are up to date, and why the others are not", run_status },
	{ "explain", "STEP", "says the same of one step", run_explain },
	{ "outputs", "[FILE]",
	  "lists or copies the outputs of the last steps, or of --only", run_outputs },
	{ "report", "[FILE]", "writes a page of HTML: graph, timeline, resources, advice",
	  run_report },
	{ "clean", "[FILE]", "removes its runs that are no result of a step as it is now",
	  run_clean },
	{ "graph", "[FILE]", "draws which steps read from which", run_graph },
	{ "lint", "[FILE]", "checks the file, and runs nothing", run_lint },
	{ "schema", NULL, "prints the JSON Schema of pipeline files, for editors",
	  run_schema },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_pipeline = {
	.name = "pipeline",
	.help = "Run steps that are joined by files, and never the same one twice",
	.examples = "  forge pipeline run examples/lambda-variants\n"
		    "  forge pipeline run -p min_quality=30\n"
		    "  forge pipeline explain call\n"
		    "  forge pipeline graph --format svg > graph.svg\n",
	.about =
		"FILE is a pipeline, or a directory with a pipeline.yaml. Each step is a "
		"run, with\n"
		"its sandbox, limits and record. A step whose command, parameters, "
		"runtime "
		"and inputs\n"
		"are those of an earlier run is up to date, and its outputs are used "
		"again. "
		"What was\n"
		"killed, with the host or by ^C, goes on with the same command.",
	.verbs = verbs,
	.check = check_use,
	.bad_value = FORGE_EXIT_FAILED,
	.opts = pipeline_opts,
};
