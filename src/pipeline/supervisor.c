/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor of a task: stages its inputs, calls forge_run(), reports. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/glob.h"
#include "base/json.h"
#include "pipeline/keylock.h"
#include "pipeline/launch.h"
#include "run/collect.h"
#include "run/run.h"
#include "run/stage.h"
#include "spec/saved.h"
#include "state/kept.h"
#include "state/objects.h"

struct supervisor {
	const struct forge_launch_env *env;
	const struct forge_task *t;
	const json_t *job;
	int fd, lock_fd; /* of the pipe to the head, and of the key */
	struct forge_stage stage;
	struct forge_run_request req;
	struct forge_again again;
	struct forge_strv argv;
	char run_id[FORGE_RUN_ID_MAX];
};

/* ---- reports ---- */

/* Takes the message. If the head was killed, the write fails and the message is dropped. */
static void report(const struct supervisor *s, json_t *message)
{
	char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;

	if (text) {
		size_t len = strlen(text);
		text[len] = '\n'; /* in place of its NUL: one write */
		(void)!forge_write_all(s->fd, text, len + 1);
	}
	free(text);
	json_decref(message);
}

static void report_text(const struct supervisor *s, const char *key, const char *text)
{
	report(s, json_pack("{s:o}", key, forge_json_text(text)));
}

static void on_warning(void *arg, const struct forge_error *warning)
{
	report_text(arg, "warning", warning->msg);
}

static void on_note(void *arg, const char *text)
{
	report_text(arg, "note", text);
}

/* ---- the command ---- */

static const struct {
	const char *ending, *program;
} interpreters[] = { { ".py", "python3" },
		     { ".R", "Rscript" },
		     { ".sh", "/bin/bash" },
		     { ".pl", "perl" },
		     { ".jl", "julia" } };

const char *forge_script_interpreter(const char *script)
{
	const char *dot = strrchr(script, '.');

	for (size_t i = 0; dot && i < FORGE_ARRAY_SIZE(interpreters); i++)
		if (strcasecmp(interpreters[i].ending, dot) == 0)
			return interpreters[i].program;
	return NULL;
}

bool forge_script_is_notebook(const char *script)
{
	const char *dot = strrchr(script, '.');

	return dot && strcmp(dot, ".ipynb") == 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* What is collected of a step that declares no outputs. */
static const char *undeclared_outputs(const struct forge_step *step)
{
	return step->script && forge_script_is_notebook(step->script) ? "outputs/**"
								      : "none";
}

bool forge_task_may_leave(const struct forge_task *t, const char *path)
{
	static const char below[] = "outputs/";
	const char *script = t->step->script;

	forge_strv_foreach (pattern, &t->outputs)
		if (forge_glob_match(pattern, path))
			return true;
	if (!script || !forge_script_is_notebook(script))
		return false;
	/* The notebook itself, with its results, is always an output. */
	return strncmp(path, below, strlen(below)) == 0 &&
	       (t->outputs.n == 0 || strcmp(path + strlen(below), base_name(script)) == 0);
}

#define MAKE "/bin/mkdir -p \"$0\" && exec \"$@\""
/* The directory appears with all of its files: a run that is killed before that has none to leave. */
#define RESTORE                                                                          \
	"/bin/mkdir -p \"$0.restored\" && /bin/cp -R inputs/.checkpoint/. "              \
	"\"$0.restored\" && "                                                            \
	"/bin/chmod -R u+w \"$0.restored\" && /bin/mv -T \"$0.restored\" \"$0\" && "     \
	"exec \"$@\""

/* The directory of the checkpoint is there, with the files of the attempt before. */
static int add_checkpoint(struct supervisor *s, bool has_files)
{
	int rc = forge_strv_add(&s->argv, "/bin/sh");

	if (rc == 0)
		rc = forge_strv_add(&s->argv, "-c");
	if (rc == 0)
		rc = forge_strv_add(&s->argv, has_files ? RESTORE : MAKE);
	return rc < 0 ? rc : forge_strv_add(&s->argv, s->t->step->checkpoint);
}

static int make_command(struct supervisor *s, bool has_checkpoint,
			struct forge_error *err)
{
	const struct forge_step *step = s->t->step;
	bool is_sh = step->shell && strcmp(step->shell, "sh") == 0;
	int rc = step->checkpoint ? add_checkpoint(s, has_checkpoint) : 0;

	if (rc == 0 && step->run) {
		rc = forge_strv_add(&s->argv, is_sh ? "/bin/sh" : "/bin/bash");
		if (rc == 0)
			rc = forge_strv_add(&s->argv, is_sh ? "-eu" : "-euo");
		if (rc == 0 && !is_sh)
			rc = forge_strv_add(&s->argv, "pipefail");
		if (rc == 0)
			rc = forge_strv_add(&s->argv, "-c");
		if (rc == 0)
			rc = forge_strv_add(&s->argv, step->run);
	} else if (rc == 0 && forge_script_is_notebook(step->script)) {
		rc = *step->script == '/'
			     ? forge_strv_add(&s->argv, step->script)
			     : forge_strv_addf(&s->argv, "%s/%s", s->env->g->p->dir,
					       step->script);
	} else if (rc == 0) {
		rc = forge_strv_add(&s->argv, forge_script_interpreter(step->script));
		if (rc == 0)
			rc = forge_strv_addf(&s->argv, "inputs/.script/%s",
					     base_name(step->script));
		forge_strv_foreach (arg, &step->args) {
			char *text = NULL;
			if (rc == 0)
				rc = forge_task_expand(s->env->g, s->t, arg, &text, err);
			if (rc == 0)
				rc = forge_strv_take(&s->argv, text);
		}
	}
	s->req.argv = s->argv.v;
	return rc == -ENOMEM ? forge_fail(err, ENOMEM, "out of memory") : rc;
}

/* ---- the environment ---- */

/* $NAME of an input: the file, or the directory with its files. */
static int add_input_variable(struct supervisor *s, unsigned input)
{
	const char *name = s->t->step->inputs[input].name;
	const json_t *f;
	size_t i;

	if (forge_input_is_dir(s->env->g, s->t, input))
		return forge_strv_addf(&s->req.env, "%s=inputs/%s", name, name);
	json_array_foreach (json_object_get(s->job, "files"), i, f) {
		forge_auto_free char *file =
			forge_json_name_decode(forge_json_string_or(f, "name", ""));
		if (json_integer_value(json_object_get(f, "input")) != (json_int_t)input)
			continue;
		return file ? forge_strv_addf(&s->req.env, "%s=inputs/%s/%s", name, name,
					      file)
			    : -ENOMEM;
	}
	return 0;
}

static int make_environment(struct supervisor *s, struct forge_error *err)
{
	const struct forge_step *step = s->t->step;
	forge_auto_strv struct forge_strv variables = { 0 };
	int rc = forge_task_variables(s->env->g, s->t, &variables, err);

	if (rc < 0)
		return rc;
	rc = forge_strv_copy(&s->req.env, &variables);
	if (rc == 0 && step->script && forge_script_is_notebook(step->script))
		rc = forge_strv_copy(&s->req.parameters, &variables);
	for (unsigned i = 0; i < step->n_inputs && rc == 0; i++)
		rc = add_input_variable(s, i);
	forge_strv_foreach (pair, &step->env) {
		size_t len = strcspn(pair, "=");
		forge_auto_free char *value = NULL;
		if (rc == 0)
			rc = forge_task_expand(s->env->g, s->t, pair + len + 1, &value,
					       err);
		if (rc == 0)
			rc = forge_strv_addf(&s->req.env, "%.*s=%s", (int)len, pair,
					     value);
	}
	return rc == -ENOMEM ? forge_fail(err, ENOMEM, "out of memory") : rc;
}

/* ---- inputs ---- */

static int stage_file(struct supervisor *s, const json_t *f, struct forge_error *err)
{
	const struct forge_step_input *in =
		&s->t->step->inputs[json_integer_value(json_object_get(f, "input"))];
	forge_auto_free char *name =
		forge_json_name_decode(forge_json_string_or(f, "name", ""));
	forge_auto_free char *path =
		json_object_get(f, "path")
			? forge_json_name_decode(forge_json_string_or(f, "path", ""))
			: NULL;
	forge_auto_free char *below =
		name ? forge_asprintf("%s/%s", in->name, name) : NULL;
	int rc = below ? 0 : -ENOMEM;

	if (rc == 0 && path) {
		rc = forge_stage_link(&s->stage, below, path);
		if (rc == 0)
			rc = forge_strv_add(&s->req.inputs, path);
	} else if (rc == 0) {
		rc = forge_stage_object(&s->stage, s->env->home, below,
					forge_json_string(f, "sha256"), true);
	}
	if (rc == -EUCLEAN)
		return forge_hint(err,
				  forge_fail(err, EUCLEAN, "input %s: %s is damaged",
					     in->name, name),
				  "Run the pipeline again: it is computed anew");
	return rc < 0 ? forge_fail_errno(err, -rc, "input %s: %s", in->name,
					 name ? name : "")
		      : 0;
}

/* The script as it was when its digest became part of the key. */
static int stage_script(struct supervisor *s, struct forge_error *err)
{
	const struct forge_step *step = s->t->step;
	const struct forge_script *script = &s->env->scripts[step - s->env->g->p->steps];
	char path[300];

	if (!step->script || forge_script_is_notebook(step->script))
		return 0;
	(void)snprintf(path, sizeof(path), ".script/%.255s", base_name(step->script));
	int rc = forge_stage_text(&s->stage, path, script->text, script->len);
	return rc < 0 ? forge_fail_errno(err, -rc, "script %s", step->script) : 0;
}

/* Makes objects of the files that a lost run left in its workdir. */
static int collect_kept(struct supervisor *s, const char *run_id, json_t **ret)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	forge_auto_strv struct forge_strv patterns = { 0 };
	forge_auto_close int run = forge_home_open_run(s->env->home, run_id);
	struct forge_objects objects = FORGE_OBJECTS_INIT;
	struct forge_collected c = { .problem = "" };
	struct stat st;

	*ret = NULL;
	if (run < 0 || forge_kept_read(run, &kept, NULL) != 1 ||
	    forge_strv_add(&patterns, s->t->step->checkpoint) < 0)
		return -ENOENT;
	forge_auto_close int outer = forge_open_nolink(kept.path, O_RDONLY | O_DIRECTORY);
	if (outer < 0 || fstat(outer, &st) < 0 || st.st_dev != kept.dev ||
	    st.st_ino != kept.ino)
		return -ENOENT;
	forge_auto_close int work =
		openat(outer, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	const struct forge_collect_spec spec = {
		.workdir_fd = work >= 0 ? work : outer,
		.patterns = &patterns,
		.links = &(const struct forge_strv){ 0 },
		.max_bytes = s->env->cfg->outputs_max_bytes
				     ? s->env->cfg->outputs_max_bytes
				     : 10ull << 30,
		.max_files = s->env->cfg->outputs_max_files,
		.max_holes = 64ull << 30,
		.stop_fd = -1
	};
	int rc = forge_objects_open(s->env->home, -1, &objects, NULL);
	if (rc == 0)
		rc = forge_collect(&spec, &objects, &c, NULL);
	if (rc == 0 && !c.problem[0] && json_array_size(c.outputs))
		*ret = json_incref(c.outputs);
	forge_collected_done(&c);
	forge_objects_close(&objects);
	return *ret ? 0 : -ENOENT;
}

/* Files of the attempt before, for the wrapper to copy. 1: there are some. */
static int stage_checkpoint(struct supervisor *s, struct forge_error *err)
{
	const char *dir = s->t->step->checkpoint;
	const char *kept = forge_json_string(s->job, "kept_run");
	json_t *collected = NULL, *files = json_object_get(s->job, "checkpoint");
	const json_t *f;
	size_t i, len = dir ? strlen(dir) : 0;
	int n = 0, rc = 0;

	if (!dir)
		return 0;
	if (kept && collect_kept(s, kept, &collected) == 0)
		files = collected;
	json_array_foreach (files, i, f) {
		forge_auto_free char *path =
			forge_json_name_decode(forge_json_string_or(f, "path", ""));
		if (!path || strncmp(path, dir, len) != 0 || path[len] != '/' || rc < 0)
			continue;
		forge_auto_free char *below = forge_asprintf(".checkpoint%s", path + len);
		rc = below ? forge_stage_object(&s->stage, s->env->home, below,
						forge_json_string(f, "sha256"), true)
			   : -ENOMEM;
		/* An old state that is damaged is worth less than a new start. */
		if (rc == -EUCLEAN || rc == -ENOENT) {
			report_text(s, "warning",
				    "the checkpoint of the attempt before is damaged");
			n = 0;
			break;
		}
		n++;
	}
	json_decref(collected);
	return rc == -EUCLEAN || rc == -ENOENT
		       ? 0
		       : (rc < 0 ? forge_fail_errno(err, -rc, "checkpoint %s", dir)
				 : n > 0);
}

static int stage_inputs(struct supervisor *s, struct forge_error *err)
{
	const json_t *f;
	char name[64];
	size_t i;

	/* A step that reads nothing needs no directory. */
	if (!s->t->step->n_inputs && !s->t->step->script && !s->t->step->checkpoint)
		return 0;
	/* "step." is how gc knows that an open run may need it. */
	(void)snprintf(name, sizeof(name), "step.%s", s->run_id);
	int rc = forge_stage_make(s->env->home, name, &s->stage, err);
	for (unsigned k = 0; k < s->t->step->n_inputs && rc == 0; k++) {
		rc = forge_stage_dir(&s->stage, s->t->step->inputs[k].name);
		if (rc < 0)
			rc = forge_fail_errno(err, -rc, "make a directory in %s",
					      s->stage.path);
	}
	json_array_foreach (json_object_get(s->job, "files"), i, f)
		if (rc == 0)
			rc = stage_file(s, f, err);
	if (rc == 0)
		rc = stage_script(s, err);
	s->req.staged = s->stage.path;
	return rc;
}

/* ---- the request ---- */

static const char *first_of(const char *a, const char *b)
{
	return a ? a : b;
}

static int make_request(struct supervisor *s, struct forge_error *err)
{
	const struct forge_pipeline *p = s->env->g->p;
	const struct forge_step *step = s->t->step;
	struct forge_limits raised = { 0 };
	static char id[FORGE_TASK_ID_MAX];
	const char *previous = forge_json_string(s->job, "previous");

	s->req.store = s->env->store;
	s->req.stdout_fd = s->req.stderr_fd = -1;
	s->req.on_warning = on_warning;
	s->req.on_note = on_note;
	s->req.arg = s;
	s->req.analysis_id = forge_task_id(s->env->g, s->t, id);
	s->req.runtime = first_of(step->runtime, p->runtime);
	s->req.executor = first_of(step->executor, p->executor);
	s->req.profile = step->profile;
	s->req.network = step->network;
	s->req.checkpoint = step->checkpoint;
	s->req.step = json_object_get(s->job, "step");
	s->req.limits = step->limits;
	forge_saved_restore_limits(json_object_get(s->job, "limits"), &raised);
	forge_limits_overlay(&s->req.limits, &raised);
	/* The head decides about another attempt. */
	int rc = forge_strv_add(&s->req.retry, "none");
	if (rc == 0 && s->t->outputs.n)
		rc = forge_strv_copy(&s->req.outputs, &s->t->outputs);
	else if (rc == 0)
		rc = forge_strv_add(&s->req.outputs, undeclared_outputs(step));
	if (rc < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	rc = forge_make_run_id(s->run_id);
	s->req.run_id = s->run_id;
	if (rc == 0)
		report_text(s, "run_id", s->run_id);
	if (previous) {
		(void)snprintf(s->again.previous, sizeof(s->again.previous), "%s",
			       previous);
		memcpy(s->again.run_id, s->run_id, sizeof(s->run_id));
		s->again.chain.attempt =
			(unsigned)json_integer_value(json_object_get(s->job, "attempt"));
		s->again.limits = raised;
		s->req.again = &s->again;
	}
	return rc < 0 ? forge_fail_errno(err, -rc, "make a run id") : 0;
}

/* Releases everything of the head: its terminal and its pipes. */
static void detach(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	(void)prctl(PR_SET_NAME, "forge"); /* for ps(1) */
	(void)signal(SIGCHLD, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_IGN); /* the head may be gone */
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		(void)dup2(null, fd);
	if (null > 2)
		close(null);
}

static int run(struct supervisor *s, struct forge_error *err)
{
	struct forge_run_result result = { 0 };
	int checkpoint = 0;
	int rc = make_request(s, err);

	if (rc == 0)
		rc = stage_inputs(s, err);
	if (rc == 0)
		rc = checkpoint = stage_checkpoint(s, err);
	if (rc >= 0)
		rc = make_command(s, checkpoint > 0, err);
	if (rc == 0)
		rc = make_environment(s, err);
	/* Relative paths in the file are relative to it. */
	if (rc == 0 && chdir(s->env->g->p->dir) < 0)
		rc = forge_fail_errno(err, errno, "%s", s->env->g->p->dir);
	if (rc == 0)
		rc = forge_run(s->env->cfg, &s->req, &result, err);
	/* Before the head hears of it: it may start the next attempt at once. */
	forge_key_unlock(s->lock_fd);
	if (result.record)
		report(s, json_pack("{s:o}", "record", result.record));
	return result.record ? 0 : rc;
}

/* Another process has the lock of the key: this one only waits for its end. */
static int wait_for_key(const struct supervisor *s, struct forge_error *err)
{
	int fd = -1;

	report_text(s, "note", "waits for the same step in another pipeline");
	int rc = forge_key_lock(s->env->home,
				forge_json_string_or(s->job, "key", "sha256:"), true, &fd,
				err);
	if (rc >= 0)
		report(s, json_pack("{s:b}", "again", 1));
	return rc < 0 ? rc : 0;
}

void forge_supervise_task(const struct forge_launch_env *env, const json_t *job, int fd,
			  int lock_fd, int courier_fd)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct supervisor s = {
		.env = env,
		.t = &env->g->tasks[json_integer_value(json_object_get(job, "task"))],
		.job = job,
		.fd = fd,
		.lock_fd = lock_fd,
		.stage = FORGE_STAGE_INIT
	};

	s.req.courier_fd = courier_fd > 0 ? courier_fd : 0;
	detach();
	report(&s, json_pack("{s:i}", "pid", (int)getpid()));
	int rc = lock_fd < 0 ? wait_for_key(&s, &err) : run(&s, &err);
	if (rc < 0)
		report(&s, json_pack("{s:o, s:o}", "error", forge_json_text(err.msg),
				     "hint", forge_json_text(err.hint)));
	forge_stage_remove(&s.stage);
	_exit(0);
}
