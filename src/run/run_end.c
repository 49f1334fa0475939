/* SPDX-License-Identifier: Apache-2.0 */
/* From the end of the command to a verdict that is safe: outputs, post-process, record, store, workdir. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "record/judge.h"
#include "record/shared_result.h"
#include "run/collect.h"
#include "run/export.h"
#include "run/run_state.h"
#include "run/runtime_identity.h"
#include "run/signals.h"
#include "spec/asked.h"
#include "state/kept.h"
#include "store/state.h"

/* Entries of a workdir that are removed in no time. */
#define SMALL_TREE 1000

bool forge_run_end_execution(struct run *r)
{
	struct forge_error late = FORGE_ERROR_INIT;
	int rc = r->execution ? r->executor->end(r->execution, &late) : 0;

	if (rc == 0)
		return true;
	r->needs_repair = true;
	json_object_set_new(r->record.json, "cleanup_error", json_string(late.msg));
	forge_record_event(&r->record, "cgroup_left", late.msg);
	return false;
}

static int keep_workdir(struct run *r, struct forge_error *err)
{
	forge_auto_kept struct forge_kept kept = { 0 };
	int rc = r->executor->keep(r->execution, &kept, err);

	if (rc < 0 || !r->record.json)
		return rc;
	forge_record_event(&r->record, "workdir_kept", kept.path);
	json_object_set_new(r->record.json, "workdir", forge_json_text(kept.path));
	json_object_set_new(r->record.json, "workdir_kept", json_true());
	json_object_set_new(
		r->record.json, "workdir_identity",
		json_pack("[I, I]", (json_int_t)kept.dev, (json_int_t)kept.ino));
	return forge_kept_write(r->record.dir_fd, kept.path, kept.dev, kept.ino, err);
}

static int workdir_fd(const struct run *r)
{
	return r->execution ? r->executor->workdir_fd(r->execution) : -1;
}

int forge_run_clean(struct run *r, struct forge_error *err)
{
	struct forge_rmtree_stats stats = { 0 };
	char detail[160];

	if (workdir_fd(r) < 0)
		return 0;
	if (r->keeps && r->has_started)
		return keep_workdir(r, err);
	int rc = r->executor->clean(r->execution, &stats, err);
	if (rc == 0 && r->record.json) {
		(void)snprintf(detail, sizeof(detail),
			       "%" PRIu64 " files, %" PRIu64 " directories, %" PRIu64
			       " bytes",
			       stats.files, stats.dirs, stats.bytes);
		forge_record_event(&r->record, "workdir_removed", detail);
	}
	return rc;
}

/*
 * The hasher may be slow, as long as it makes progress. An input that does not answer at all is given up
 * sooner when the run did not end by itself: its digest is not worth a late verdict.
 */
static void set_inputs(struct run *r, const struct forge_outcome *o)
{
	forge_auto_close int signals = forge_signals_fd();
	json_t *inputs =
		r->spec->inputs.n
			? forge_hasher_finish(&r->hasher, &r->spec->inputs, signals,
					      o->stop == FORGE_STOP_NONE ? 30 : 3)
			: json_array();
	size_t i;
	json_t *input;

	json_array_foreach (inputs, i, input)
		if (i < r->spec->input_names.n && *r->spec->input_names.v[i])
			json_object_set_new(input, "as",
					    forge_json_text(r->spec->input_names.v[i]));
	json_object_set_new(r->record.json, "inputs", inputs);
}

/*
 * What the run made is not stored, or not all of it: it stays where it is, and retention.workdirs
 * says for how long. One that was stopped at a limit leaves nothing: it may have filled the disk.
 */
static void keep_what_is_left(struct run *r, const struct forge_outcome *o,
			      struct forge_verdict *v)
{
	struct forge_error late = FORGE_ERROR_INIT;

	if (o->stop != FORGE_STOP_NONE || o->oom_kills > 0 || workdir_fd(r) < 0 ||
	    r->executor->drop_empty(r->execution))
		return;
	r->keeps = true;
	if (forge_slot_add_keep(&r->slot, &late) < 0 || keep_workdir(r, &late) < 0) {
		forge_record_event(&r->record, "keep_failed", late.msg);
		return; /* forge_run_clean() tries again, and reports the error */
	}
	forge_judge_add(v, "The workdir is kept: %s.",
			forge_json_string(r->record.json, "workdir"));
}

/* Success is taken back: there is something that the command made and forge has not. */
static void miss_output(struct run *r, const char *problem, struct forge_verdict *v)
{
	forge_record_event(&r->record, "collect_problem", problem);
	if (strcmp(v->status, "succeeded") == 0)
		forge_judge_missing_output(problem, v);
}

/* Packages were installed meanwhile: which of them the run used is not known. */
static void note_runtime(struct run *r)
{
	char digest[FORGE_DIGEST_MAX];
	const char *now = forge_runtime_changed(r->spec, r->home, digest);

	if (!now)
		return;
	json_object_set_new(json_object_get(r->record.json, "runtime"), "changed_to",
			    json_string(now));
	forge_record_event(&r->record, "runtime_changed", now);
}

/* The digests of the inputs as they are now: one may have changed after it was hashed. */
static json_t *hash_again(struct run *r)
{
	forge_auto_close int signals = forge_signals_fd();

	if (!r->spec->inputs.n)
		return json_array();
	forge_hasher_start(&r->hasher, r->home, &r->spec->inputs);
	return forge_hasher_finish(&r->hasher, &r->spec->inputs, signals, 30);
}

/*
 * The result of a step is found by its key, and that says which inputs and which runtime it was made with. If one
 * of them changed meanwhile, this run is not that result.
 */
static void check_step(struct run *r, struct forge_verdict *v)
{
	const json_t *record = r->record.json, *input;
	const json_t *step = json_object_get(record, "step");
	const json_t *expects = json_object_get(step, "expects");
	const char *runtime = forge_json_string(json_object_get(step, "parts"), "runtime");
	const json_t *used = json_object_get(record, "runtime");
	char text[200];
	size_t i;

	if (!step || strcmp(v->status, "succeeded") != 0)
		return;
	forge_auto_json json_t *now = hash_again(r);
	json_array_foreach (now, i, input) {
		const char *path = forge_json_string_or(input, "path", "");
		const char *is = forge_json_string_or(input, "sha256", "");
		const char *was = forge_json_string(expects, path);
		if (!was || strcmp(was, is) == 0)
			continue;
		(void)snprintf(text, sizeof(text), "input %.120s changed", path);
		forge_judge_other_facts("input", text, v);
		return;
	}
	if (runtime && (forge_json_string(used, "changed_to") ||
			strcmp(runtime, forge_json_string_or(used, "digest", "")) != 0))
		forge_judge_other_facts("runtime", "its runtime changed", v);
}

/* A hole takes as long to hash as what is really there, and costs a run nothing to make. */
#define HOLES_MAX (64ull << 30)

/* A name that stands for itself in a pattern, and between quotes in a shell. */
static bool is_plain_name(const char *name)
{
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f || strchr("*?'", *p))
			return false;
	return *name != '\0';
}

/* The verdict names what is not kept: the user may want it. */
static void report_rest(const struct run *r, const struct forge_collected *c,
			const struct forge_outcome *o, struct forge_verdict *v)
{
	char size[FORGE_FORMAT_MAX];
	uint64_t files = c->n_undeclared - c->n_aside, n = files + c->n_links;
	const char *what = files ? "file" : "symbolic link";
	const char *many = n == 1 ? "" : "s";
	const char *are = n == 1 ? "was" : "were";

	if (n && r->keeps && c->example)
		forge_judge_add(v, "It left %" PRIu64 " other %s%s, e.g. %s.", n, what,
				many, c->example);
	else if (n && !r->keeps && files && c->example && is_plain_name(c->example))
		forge_judge_add(v,
				"%" PRIu64 " %s%s %s not kept, e.g. %s (keep %s with "
				"-o '%s').",
				n, what, many, are, c->example, n == 1 ? "it" : "them",
				c->example);
	else if (n && !r->keeps)
		forge_judge_add(v, "%" PRIu64 " %s%s %s not kept%s%s.", n, what, many,
				are, c->example ? ", e.g. " : "",
				c->example ? c->example : "");
	if (o->tmp_files)
		forge_judge_add(v,
				"%" PRIu64 " file%s (%s) left in /tmp %s gone: only the "
				"workdir is kept.",
				o->tmp_files, o->tmp_files == 1 ? "" : "s",
				forge_format_size(size, o->tmp_bytes),
				o->tmp_files == 1 ? "is" : "are");
}

static void take_outputs(struct run *r, struct forge_collected *c,
			 const struct forge_outcome *o, struct forge_verdict *v)
{
	json_t *record = r->record.json;

	json_object_set(record, "outputs", c->outputs);
	if (json_array_size(c->skipped))
		json_object_set(record, "outputs_skipped", c->skipped);
	if (c->n_undeclared) {
		json_object_set(record, "undeclared", c->undeclared);
		json_object_set_new(record, "undeclared_count",
				    json_integer((json_int_t)c->n_undeclared));
	}
	if (c->is_stopped) {
		forge_record_event(&r->record, "collect_cancelled", NULL);
		if (strcmp(v->status, "succeeded") == 0)
			forge_judge_uncollected(json_array_size(c->outputs), v);
	} else if (c->problem[0]) {
		bool is_missing = c->is_missing;
		bool has_rest =
			c->n_undeclared > c->n_aside || json_array_size(c->skipped);
		bool was_good = strcmp(v->status, "succeeded") == 0;
		miss_output(r, c->problem, v);
		if (c->is_too_much && r->spec->collects == FORGE_OUTPUTS_ALL && was_good)
			forge_judge_add(v, "Choose with -o what to keep; -o none is for "
					   "nothing.");
		/* What it left instead may be what was meant, by another name or up to its failure. */
		if (!is_missing || has_rest)
			keep_what_is_left(r, o, v);
	}
	report_rest(r, c, o, v);
}

/* Outputs are safe on disk before the success of the run is reported. */
static void collect(struct run *r, const struct forge_outcome *o, struct forge_verdict *v)
{
	uint64_t disk = r->spec->limits.disk_bytes, most = r->cfg->outputs_max_bytes;
	forge_auto_close int signals = forge_signals_fd();
	struct forge_collect_spec spec = {
		.workdir_fd = workdir_fd(r),
		.takes_all = r->spec->collects == FORGE_OUTPUTS_ALL,
		.patterns = &r->spec->outputs,
		.always = r->spec->notebook,
		.checkpoint = r->spec->checkpoint,
		.takes_checkpoint = strcmp(v->status, "succeeded") != 0,
		.must_match = r->spec->has_outputs,
		.links = &r->spec->links,
		.max_bytes = most ? most : disk,
		.max_holes = most ? UINT64_MAX : HOLES_MAX,
		.stop_fd = signals,
		.max_files = r->cfg->outputs_max_files,
		/* A process that could not be killed may still finish a write. */
		.may_link = !r->keeps && !o->is_stuck,
		.is_partial = o->stop != FORGE_STOP_NONE,
	};
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_collected c = { .problem = "" };
	const json_t *asked = json_object_get(r->record.json, "asked");

	if (forge_run_status(r) != FORGE_STATUS_COLLECTING)
		forge_run_set_status(r, "collecting", NULL);
	bool has_files = r->spec->collects != FORGE_OUTPUTS_NONE || r->spec->checkpoint;
	if (!has_files && !json_object_get(asked, "script"))
		return;
	int rc = forge_objects_open(r->home, signals, &r->objects, &why);
	if (rc == 0)
		forge_asked_keep_script(r->record.json, &r->objects);
	if (!has_files)
		return;
	if (rc == 0)
		rc = forge_collect(&spec, &r->objects, &c, &why);
	r->objects.stop_fd = -1;
	if (rc == -ECANCELED) {
		c.is_stopped = true;
		take_outputs(r, &c, o, v);
	} else if (rc < 0) {
		char text[sizeof(why.msg) + 64];
		(void)snprintf(text, sizeof(text), "its outputs cannot be stored: %s",
			       why.msg);
		miss_output(r, text, v);
		keep_what_is_left(r, o, v);
	} else {
		take_outputs(r, &c, o, v);
	}
	forge_collected_done(&c);
}

/*
 * A user of --copy expects the outputs in that directory: when they cannot be copied, the run has failed.
 * They are stored all the same.
 */
static void copy_outputs(struct run *r, struct forge_verdict *v)
{
	forge_auto_close int signals = forge_signals_fd();
	const struct forge_export how = { .to = r->spec->copy_to,
					  .replaces = r->req->copy_replaces,
					  .stop_fd = signals };
	struct forge_error err = FORGE_ERROR_INIT;
	char text[sizeof(err.msg) + sizeof(err.hint) + 256];
	/* Should we be killed while we copy, repair finds in the slot what is stored. */
	int rc = forge_slot_add_record(&r->slot, r->record.json, &err);

	if (rc == 0)
		rc = forge_export_outputs(r->home, r->record.json, &how, &err);
	if (rc >= 0) {
		json_object_set_new(r->record.json, "copied_to",
				    forge_json_text(r->spec->copy_to));
		forge_record_event(&r->record, "copied", r->spec->copy_to);
		return;
	}
	forge_record_event(&r->record, "copy_failed", err.msg);
	(void)snprintf(text, sizeof(text), "its outputs were not copied: %s%s%s%s",
		       rc == -ECANCELED ? "cancelled" : err.msg, *err.hint ? " (" : "",
		       err.hint, *err.hint ? ")" : "");
	forge_judge_missing_output(text, v);
	forge_judge_add(v, "They are kept: forge outputs %s.", r->spec->run_id);
}

static void post_process(struct run *r)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *result = NULL;

	forge_record_event(&r->record, "post_process", NULL);
	if (r->ready->post_process(r->ready, r->record.json, &result, &r->post_rows,
				   &err) < 0) {
		forge_record_event(&r->record, "post_process_failed", err.msg);
		return;
	}
	json_object_set_new(r->record.json, "post_process", result);
	/* For a later delivery, when the store cannot be reached now. */
	char *text = json_dumps(r->post_rows, JSON_COMPACT);
	if (text && json_array_size(r->post_rows))
		(void)!forge_replace_file(r->record.dir_fd, "post_process.json", text,
					  strlen(text), true);
	free(text);
}

static void clean_or_leave(struct run *r)
{
	struct forge_error late = FORGE_ERROR_INIT;

	if (forge_run_clean(r, &late) == 0)
		return;
	r->needs_repair = true;
	forge_record_event(&r->record, "cleanup_failed", late.msg);
	json_object_set_new(r->record.json, "cleanup_error", json_string(late.msg));
}

/* A log that cannot be kept is no reason to lose the verdict. */
static void sync_logs(struct run *r)
{
	struct forge_error late = FORGE_ERROR_INIT;

	if (forge_record_sync_logs(&r->record, r->home, &late) < 0)
		forge_run_log_failed(r, late.msg);
}

/*
 * Waits for the store. The verdict must be safe in one of the two places, and one wait for the disk
 * is enough for that; in neither, the slot stays and the caller hears that nothing is certain.
 */
static int confirm(struct run *r, int local, struct forge_error *full,
		   struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	uint64_t more =
		2000ull * json_array_size(json_object_get(r->record.json, "outputs"));

	if (r->courier.error.code)
		forge_run_report_all(r); /* by now it may be there again */
	int rc = forge_courier_wait(&r->courier, STORE_USEC + more, &why);
	/* The courier that the steps of a pipeline share was killed: this run starts one of its own. */
	if ((rc == -EPIPE || rc == -ECONNRESET) && r->req->courier_fd > 0) {
		why = FORGE_ERROR_INIT;
		forge_run_report_all(r);
		rc = forge_courier_wait(&r->courier, STORE_USEC + more, &why);
	}
	if (rc == 0) {
		if (local < 0)
			forge_run_warn(r, full);
		return 0;
	}
	if (local == 0)
		local = forge_record_sync(&r->record, full);
	if (local == 0) {
		forge_run_defer_delivery(r, &why);
		return 0;
	}
	r->needs_repair = true;
	*err = *full;
	return forge_wrap(err, local, "the run is over, but its verdict cannot be kept");
}

/*
 * The verdict is in record.json before it is sent to the store, so that repair finds it when this process
 * dies. A tree that takes long to remove does not keep the verdict waiting; a small one
 * is removed first, and the run is stored in one transaction. When a cgroup
 * cannot be removed, the slot stays too, and repair reports to the store.
 */
int forge_run_finish(struct run *r, const struct forge_outcome *o,
		     const struct forge_verdict *v, struct forge_error *err)
{
	struct forge_error full = FORGE_ERROR_INIT;
	/* Another supervisor may have to collect again, until there is a verdict: then the workdir goes last. */
	bool is_small = o->inodes_peak <= SMALL_TREE &&
			!(r->executor->caps & FORGE_EXECUTOR_OUTLIVES);

	forge_record_set_outcome(&r->record, o, v);
	json_object_del(r->record.json, "guarded_since");
	/* Refused by the host while it waited for its share, which it then could have had. */
	if (!forge_status_may_follow(forge_run_status(r), forge_status_of(v->status)))
		forge_run_set_status(r, "preparing", NULL);
	forge_run_set_status(r, v->status, v->reason);
	int rc = forge_run_make_files(r, err);
	if (rc < 0) {
		r->needs_repair |= forge_run_clean(r, NULL) < 0;
		return rc;
	}
	if (is_small)
		clean_or_leave(r);
	sync_logs(r);
	int local = forge_record_write(&r->record, &full);
	if (local == 0)
		(void)forge_shared_result_write(r->home, r->record.dir_fd,
						r->record.json); /* gc tries again */
	if (!r->courier.error.code)
		forge_run_report(r, true, is_small);
	bool is_clean = forge_run_end_execution(r);
	if (!is_small)
		clean_or_leave(r);
	if (!is_clean || (!is_small && (r->needs_repair || r->keeps)))
		(void)!forge_record_write(&r->record, NULL); /* the verdict is there */
	if (!is_small && !r->courier.error.code)
		forge_run_report(r, false, true);
	return confirm(r, local, &full, err);
}

void forge_run_take_results(struct run *r, const struct forge_outcome *o,
			    struct forge_verdict *v)
{
	set_inputs(r, o);
	note_runtime(r);
	if (r->has_started)
		collect(r, o, v);
	check_step(r, v);
	/* A node may have refused it. */
	if (r->has_started || r->executor->caps & FORGE_EXECUTOR_REMOTE)
		forge_run_check_after(r, v);
	if (r->spec->copy_to && strcmp(v->status, "succeeded") == 0)
		copy_outputs(r, v);
	if (r->ready->post_process && r->spec->post_process.n &&
	    strcmp(v->status, "succeeded") == 0) {
		(void)forge_run_end_execution(r); /* the record says so */
		post_process(r);
	}
}
