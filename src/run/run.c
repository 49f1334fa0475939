/* SPDX-License-Identifier: Apache-2.0 */
/* The one door: resolve, admit, prepare, run, collect, judge, record, clean. */
#include "run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/rmtree.h"
#include "executor/executor.h"
#include "run/active.h"
#include "run/admit.h"
#include "run/collect.h"
#include "run/courier.h"
#include "run/deliver.h"
#include "run/hash.h"
#include "run/home.h"
#include "run/judge.h"
#include "run/postprocess.h"
#include "run/record.h"
#include "run/signals.h"
#include "run/spec.h"
#include "run/workdir.h"
#include "sandbox/ids.h"
#include "sandbox/netns.h"
#include "store/state.h"

/* How long the end of a run waits for the store before the record is kept for later. */
#define STORE_USEC (10 * 1000000ull)
/* The same for what is told in passing, while the run's limits are to be watched. */
#define PASSING_USEC 20000ull
/* Entries of a workdir that are removed in no time. */
#define SMALL_TREE 1000
/* Memory that is freed in no time. */
#define LITTLE_MEMORY (128ull << 20)

/* Everything a run holds between the door and the record. */
struct run {
	const struct forge_config *cfg;
	const struct forge_run_request *req;
	struct forge_spec spec;
	struct forge_home home;
	struct forge_ids ids;
	struct forge_active active;
	struct forge_workdir workdir;
	struct forge_record record;
	struct forge_share share;
	struct forge_ticket ticket; /* held: the share is yet to be had */
	int turned_away;	    /* why the wait for it ended without one, or 0 */
	struct forge_courier courier;
	struct forge_hasher hasher;
	struct forge_objects objects;
	struct forge_execution *execution; /* not yet ended */
	char *store;	   /* URL */
	json_t *post_rows; /* what the post-process said */
	bool has_started;  /* the command ran: there is something to keep */
	bool is_confirmed; /* somebody was told that this run will happen */
	bool is_behind;	   /* the store missed something of this run, and the user knows */
	bool needs_repair; /* something could not be removed: the next repair tries again */
};

/* Everything is dead; what the kernel has yet to tear down is waited for. False: something is left. */
static bool end_execution(struct run *r)
{
	struct forge_error late = FORGE_ERROR_INIT;
	int rc = forge_executor_local.end(r->execution, &late);

	r->execution = NULL;
	if (rc == 0)
		return true;
	r->needs_repair = true;
	json_object_set_new(r->record.json, "cleanup_error", json_string(late.msg));
	forge_record_event(&r->record, "cgroup_left", late.msg);
	return false;
}

static void run_done(struct run *r)
{
	(void)end_execution(r); /* only if something went wrong before */
	forge_courier_stop(&r->courier);
	json_decref(forge_hasher_finish(&r->hasher, &r->spec.inputs, -1));
	forge_objects_close(&r->objects);
	forge_admit_leave(&r->ticket, &r->share);
	forge_admit_release(&r->share);
	forge_record_close(&r->record);
	forge_workdir_close(&r->workdir);
	if (r->needs_repair)
		forge_active_leave(&r->active);
	else
		forge_active_close(&r->active);
	forge_ids_done(&r->ids);
	forge_home_close(&r->home);
	forge_spec_done(&r->spec);
	json_decref(r->post_rows);
	free(r->store);
}

static void run_init(struct run *r, const struct forge_config *cfg,
		     const struct forge_run_request *req)
{
	*r = (struct run){ .cfg = cfg, .req = req };
	r->home = FORGE_HOME_INIT;
	r->ids.lock_fd = -1;
	r->active = FORGE_ACTIVE_INIT;
	r->workdir.fd = -1;
	r->record = FORGE_RECORD_INIT;
	r->share = FORGE_SHARE_INIT;
	r->ticket = FORGE_TICKET_INIT;
	r->courier = FORGE_COURIER_INIT;
	r->hasher = FORGE_HASHER_INIT;
	r->objects = FORGE_OBJECTS_INIT;
}

static void warn(const struct run *r, const struct forge_error *warning)
{
	if (r->req->on_warning)
		r->req->on_warning(r->req->arg, warning);
}

/* ---- telling the store ---- */

/*
 * What is not waited for must not keep the supervisor from its work either: a batch with a long
 * command does not fit into the socket while the courier still connects. It is told at the end.
 */
static void tell_store(struct run *r, bool durable, bool is_last)
{
	uint64_t most = durable || is_last ? STORE_USEC : PASSING_USEC;
	json_t *batch = forge_record_take_batch(&r->record);

	if (r->post_rows)
		json_object_set(batch, "post_process", r->post_rows);
	forge_courier_send(&r->courier, batch, durable, is_last, most);
	json_decref(batch);
}

/* The run goes on without the store; the user should know, once. */
static void warn_of_store(struct run *r, const struct forge_error *why)
{
	struct forge_error e = *why;
	forge_auto_free char *url = forge_store_display(r->store);

	if (r->is_behind)
		return;
	r->is_behind = true;
	(void)forge_wrap(&e, 0, "store %s", url ? url : "");
	(void)forge_hint(&e, 0, "The record is kept in %s and delivered by the next forge "
				"command that reaches the store",
			 r->home.path);
	warn(r, &e);
	forge_record_event(&r->record, "store_unreachable", why->msg);
}

/* Marked anew each time: another command may have delivered what there was by then. */
static void keep_for_later(struct run *r, const struct forge_error *why)
{
	struct forge_error late = FORGE_ERROR_INIT;

	warn_of_store(r, why);
	/* The run's directory is all there is now; with a store that was told, it would do without. */
	if (fsync(r->home.runs_fd) < 0) {
		(void)forge_fail_errno(&late, errno, "write %s/runs", r->home.path);
		warn(r, &late);
	}
	if (forge_deliver_later(&r->home, r->spec.run_id, r->store, &late) < 0)
		warn(r, &late);
}

/* What an earlier batch brought in vain is told again, from the run's directory: all of it. */
static void tell_all(struct run *r)
{
	json_t *batch = json_pack("{s:O, s:o}", "record", r->record.json, "events",
				  forge_load_events(&r->home, r->spec.run_id));

	if (r->post_rows)
		json_object_set(batch, "post_process", r->post_rows);
	r->courier.error = FORGE_ERROR_INIT;
	forge_courier_send(&r->courier, batch, true, true, STORE_USEC);
	json_decref(batch);
}

/* ---- before the command ---- */

static void set_status(struct run *r, const char *status, const char *detail)
{
	forge_record_status(&r->record, status, detail);
}

static enum forge_status status_of(const struct run *r)
{
	return forge_status_of(
		json_string_value(json_object_get(r->record.json, "status")));
}

static void on_event(void *arg, const char *event, const char *detail)
{
	struct run *r = arg;

	if (strcmp(event, "log_failed") == 0) {
		struct forge_error e = FORGE_ERROR_INIT;
		(void)forge_fail(&e, EIO, "its log is not complete: %s", detail);
		warn(r, &e);
	}
	if (strcmp(event, "started") == 0) {
		r->has_started = true;
		set_status(r, "running", detail);
		tell_store(r, false, false);
		return;
	}
	forge_record_event(&r->record, event, detail);
}

static int make_record_files(struct run *r, struct forge_error *err)
{
	if (r->record.dir_fd >= 0)
		return 0;
	/* First in the slot: a directory that no slot has a record for is none that repair may touch. */
	int rc = forge_active_note_record(&r->active, r->record.json, err);
	return rc < 0 ? rc : forge_record_make_files(&r->record, &r->home, err);
}

/* While the sandbox is being built there is time for files, hashes and the store. */
static int on_building(void *arg, struct forge_error *err)
{
	struct run *r = arg;
	int rc = make_record_files(r, err);

	if (rc < 0)
		return rc;
	forge_hasher_start(&r->hasher, &r->home, &r->spec.inputs);
	/* He opens the store meanwhile; what there is to tell goes with the next event. */
	forge_courier_start(&r->courier);
	return 0;
}

/* Everything is ready; who was queued now needs the share. */
static int before_start(void *arg, struct forge_error *err)
{
	struct run *r = arg;

	if (r->ticket.fd < 0)
		return 0;
	forge_auto_close int signals = forge_signals_fd();
	int rc = forge_admit_take(&r->ticket, signals, &r->share, err);
	if (rc == 0)
		set_status(r, "preparing", NULL);
	else if (rc == -ECANCELED || rc == -ETIMEDOUT)
		r->turned_away = rc;
	forge_admit_leave(&r->ticket, &r->share);
	return rc;
}

static void fill_job(struct run *r, struct forge_job *job)
{
	*job = (struct forge_job){
		.run_id = r->spec.run_id,
		.argv = r->spec.argv.v,
		.env = &r->spec.env,
		.read_only = &r->spec.read_only,
		.aliases = &r->spec.aliases,
		.tools = &r->spec.tools,
		.root = r->spec.root,
		.workdir = r->spec.workdir,
		.workdir_fd = r->workdir.fd,
		.host_uid = r->ids.uid,
		.host_gid = r->ids.gid,
		.privileged = r->ids.privileged,
		.own_network = r->spec.own_network,
		.pass_stdin = r->req->pass_stdin,
		.limits = &r->spec.limits,
		.config = r->cfg,
		.log_fd = r->record.log_fd,
		.live_fd = { r->req->stdout_fd, r->req->stderr_fd },
		.before_start = before_start,
		.on_building = on_building,
		.on_event = on_event,
		.arg = r,
	};
}

/* A slot, and the uid that goes with it. */
static int claim(struct run *r, struct forge_error *err)
{
	struct forge_error e = FORGE_ERROR_INIT;
	unsigned attempt = 0;
	int rc;

	for (;;) {
		rc = forge_active_claim(&r->home, &attempt, r->cfg->uid_count, &r->active,
					&e);
		if (rc == 0)
			rc = forge_ids_choose(r->cfg->uid_base, r->active.slot, &r->ids,
					      &e);
		if (rc != -EAGAIN || r->active.fd < 0)
			break;
		forge_active_leave(
			&r->active); /* empty; its uid is taken by another home */
	}
	if (rc < 0 && err)
		*err = e;
	return rc;
}

/* From here on a crash leaves a slot that names everything the run is going to make. */
static int open_state(struct run *r, struct forge_error *err)
{
	int rc = forge_home_open(true, &r->home, err);

	if (rc == 0)
		rc = forge_store_choose(r->req->store, r->cfg, &r->store, err);
	if (rc == 0)
		rc = forge_spec_check_runtime(&r->spec, r->cfg, r->req, &r->home, r->store, err);
	if (rc == 0)
		rc = forge_spec_environment(&r->spec, r->cfg, r->req, &r->home, r->store, err);
	if (rc == 0)
		rc = claim(r, err);
	if (rc == 0)
		rc = forge_active_intend(&r->active, r->spec.run_id, r->spec.workdir,
					 r->store, r->req->keep, err);
	if (rc == 0)
		rc = forge_record_new(&r->home, &r->spec, &r->record, err);
	if (rc < 0)
		return rc;
	r->courier.url = r->store;
	return 0;
}

/* Without the store the run's directory is all there is. */
static int record_here(struct run *r, struct forge_error *err)
{
	int rc = forge_record_write(&r->record, err);

	if (rc == 0)
		rc = forge_record_sync(&r->record, err);
	if (rc == 0 && fsync(r->home.runs_fd) < 0)
		rc = forge_fail_errno(err, errno, "write %s/runs", r->home.path);
	return rc;
}

/*
 * Safe in the store or on disk here: only then is the run confirmed to who asked for it. Nobody reads
 * record.json before the run is over, but for want of a store; the slot has it for repair.
 */
static int record_durably(struct run *r, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = make_record_files(r, err);

	if (rc < 0)
		return rc;
	if (!r->is_confirmed) {
		tell_store(r, true, false);
		if (forge_courier_wait(&r->courier, STORE_USEC, &why) < 0) {
			rc = record_here(r, err);
			if (rc < 0)
				return rc;
			keep_for_later(r, &why);
		}
	}
	r->is_confirmed = true;
	if (r->req->on_recorded)
		r->req->on_recorded(r->req->arg, r->spec.run_id);
	return 0;
}

/* One run for one key: the store decides, before anything is made. 1: another run has it. */
static int claim_key(struct run *r, struct forge_error *err)
{
	if (!r->spec.idempotency_key)
		return 0;
	tell_store(r, true, false);
	int rc = forge_courier_wait(&r->courier, STORE_USEC, err);
	if (rc == -EEXIST && r->courier.other_run[0])
		return 1;
	r->is_confirmed = rc == 0;
	return rc < 0 ? forge_wrap(err, rc, "--idempotency-key cannot be checked") : 0;
}

/* The post-process comes out of the same share: it runs when the run is over. */
static struct forge_need need_of(const struct run *r)
{
	struct forge_need n = { .bytes = r->spec.limits.memory_bytes,
				.milli = r->spec.limits.cpus_milli,
				.priority = r->spec.priority,
				.run_id = r->spec.run_id,
				.slot = r->active.slot };
	const struct forge_profile *p;

	if (r->spec.post_process.n &&
	    forge_config_profile(r->cfg, "post_process", &p, NULL) == 0) {
		n.bytes = p->limits.memory_bytes > n.bytes ? p->limits.memory_bytes : n.bytes;
		n.milli = p->limits.cpus_milli > n.milli ? p->limits.cpus_milli : n.milli;
	}
	return n;
}

static int wait_for_room(struct run *r, const struct forge_need *need,
			 struct forge_error *err)
{
	struct forge_error note = FORGE_ERROR_INIT;
	int rc = record_durably(r, err);

	if (rc < 0)
		return rc;
	(void)forge_fail(&note, EAGAIN, "queued: waiting until there is room for it");
	warn(r, &note);
	forge_auto_close int signals = forge_signals_fd();
	rc = forge_admit_queue(&r->home, r->cfg, need, signals, &r->ticket, err);
	if (rc < 0)
		forge_admit_leave(&r->ticket, &r->share);
	return rc;
}

/* A post-process runs within the share of its run. */
static int take_share(struct run *r, const struct forge_need *need, struct forge_error *err)
{
	return r->req->parent_run ? 0 :
				    forge_admit_try(&r->home, r->cfg, need, &r->share, err);
}

/* 0: admitted, or told in *ret_verdict why not. 1: another run has the key. */
static int admit(struct run *r, struct forge_verdict *ret_verdict, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_need need = need_of(r);
	int rc = 0;

	/* One run for one key: claimed before anything is decided about it. */
	if (r->spec.idempotency_key) {
		set_status(r, "queued", NULL);
		rc = claim_key(r, err);
		if (rc != 0)
			return rc;
	}
	rc = take_share(r, &need, &why);
	if (rc == 1) {
		if (!r->spec.idempotency_key)
			set_status(r, "queued", NULL);
		rc = wait_for_room(r, &need, &why);
	} else if (rc == 0 && r->req->wait_durable) {
		set_status(r, "preparing", NULL);
		return record_durably(r, err);
	}
	if (rc == 0) {
		/* The first in line gets ready while it waits: its share then goes into the run. */
		if (r->ticket.fd < 0)
			set_status(r, "preparing", NULL);
		return 0;
	}
	if (rc != -E2BIG && rc != -ECANCELED && rc != -ETIMEDOUT) {
		if (err)
			*err = why;
		return rc;
	}
	forge_judge_not_admitted(rc, &why, ret_verdict);
	return 0;
}

/* Order matters for repair: the intention is on disk before anything it names exists. */
static int prepare(struct run *r, struct forge_error *err)
{
	int rc = forge_workdir_make(r->spec.workdir, &r->workdir, err);

	if (rc == 0)
		rc = forge_active_note_workdir(&r->active, &r->workdir, err);
	if (rc == 0)
		rc = forge_workdir_fill(&r->workdir, &r->spec.links, r->ids.uid,
					r->ids.gid, err);
	return rc;
}

/* ---- after the command ---- */

/* Keeps or removes the workdir, and says what was done. A failure is left for repair. */
static int clean(struct run *r, struct forge_error *err)
{
	struct forge_workdir *w = &r->workdir;
	struct forge_rmtree_stats stats = { 0 };
	char detail[160];

	if (w->fd < 0)
		return 0;
	if (r->req->keep && r->has_started) {
		int rc = r->ids.privileged ? forge_chown_tree(w->path, getuid(), getgid(),
							      w->dev, w->ino, err)
					   : 0;
		if (rc == 0 && r->record.json) {
			forge_record_event(&r->record, "workdir_kept", w->path);
			json_object_set_new(r->record.json, "workdir_kept", json_true());
			json_object_set_new(r->record.json, "workdir_identity",
					    json_pack("[I, I]", (json_int_t)w->dev,
						      (json_int_t)w->ino));
		}
		return rc;
	}
	int rc = forge_rmtree(w->path, w->dev, w->ino, &stats, err);
	if (rc == 0 && r->record.json) {
		(void)snprintf(detail, sizeof(detail),
			       "%" PRIu64 " files, %" PRIu64 " directories, %" PRIu64
			       " bytes",
			       stats.files, stats.dirs, stats.bytes);
		forge_record_event(&r->record, "workdir_removed", detail);
	}
	return rc;
}

static void set_inputs(struct run *r)
{
	forge_auto_close int signals = forge_signals_fd();
	json_t *inputs = r->spec.inputs.n ?
				 forge_hasher_finish(&r->hasher, &r->spec.inputs, signals) :
				 json_array();
	size_t i;
	json_t *o;

	json_array_foreach (inputs, i, o)
		if (i < r->spec.input_names.n && *r->spec.input_names.v[i])
			json_object_set_new(o, "as",
					    forge_json_text(r->spec.input_names.v[i]));
	json_object_set_new(r->record.json, "inputs", inputs);
}

/* Success is taken back: there is something that the command made and forge has not. */
static void miss_output(struct run *r, const char *problem, struct forge_verdict *v)
{
	forge_record_event(&r->record, "collect_problem", problem);
	if (strcmp(v->status, "succeeded") == 0)
		forge_judge_missing_output(problem, v);
}

/* Somebody installed something meanwhile: what the run had is then not known. */
static void note_runtime(struct run *r)
{
	char digest[FORGE_DIGEST_MAX];
	const char *now = forge_spec_runtime_changed(&r->spec, &r->home, digest);

	if (!now)
		return;
	json_object_set_new(json_object_get(r->record.json, "runtime"), "changed_to",
			    json_string(now));
	forge_record_event(&r->record, "runtime_changed", now);
}

/* A hole takes as long to hash as what is really there, and costs a run nothing to make. */
#define HOLES_MAX (64ull << 30)

static void take_outputs(struct run *r, struct forge_collected *c, struct forge_verdict *v)
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
		miss_output(r, c->problem, v);
	}
}

/* Outputs are safe on disk before anybody reads that the run succeeded. */
static void collect(struct run *r, const struct forge_outcome *o, struct forge_verdict *v)
{
	uint64_t disk = r->spec.limits.disk_bytes, most = r->cfg->outputs_max_bytes;
	forge_auto_close int signals = forge_signals_fd();
	struct forge_collect_spec spec = {
		.workdir_fd = r->workdir.fd,
		.patterns = &r->spec.outputs,
		.must_match = r->spec.has_outputs,
		.links = &r->spec.links,
		.max_bytes = most ? most : disk,
		.max_holes = most ? UINT64_MAX : HOLES_MAX,
		.stop_fd = signals,
		.max_files = r->cfg->outputs_max_files,
		/* Who could not be killed may still finish a write. */
		.may_link = !r->req->keep && !o->is_stuck,
		.is_partial = o->stop != FORGE_STOP_NONE,
	};
	struct forge_error why = FORGE_ERROR_INIT;
	struct forge_collected c = { .problem = "" };

	set_status(r, "collecting", NULL);
	int rc = forge_objects_open(&r->home, signals, &r->objects, &why);
	if (rc == 0)
		rc = forge_collect(&spec, &r->objects, &c, &why);
	r->objects.stop_fd = -1;
	if (rc == -ECANCELED) {
		c.is_stopped = true;
		take_outputs(r, &c, v);
	} else if (rc < 0) {
		char text[sizeof(why.msg) + 64];
		(void)snprintf(text, sizeof(text), "its outputs cannot be stored: %s", why.msg);
		miss_output(r, text, v);
	} else {
		take_outputs(r, &c, v);
	}
	forge_collected_done(&c);
}

static void post_process(struct run *r)
{
	struct forge_post_spec spec = { .cfg = r->cfg,
					.home = &r->home,
					.store = r->store,
					.record = r->record.json,
					.argv = &r->spec.post_process };
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *result = NULL;

	forge_record_event(&r->record, "post_process", NULL);
	if (forge_post_process(&spec, &result, &r->post_rows, &err) < 0) {
		forge_record_event(&r->record, "post_process_failed", err.msg);
		return;
	}
	json_object_set_new(r->record.json, "post_process", result);
	/* For a later delivery, should the store not be there now. */
	char *text = json_dumps(r->post_rows, JSON_COMPACT);
	if (text && json_array_size(r->post_rows))
		(void)!forge_replace_file(r->record.dir_fd, "post_process.json", text,
					  strlen(text), true);
	free(text);
}

static void clean_or_leave(struct run *r)
{
	struct forge_error late = FORGE_ERROR_INIT;

	if (clean(r, &late) == 0)
		return;
	r->needs_repair = true;
	forge_record_event(&r->record, "cleanup_failed", late.msg);
	json_object_set_new(r->record.json, "cleanup_error", json_string(late.msg));
}

/*
 * Waits for the store. The verdict must be safe in one of the two places, and one wait for the disk
 * is enough for that; in neither, the slot stays and the caller hears that nothing is certain.
 */
static int confirm(struct run *r, int local, struct forge_error *full,
		   struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	uint64_t more = 2000ull * json_array_size(json_object_get(r->record.json, "outputs"));

	if (r->courier.error.code)
		tell_all(r); /* by now it may be there again */
	if (forge_courier_wait(&r->courier, STORE_USEC + more, &why) == 0) {
		if (local < 0)
			warn(r, full);
		return 0;
	}
	if (local == 0)
		local = forge_record_sync(&r->record, full);
	if (local == 0) {
		keep_for_later(r, &why);
		return 0;
	}
	r->needs_repair = true;
	*err = *full;
	return forge_wrap(err, local, "the run is over, but its verdict cannot be kept");
}

/*
 * The verdict is in record.json before the store hears of it, so that whoever finds this process
 * dead knows it. A tree that takes long to remove does not keep the verdict waiting; a small one
 * is removed first, and the run is told in one transaction. Should a cgroup stay, the slot does
 * too, and repair tells the store.
 */
static int finish(struct run *r, const struct forge_outcome *o,
		  const struct forge_verdict *v, struct forge_error *err)
{
	struct forge_error full = FORGE_ERROR_INIT;
	bool is_small = o->inodes_peak <= SMALL_TREE;

	forge_record_set_outcome(&r->record, o, v);
	/* Refused by the host while it waited for its share, which it then could have had. */
	if (!forge_status_may_follow(status_of(r), forge_status_of(v->status)))
		set_status(r, "preparing", NULL);
	set_status(r, v->status, v->reason);
	int rc = make_record_files(r, err);
	if (rc < 0) {
		r->needs_repair |= clean(r, NULL) < 0;
		return rc;
	}
	if (is_small)
		clean_or_leave(r);
	int local = forge_record_write(&r->record, &full);
	if (!r->courier.error.code)
		tell_store(r, true, is_small);
	bool is_clean = end_execution(r);
	if (!is_small)
		clean_or_leave(r);
	if (!is_clean || (!is_small && (r->needs_repair || r->req->keep)))
		(void)!forge_record_write(&r->record, NULL); /* the verdict is there */
	if (!is_small && !r->courier.error.code)
		tell_store(r, false, true);
	return confirm(r, local, &full, err);
}

static int execute(struct run *r, struct forge_verdict *v, struct forge_outcome *outcome,
		   struct forge_error *err)
{
	struct forge_error refused = FORGE_ERROR_INIT;
	struct forge_netns netns = FORGE_NETNS_INIT;
	struct forge_job job;
	bool is_refused = false;

	/* Nobody is forked beside the thread: what it is about, a fork would cut in half. */
	if (r->ids.privileged && r->spec.own_network)
		forge_netns_begin(&netns);
	int rc = prepare(r, err);
	if (rc == 0) {
		fill_job(r, &job);
		job.netns = &netns;
		is_refused = forge_executor_local.run(&job, outcome, &r->execution,
						      &refused) < 0;
	}
	forge_netns_done(&netns);
	forge_admit_leave(&r->ticket, &r->share);
	if (rc < 0)
		return rc;
	/* A refusal before there was a record is worth one too. */
	rc = make_record_files(r, err);
	if (rc < 0)
		return rc;
	if (r->turned_away)
		forge_judge_not_admitted(r->turned_away, &refused, v);
	else if (is_refused && r->has_started)
		forge_judge_unwatched(&refused, v);
	else if (is_refused)
		forge_judge_refused(&refused, v);
	else
		forge_judge(outcome, &r->spec.limits, v);
	set_inputs(r);
	note_runtime(r);
	if (r->has_started)
		collect(r, outcome, v);
	if (r->spec.post_process.n && strcmp(v->status, "succeeded") == 0) {
		(void)end_execution(r); /* the record says so */
		post_process(r);
	}
	/* Its /dev/shm ends with its init; the next one gets memory that is free. */
	if (outcome->memory_peak_bytes > LITTLE_MEMORY)
		(void)end_execution(r); /* as above */
	forge_admit_release(&r->share);
	return 0;
}

/* From the slot to the verdict. */
static int carry_out(struct run *r, struct forge_run_result *ret, struct forge_error *err)
{
	struct forge_outcome outcome = { .wall_usec = UINT64_MAX };
	struct forge_verdict verdict = { .status = NULL };
	int rc = admit(r, &verdict, err);

	if (rc == 1) {
		memcpy(ret->existing_run, r->courier.other_run, sizeof(ret->existing_run));
		return 0;
	}
	if (rc == 0 && !verdict.status) {
		struct forge_error why = FORGE_ERROR_INIT;
		rc = execute(r, &verdict, &outcome, &why);
		/* What is confirmed has a verdict, also when it cannot be begun. */
		if (rc < 0 && (r->is_confirmed || r->record.dir_fd >= 0) && !r->has_started) {
			forge_judge_refused(&why, &verdict);
			rc = 0;
		} else if (rc < 0 && err) {
			*err = why;
		}
	}
	if (rc < 0) {
		(void)end_execution(r);
		/* The first error is told. With a record that has no end, repair makes one. */
		r->needs_repair |= clean(r, NULL) < 0 || r->record.dir_fd >= 0;
		return rc;
	}
	rc = finish(r, &outcome, &verdict, err);
	ret->record = json_incref(r->record.json);
	ret->exit_status = verdict.exit_status;
	return rc;
}

int forge_run(const struct forge_config *cfg, const struct forge_run_request *req,
	      struct forge_run_result *ret, struct forge_error *err)
{
	struct run r;
	sigset_t before;

	run_init(&r, cfg, req);
	/* Nothing is made yet, and an input may be where looking waits for ever: ^C ends us. */
	int rc = forge_spec_resolve(cfg, req, &r.spec, err);
	forge_signals_catch(&before);
	if (rc == 0)
		rc = open_state(&r, err);
	if (rc == 0)
		rc = carry_out(&r, ret, err);
	run_done(&r);
	forge_signals_release(&before);
	return rc;
}

int forge_run_explain(const struct forge_config *cfg, const struct forge_run_request *req,
		      json_t **ret, struct forge_error *err)
{
	struct run r;
	struct forge_job job;

	run_init(&r, cfg, req);
	int rc = forge_spec_resolve(cfg, req, &r.spec, err);
	/* A runtime may have to be asked for what its scripts do; without one nothing is made. */
	if (rc == 0 && r.spec.has_runtime)
		rc = forge_home_open(true, &r.home, err);
	if (rc == 0)
		rc = forge_store_choose(req->store, cfg, &r.store, err);
	if (rc == 0)
		rc = forge_spec_environment(&r.spec, cfg, req, &r.home, r.store, err);
	if (rc == 0)
		rc = forge_ids_choose(cfg->uid_base, 0, &r.ids, err);
	if (rc == -EAGAIN)
		rc = 0; /* the first is in use; it is only shown */
	fill_job(&r, &job);
	if (rc == 0)
		rc = forge_executor_local.explain(&job, ret, err);
	run_done(&r);
	return rc;
}
