/* SPDX-License-Identifier: Apache-2.0 */
/* forge rerun and forge resume: repeat the request of a run, with changes; go on with a pipeline. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/pipeline_cli.h"
#include "cli/request.h"
#include "cli/session.h"
#include "record/deliver.h"
#include "record/record.h"
#include "spec/asked.h"

static bool is_json, is_quiet, is_detached;

static const struct forge_opt own_rows[] = {
	FORGE_FLAG(0, "json", &is_json, "Print the record as JSON instead of the output"),
	FORGE_FLAG('q', "quiet", &is_quiet, "Show neither output nor verdict"),
	FORGE_FLAG(0, "detach", &is_detached,
		   "Like `forge submit`: print the id of the run, do not wait"),
	FORGE_UNTIL_CLOSED_ROW,
	FORGE_HELP_ROW,
	FORGE_OPTS_END,
};

static const struct forge_opt *rerun_opts(void)
{
	return forge_request_opts(own_rows);
}

/* Relative paths of the request are relative to the directory where it was given. */
static int go_there(const json_t *record, struct forge_error *err)
{
	const char *cwd = forge_json_string(json_object_get(record, "asked"), "cwd");

	if (!cwd || chdir(cwd) == 0)
		return 0;
	return forge_fail_errno(err, errno, "run %s was asked for in %s",
				forge_json_string(record, "run_id"), cwd);
}

/* The store is closed before the run begins: the run opens it by itself. */
static int find(const char *word, json_t **ret, struct forge_error *err)
{
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;

	forge_session_config = forge_request_config;
	int rc = forge_session_open(&s, false, err);
	if (rc == 0)
		rc = forge_session_record(&s, word, ret, err);
	if (rc < 0)
		return rc;
	/* Other users can write the store, so the command comes from this FORGE_HOME. */
	forge_auto_free char *id = strdup(forge_json_string(*ret, "run_id"));
	json_t *local = NULL;
	rc = id ? forge_load_record(&s.home, id, &local, err)
		: forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0) {
		json_decref(*ret);
		*ret = local;
		return 0;
	}
	if (forge_is_no_record(rc)) {
		*err = FORGE_ERROR_INIT;
		rc = forge_hint(
			err,
			forge_fail(err, EPERM, "run %s is not of this FORGE_HOME", id),
			"Only its owner can run it again; `forge show %s` has the "
			"command",
			id);
	}
	return rc;
}

/* Carries out the request of a record again. The exit status, or a negative error. */
static int repeat(const json_t *record, struct forge_error *err)
{
	forge_auto_config struct forge_config *cfg = NULL;
	char **words = NULL;
	int status = go_there(record, err);

	if (status == 0)
		status = forge_request_prepare(&cfg, err);
	if (status == 0)
		status = forge_asked_again(record, &forge_request, &words, err);
	if (status == 0) {
		forge_request.rerun_of = forge_json_string(record, "run_id");
		status = is_detached ? forge_request_submit(cfg, is_json, err)
				     : forge_request_run(cfg, is_json, is_quiet, err);
	}
	free(words);
	return status;
}

/* Of a process that nothing waits for, no reader can be gone. */
static int check_detached(struct forge_error *err)
{
	return is_detached && forge_request_until_closed
		       ? forge_fail(err, EINVAL,
				    "--until-closed does not go with --detach")
		       : 0;
}

/* Only the pipeline has the inputs of a step. *ret_command: how to run it again; it can be longer than a hint. */
static int refuse_step(const json_t *record, char **ret_command, struct forge_error *err)
{
	FORGE_CLEANUP(forge_pipeline_asked_done)
	struct forge_pipeline_asked lists = { .params = { 0 } };
	const json_t *step = json_object_get(record, "step");
	struct forge_pipeline_run r;

	if (!step)
		return 0;
	int rc = forge_pipeline_ask_again(step, &lists, &r, err);
	if (rc < 0)
		return rc;
	char *name = (char *)forge_json_string_or(step, "step", "");
	const struct forge_strv force = { .v = &name, .n = 1 };
	r.force = &force;
	*ret_command = forge_pipeline_command(&r, r.path ? r.path : "FILE");
	return forge_fail(err, EINVAL, "run %s is step %s of pipeline %s",
			  forge_json_string(record, "run_id"),
			  forge_json_string_or(step, "task", ""),
			  forge_json_string_or(step, "pipeline", ""));
}

static int cmd_rerun(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_json json_t *record = NULL;
	forge_auto_free char *command = NULL;

	if (argc != 1) {
		(void)forge_fail(&err, EINVAL, "rerun: one run is needed");
		return forge_print_usage(&forge_cmd_rerun, &err);
	}
	/* Paths typed now are relative to this directory: resolve them before chdir(). */
	int status = forge_request_absolute(&err);
	if (status == 0)
		status = check_detached(&err);
	if (status == 0)
		status = find(argv[0], &record, &err);
	if (status == 0)
		status = refuse_step(record, &command, &err);
	if (status == 0)
		status = repeat(record, &err);
	if (status < 0) {
		forge_print_error(&err);
		if (command) {
			fputs("  hint: To run it again: ", stderr);
			forge_print_clean(stderr, command, strlen(command));
			putc('\n', stderr);
		}
		status = FORGE_EXIT_NOT_RUN;
	}
	forge_request_done();
	return status;
}

/* ---- resume ---- */

/* Runs the pipeline of a step again, with other limits for this step. */
static int run_pipeline(const json_t *step, const struct forge_pipeline_run *how,
			struct forge_error *err)
{
	FORGE_CLEANUP(forge_pipeline_asked_done)
	struct forge_pipeline_asked lists = { .params = { 0 } };
	forge_auto_config struct forge_config *cfg = NULL;
	const char *cwd = forge_json_string(json_object_get(step, "given"), "cwd");
	struct forge_pipeline_run r;

	/* ./forge.yaml is part of the configuration. */
	if (cwd && chdir(cwd) < 0)
		return forge_fail_errno(err, errno, "the pipeline was run in %s", cwd);
	int rc = forge_request_prepare(&cfg, err);
	if (rc == 0)
		rc = forge_pipeline_ask_again(step, &lists, &r, err);
	if (rc < 0)
		return rc;
	r.limits_of = forge_json_string(step, "task");
	r.resume_of = how->resume_of;
	r.limits = forge_request.limits;
	r.is_json = how->is_json;
	r.is_quiet = how->is_quiet;
	r.on_event = how->on_event;
	r.arg = how->arg;
	forge_session_config = forge_request_config;
	return forge_pipeline_run_file(&r, err);
}

/* ---- --detach: the head goes on in a session of its own ---- */

/* What the head says once, when the step has a run or there will be none. */
struct said {
	char run_id[FORGE_RUN_ID_MAX]; /* "": see err */
	struct forge_error err;
};

struct detached {
	const char *task;
	int fd; /* -1: it has said it */
	char sentence[300];
};

static void say(struct detached *d, const char *run_id, const struct forge_error *err)
{
	struct said said = { .err = err ? *err : FORGE_ERROR_INIT };

	if (d->fd < 0)
		return;
	(void)snprintf(said.run_id, sizeof(said.run_id), "%s", run_id);
	/* The process that asked may be gone; that must not end this one. */
	(void)send(d->fd, &said, sizeof(said), MSG_NOSIGNAL);
	close(d->fd);
	d->fd = -1;
}

/* The step runs, has a result already, or cannot run. */
static void note_event(void *arg, const json_t *event)
{
	struct detached *d = arg;
	const char *what = forge_json_string_or(event, "event", "");
	const char *run_id = forge_json_string_or(event, "run_id", "");

	if (strcmp(forge_json_string_or(event, "task", ""), d->task) != 0)
		return;
	if (*run_id && forge_run_id_is_valid(run_id) && strlen(run_id) < FORGE_RUN_ID_MAX)
		say(d, run_id, NULL);
	else if (strcmp(what, "failed") == 0 || strcmp(what, "blocked") == 0)
		(void)snprintf(d->sentence, sizeof(d->sentence), "%s",
			       forge_json_string_or(event, "notes", "it did not run"));
}

/* The head. What it shows is in the journal of the pipeline. */
static int run_detached(const json_t *step, const char *run_id, int fd)
{
	struct detached d = { .task = forge_json_string_or(step, "task", ""), .fd = fd };
	const struct forge_pipeline_run how = { .resume_of = run_id,
						.is_quiet = true,
						.on_event = note_event,
						.arg = &d };
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid(); /* it cannot be a leader of a group yet */
	for (int to = 0; to <= 2 && null >= 0; to++)
		(void)dup2(null, to);
	int rc = run_pipeline(step, &how, &err);
	if (!err.code)
		(void)forge_fail(&err, ECANCELED, "%s: %s", d.task,
				 *d.sentence ? d.sentence
					     : "the pipeline ended before it ran");
	say(&d, "", &err);
	return rc < 0 ? FORGE_EXIT_FAILED : rc;
}

/* Steps before it, or another process that runs the pipeline, can take hours. */
#define PATIENCE_MSEC 10000

/* The pipeline goes on, and the step has no run yet. */
static void print_waiting(const json_t *step)
{
	const char *task = forge_json_string_or(step, "task", "");

	if (is_json) {
		forge_auto_json json_t *j = json_pack(
			"{s:n, s:b, s:s, s:s}", "run_id", "existing", 0, "pipeline",
			forge_json_string_or(step, "pipeline", ""), "task", task);
		if (j)
			forge_print_json(j);
		return;
	}
	fputs("forge: the pipeline goes on; ", stderr);
	forge_print_clean(stderr, task, strlen(task));
	fputs(" has no run yet: what it waits for comes first\n", stderr);
}

/* The courier of the run stores it a moment after it begins, and the caller of forge looks for the id in the store. */
static void wait_until_stored(const char *run_id, uint64_t end)
{
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	const struct timespec pause = { .tv_nsec = 5000000 };
	int rc = forge_session_open(&s, true, NULL);

	while (rc == 0 && forge_now_usec() < end) {
		json_t *row = NULL;
		rc = forge_store_get(s.store, run_id, &row, NULL);
		json_decref(row);
		if (rc != -ENOENT)
			return;
		rc = 0;
		(void)nanosleep(&pause, NULL); /* waking early does no harm */
	}
}

static int detach(const json_t *step, const char *run_id, struct forge_error *err)
{
	struct said said;
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return forge_fail_errno(err, errno, "socketpair");
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		_exit(run_detached(step, run_id, ends[1]));
	}
	int code = errno;
	close(ends[1]);
	forge_auto_close int from = ends[0];
	if (pid < 0)
		return forge_fail_errno(err, code, "fork");
	const uint64_t end = forge_now_usec() + PATIENCE_MSEC * 1000ULL;
	struct pollfd p = { .fd = from, .events = POLLIN };
	int n_ready;
	do {
		uint64_t now = forge_now_usec();
		n_ready = poll(&p, 1, now < end ? (int)((end - now + 999) / 1000) : 0);
	} while (n_ready < 0 && errno == EINTR);
	if (n_ready == 0) {
		print_waiting(step);
		return FORGE_EXIT_OK;
	}
	if (recv(from, &said, sizeof(said), 0) != sizeof(said))
		return forge_fail(err, ECHILD,
				  "the process that runs the pipeline was killed");
	if (!said.run_id[0]) {
		*err = said.err;
		return -said.err.code;
	}
	wait_until_stored(said.run_id, end);
	if (is_json)
		printf("{\"run_id\": \"%s\", \"existing\": false}\n", said.run_id);
	else
		puts(said.run_id);
	return FORGE_EXIT_OK;
}

static int resume_step(const json_t *record, struct forge_error *err)
{
	const json_t *step = json_object_get(record, "step");
	const char *run_id = forge_json_string(record, "run_id");
	const struct forge_pipeline_run how = { .resume_of = run_id,
						.is_json = is_json,
						.is_quiet = is_quiet };
	const char *other = forge_request_beside_limits();

	/* The file of the pipeline says it, and its steps have keys. */
	if (other)
		return forge_hint(err,
				  forge_fail(err, EINVAL,
					     "resume: --%s is not for a step of a "
					     "pipeline: only limits are",
					     other),
				  "What a step runs with is in the file of the pipeline");

	if (!forge_json_string(step, "file"))
		return forge_hint(err,
				  forge_fail(err, ENODATA,
					     "the record was made again from the store, "
					     "which does not say where the pipeline is"),
				  "forge pipeline run FILE goes on with it");
	return is_detached ? detach(step, run_id, err) : run_pipeline(step, &how, err);
}

static int check_resumable(const json_t *record, struct forge_error *err)
{
	const char *status = forge_json_string_or(record, "status", "");
	const char *id = forge_json_string(record, "run_id");

	if (!forge_record_is_over(record))
		return forge_hint(err, forge_fail(err, EBUSY, "run %s is %s", id, status),
				  "`forge wait %s` waits for it", id);
	if (strcmp(status, "succeeded") != 0 || json_object_get(record, "step"))
		return 0;
	return forge_hint(err, forge_fail(err, EINVAL, "run %s has succeeded", id),
			  "`forge rerun %s` runs it again", id);
}

static int cmd_resume(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_json json_t *record = NULL;

	if (argc != 1) {
		(void)forge_fail(&err, EINVAL, "resume: one run is needed");
		return forge_print_usage(&forge_cmd_resume, &err);
	}
	int status = forge_request_absolute(&err);
	if (status == 0)
		status = check_detached(&err);
	if (status == 0)
		status = find(argv[0], &record, &err);
	if (status == 0)
		status = check_resumable(record, &err);
	if (status == 0)
		status = json_object_get(record, "step") ? resume_step(record, &err)
							 : repeat(record, &err);
	if (status < 0) {
		forge_print_error(&err);
		status = FORGE_EXIT_NOT_RUN;
	}
	forge_request_done();
	return status;
}

const struct forge_cmd forge_cmd_rerun = {
	.name = "rerun",
	.synopsis = "[OPTIONS] RUN",
	.help = "Run the same again, with other limits or inputs",
	.examples = "  forge rerun --memory 8G last\n"
		    "  forge rerun -r data-ml --id retry fit\n",
	.about =
		"Asks for what RUN was asked for, from the directory it was asked from, "
		"and "
		"waits\n"
		"like `forge run`. Limits, runtime, network, outputs and parameters that "
		"are given\n"
		"replace the run's; inputs and variables are added to them. What is read "
		"is "
		"what\n"
		"is there now: `forge diff` shows what has changed.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_NOT_RUN,
	.run = cmd_rerun,
	.opts = rerun_opts,
};

const struct forge_cmd forge_cmd_resume = {
	.name = "resume",
	.synopsis = "[OPTIONS] RUN",
	.help = "Go on after a kill, a crash or a limit, with more",
	.examples = "  forge resume --memory 8G last\n",
	.about = "RUN did not succeed. If it is a step of a pipeline, the pipeline goes "
		 "on: "
		 "steps that\n"
		 "are done stay done, this one gets the limits that are given here and "
		 "its "
		 "checkpoint\n"
		 "directory, and those after it follow. Any other run is asked for "
		 "again, as "
		 "by\n"
		 "`forge rerun`.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_NOT_RUN,
	.run = cmd_resume,
	.opts = rerun_opts,
};
