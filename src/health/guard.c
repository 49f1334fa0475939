/* SPDX-License-Identifier: Apache-2.0 */
/* Observes guarded files during one run. */
#include "health/guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "health/change.h"
#include "health/check.h"
#include "health/fan.h"
#include "health/guard_child.h"
#include "health/guard_set.h"
#include "health/guard_watch.h"

/* A watcher that ends just now, or has just been started by another run. */
#define TRIES	   50
#define PAUSE_NSEC 20000000
/* A watcher that hangs is like none. */
#define ANSWER_SECONDS 20

/* A top when the run began: what the times of files do not tell. */
struct top {
	bool is_there;
	dev_t dev;
	ino_t ino;
};

struct forge_guard {
	struct forge_guard_set set;
	struct top *tops;	     /* as many as set.tops */
	struct forge_guard_set rest; /* what cannot be watched */
	struct forge_guard_child child;
	int watch; /* connection, -1: nothing is watched */
	struct timespec since;
	bool is_lost;	/* the watch: it does not know the processes of the run */
	char note[512]; /* why something is not watched, "" */
};

void forge_guard_free(struct forge_guard *g)
{
	if (!g)
		return;
	forge_guard_child_end(&g->child);
	if (g->watch >= 0)
		close(g->watch);
	forge_guard_set_done(&g->set);
	forge_guard_set_done(&g->rest);
	free(g->tops);
	free(g);
}

/* ---- the watch ---- */

static int ask_to_watch(int fd, const struct forge_guard_spec *spec,
			const struct forge_guard *g, json_t **ret,
			struct forge_error *err)
{
	struct timeval limit = { .tv_sec = ANSWER_SECONDS };
	char word[64];

	(void)snprintf(word, sizeof(word), "forge-%s", spec->run_id);
	forge_auto_json json_t *hello = json_pack(
		"{s:s, s:s, s:o?, s:o}", "run_id", spec->run_id, "word", word, "workdir",
		spec->workdir ? forge_json_name(spec->workdir) : NULL, "set",
		forge_guard_set_json(&g->set));
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	int rc = forge_guard_send(fd, hello);
	if (rc == 0)
		rc = forge_guard_receive(fd, ret);
	if (rc < 0)
		return rc;
	const char *error = forge_json_string(*ret, "error");
	return error ? forge_fail(err, EPROTO, "%s", error) : 0;
}

static int can_watch(struct forge_error *err)
{
	struct forge_fan *f = NULL;
	int rc = geteuid() == 0 ? forge_fan_open(&f, err)
				: forge_fail(err, EPERM, "only root can watch files");

	forge_fan_close(f);
	return rc;
}

/* Connects, and starts the watcher where there is none. */
static int begin_watch(const struct forge_guard_spec *spec, struct forge_guard *g,
		       json_t **ret_answer, struct forge_error *err)
{
	forge_auto_close int dir = forge_home_subdir(spec->home, FORGE_GUARD_DIR, err);
	bool was_started = false;
	int rc = dir < 0 ? dir : -ENOENT;

	for (int i = 0; i < TRIES && dir >= 0; i++) {
		forge_auto_close int fd = forge_guard_connect(dir);
		rc = fd < 0 ? fd : ask_to_watch(fd, spec, g, ret_answer, err);
		if (rc == 0) {
			g->watch = forge_take_fd(fd);
			return 0;
		}
		if (err && err->code)
			return rc;
		/* One that is about to end still has the lock. */
		if (!was_started || i % 5 == 4) {
			int started = was_started ? 0 : can_watch(err);
			if (started == 0)
				started = spec->start_watcher(spec->home, err);
			if (started < 0)
				return started;
			was_started = true;
		} else {
			const struct timespec pause = { .tv_nsec = PAUSE_NSEC };
			(void)nanosleep(&pause, NULL);
		}
	}
	return rc < 0 && (!err || !err->code)
		       ? forge_fail_errno(err, -rc, "the watcher of guarded files")
		       : rc;
}

/* What the watcher cannot see is a set of its own: the same patterns, other tops. */
static int take_rest(const json_t *answer, struct forge_guard *g)
{
	const json_t *list = json_object_get(answer, "unwatched"), *one;
	forge_auto_json json_t *copy = forge_guard_set_json(&g->set);
	size_t i;
	int rc = json_array_size(list) ? forge_guard_set_parse(copy, &g->rest) : 0;

	forge_strv_done(&g->rest.tops);
	json_array_foreach (list, i, one) {
		forge_auto_free char *top =
			forge_json_name_decode(forge_json_string_or(one, "path", ""));
		if (!g->note[0])
			(void)snprintf(g->note, sizeof(g->note), "%s",
				       forge_json_string_or(one, "why", ""));
		if (rc == 0)
			rc = top ? forge_strv_add(&g->rest.tops, top) : -EPROTO;
	}
	return rc;
}

static int watch(const struct forge_guard_spec *spec, struct forge_guard *g)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_json json_t *answer = NULL;
	int rc = geteuid() == 0 ? begin_watch(spec, g, &answer, &why) : can_watch(&why);

	if (rc == 0)
		rc = take_rest(answer, g);
	if (rc < 0)
		(void)snprintf(g->note, sizeof(g->note), "%s",
			       why.code ? why.msg : strerror(-rc));
	return rc;
}

/* ---- begin and end ---- */

static int observe(const struct forge_guard_spec *spec, struct forge_guard *g,
		   struct forge_error *err)
{
	enum forge_guard_mode mode = spec->config->mode;
	const struct forge_guard_set *compared = &g->set;

	if (mode != FORGE_GUARD_SNAPSHOT) {
		int rc = watch(spec, g);
		if (mode == FORGE_GUARD_WATCH && (rc < 0 || g->rest.tops.n))
			return forge_hint(
				err,
				forge_fail(err, EOPNOTSUPP,
					   "guarded files cannot be watched: %s",
					   g->note),
				"guard.mode: auto compares them where they cannot be "
				"watched");
		if (rc == 0)
			compared = g->rest.tops.n ? &g->rest : NULL;
	}
	return compared ? forge_guard_child_snapshot(compared, spec->stop_fd, &g->child,
						     err)
			: 0;
}

static int make_set(const struct forge_guard_spec *spec, struct forge_guard_set *ret,
		    struct forge_error *err)
{
	const struct forge_guard_own own = { .home = spec->home->path,
					     .workdirs = spec->workdirs,
					     .workdir = spec->workdir };

	int rc = forge_guard_child_reach(spec->config, &own, spec->stop_fd, err);

	return rc < 0 ? rc : forge_guard_set_make(spec->config, &own, ret, err);
}

static int look_at_tops(struct forge_guard *g, struct forge_error *err)
{
	size_t i = 0;

	g->tops = calloc(g->set.tops.n + 1, sizeof(*g->tops));
	if (!g->tops)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_strv_foreach (path, &g->set.tops) {
		struct stat st;
		struct top *top = &g->tops[i++];
		top->is_there = lstat(path, &st) == 0;
		top->dev = st.st_dev;
		top->ino = st.st_ino;
	}
	return 0;
}

/* What was deleted as a whole, or replaced by something older, has no times that tell; nor has what lay in it. */
static void compare_tops(const struct forge_guard *g, struct forge_changes *c)
{
	size_t i = 0;

	forge_strv_foreach (path, &g->set.tops) {
		struct stat st;
		const struct top *top = &g->tops[i++];
		if (!top->is_there || !(forge_guard_has(&g->set, path) ||
					forge_guard_may_move(&g->set, path)))
			continue;
		if (lstat(path, &st) < 0)
			forge_changes_add(c, path, FORGE_CHANGE_DELETED,
					  FORGE_AUTHOR_UNKNOWN, NULL);
		else if (st.st_dev != top->dev || st.st_ino != top->ino)
			forge_changes_add(c, path, FORGE_CHANGE_MODIFIED,
					  FORGE_AUTHOR_UNKNOWN, NULL);
	}
}

int forge_guard_begin(const struct forge_guard_spec *spec, struct forge_guard **ret,
		      struct forge_error *err)
{
	struct forge_guard *g = calloc(1, sizeof(*g));
	int rc = g ? 0 : forge_fail(err, ENOMEM, "out of memory");

	if (g) {
		g->watch = -1;
		g->child = FORGE_GUARD_CHILD_INIT;
		clock_gettime(CLOCK_REALTIME_COARSE, &g->since);
		rc = make_set(spec, &g->set, err);
	}
	if (rc == 0 && g->set.n > 0)
		rc = look_at_tops(g, err);
	if (rc == 0 && g->set.n > 0)
		rc = observe(spec, g, err);
	if (rc < 0 || g->set.n == 0) {
		forge_guard_free(g);
		g = NULL;
	}
	*ret = g;
	return rc;
}

void forge_guard_note_init(struct forge_guard *g, pid_t init)
{
	forge_auto_json json_t *answer = NULL;
	forge_auto_json json_t *message = json_pack("{s:i}", "init", (int)init);
	int rc = g->watch < 0 ? 0 : forge_guard_send(g->watch, message);

	if (rc == 0 && g->watch >= 0)
		rc = forge_guard_receive(g->watch, &answer);
	/* One that does not know its processes would take them for others. */
	g->is_lost |= rc < 0;
}

/* Adds what an answer has. 0: nothing was lost; else why. */
static const char *end_watch(struct forge_guard *g, struct forge_changes *changes,
			     const char **ret_minor)
{
	forge_auto_json json_t *answer = NULL;
	forge_auto_json json_t *end = json_pack("{s:b}", "end", 1);
	int rc = forge_guard_send(g->watch, end);

	if (rc == 0)
		rc = forge_guard_receive(g->watch, &answer);
	if (rc < 0 || g->is_lost)
		return "the watch was lost";
	forge_changes_merge(changes, json_object_get(answer, "changes"));
	if (json_is_true(json_object_get(answer, "forks_lost")))
		*ret_minor = "not all processes were seen";
	return json_is_true(json_object_get(answer, "lost"))
		       ? "more changes than could be watched"
		       : NULL;
}

/* Files of checks that only warn are marked. */
static void mark_warnings(const struct forge_guard_set *set, json_t *report)
{
	size_t i;
	json_t *one;

	json_array_foreach (json_object_get(report, "files"), i, one) {
		forge_auto_free char *path =
			forge_json_name_decode(forge_json_string_or(one, "path", ""));
		if (path && *path == '/' && !forge_guard_is_severe(set, path))
			json_object_set_new(one, "warns", json_true());
	}
}

static json_t *make_report(const struct forge_guard *g,
			   const struct forge_changes *changes, const char *mode,
			   const char *note)
{
	json_t *report = forge_changes_json(changes);

	mark_warnings(&g->set, report);
	json_object_set_new(report, "mode", json_string(mode));
	if (note)
		json_object_set_new(report, "note", forge_json_text(note));
	return report;
}

static int by_times(struct forge_guard *g, int stop_fd, uint64_t wait_usec,
		    struct forge_changes *changes, struct forge_error *err)
{
	forge_auto_json json_t *found = NULL;
	int rc = forge_guard_child_since(&g->set, &g->since, stop_fd, wait_usec, &found,
					 err);

	if (rc < 0)
		return rc;
	compare_tops(g, changes);
	forge_changes_add_unknown(changes, found);
	return 0;
}

static int by_snapshot(struct forge_guard *g, int stop_fd, struct forge_changes *changes,
		       struct forge_error *err)
{
	forge_auto_json json_t *found = NULL;
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = forge_guard_child_compare(&g->child, stop_fd, &found, &why);

	/* The process with the snapshot is gone: the times of the files are left. */
	if (rc < 0) {
		(void)snprintf(g->note, sizeof(g->note), "%s", why.msg);
		return by_times(g, stop_fd, FORGE_GUARD_WAIT_USEC, changes, err);
	}
	forge_changes_add_unknown(changes, found);
	return 0;
}

int forge_guard_end(struct forge_guard *g, int stop_fd, json_t **ret,
		    struct forge_error *err)
{
	forge_auto_changes struct forge_changes changes = { 0 };
	const char *lost = NULL, *minor = NULL;
	const char *mode = g->watch < 0 ? "snapshot" : g->child.pid ? "both" : "watch";
	int rc = forge_changes_init(&changes) < 0
			 ? forge_fail(err, ENOMEM, "out of memory")
			 : 0;

	changes.set = &g->set;
	if (rc == 0 && g->watch >= 0)
		lost = end_watch(g, &changes, &minor);
	if (rc == 0 && lost) {
		mode = "times";
		rc = by_times(g, stop_fd, FORGE_GUARD_WAIT_USEC, &changes, err);
	}
	if (rc == 0 && g->child.pid) {
		bool had_note = g->note[0];
		rc = by_snapshot(g, stop_fd, &changes, err);
		mode = !had_note && g->note[0] ? "times" : mode;
	}
	if (rc < 0)
		return rc;
	const char *note = lost ? lost : g->note[0] ? g->note : minor;
	*ret = make_report(g, &changes, mode, note);
	return 0;
}

/* ---- after the death of a supervisor ---- */

json_t *forge_guard_saved(const struct forge_guard *g)
{
	json_t *tops = json_array();

	for (size_t i = 0; i < g->set.tops.n; i++)
		json_array_append_new(
			tops,
			g->tops[i].is_there
				? json_pack("[o, I, I]",
					    forge_json_name(g->set.tops.v[i]),
					    (json_int_t)g->tops[i].dev,
					    (json_int_t)g->tops[i].ino)
				: json_pack("[o]", forge_json_name(g->set.tops.v[i])));
	return json_pack("{s:[I, I], s:o, s:o}", "since", (json_int_t)g->since.tv_sec,
			 (json_int_t)g->since.tv_nsec, "set",
			 forge_guard_set_json(&g->set), "tops", tops);
}

static int restore_tops(const json_t *list, struct forge_guard *g)
{
	size_t i;
	const json_t *one;

	g->tops = calloc(g->set.tops.n + 1, sizeof(*g->tops));
	if (!g->tops)
		return -ENOMEM;
	json_array_foreach (list, i, one) {
		const char *text = json_string_value(json_array_get(one, 0));
		forge_auto_free char *path = text ? forge_json_name_decode(text) : NULL;
		if (!path || i >= g->set.tops.n || strcmp(path, g->set.tops.v[i]) != 0)
			return -EINVAL;
		g->tops[i] = (struct top){
			.is_there = json_array_size(one) == 3,
			.dev = (dev_t)json_integer_value(json_array_get(one, 1)),
			.ino = (ino_t)json_integer_value(json_array_get(one, 2)),
		};
	}
	return i == g->set.tops.n ? 0 : -EINVAL;
}

static int restore(const json_t *saved, struct forge_guard *g)
{
	const json_t *since = json_object_get(saved, "since");
	int rc = forge_guard_set_parse(json_object_get(saved, "set"), &g->set);

	if (rc == 0 && (json_array_size(since) != 2 || g->set.n == 0))
		rc = -EINVAL;
	g->since = (struct timespec){
		.tv_sec = (time_t)json_integer_value(json_array_get(since, 0)),
		.tv_nsec = (long)json_integer_value(json_array_get(since, 1)),
	};
	return rc == 0 ? restore_tops(json_object_get(saved, "tops"), g) : rc;
}

int forge_guard_since(const json_t *saved, uint64_t wait_usec, json_t **ret,
		      struct forge_error *err)
{
	forge_auto_changes struct forge_changes changes = { 0 };
	struct forge_guard *g = calloc(1, sizeof(*g));
	int rc = g && forge_changes_init(&changes) == 0 ? 0 : -ENOMEM;

	if (g) {
		g->watch = -1;
		g->child = FORGE_GUARD_CHILD_INIT;
	}
	if (rc == 0)
		rc = restore(saved, g);
	if (rc < 0) {
		forge_guard_free(g);
		return forge_fail_errno(err, -rc, "what was saved of guarded files");
	}
	changes.set = &g->set;
	rc = by_times(g, -1, wait_usec, &changes, err);
	if (rc == 0) {
		*ret = make_report(g, &changes, "times",
				   "the supervisor that watched has died");
		json_object_set_new(*ret, "until_now", json_true());
	}
	forge_guard_free(g);
	return rc;
}

/* The path of a guarded place on the file system of the workdirs, where a watch costs most; or NULL. */
static const char *find_beside_workdirs(const struct forge_guard_set *set,
					const char *workdirs)
{
	char place[PATH_MAX];
	struct stat own, st;

	forge_workdirs_place(workdirs, place);
	if (stat(place, &own) < 0)
		return NULL;
	forge_strv_foreach (path, &set->tops)
		if (lstat(path, &st) == 0 && st.st_dev == own.st_dev)
			return path;
	return NULL;
}

int forge_guard_describe(const struct forge_guard_spec *spec, json_t **ret,
			 struct forge_error *err)
{
	forge_auto_guard_set struct forge_guard_set set = { 0 };
	forge_auto_json json_t *found = NULL;
	struct forge_error why = FORGE_ERROR_INIT;
	int rc = make_set(spec, &set, err);

	*ret = NULL;
	if (rc < 0 || set.n == 0)
		return rc;
	rc = forge_guard_child_since(&set, NULL, spec->stop_fd, FORGE_GUARD_WAIT_USEC,
				     &found, err);
	if (rc < 0)
		return rc;
	bool watches = spec->config->mode != FORGE_GUARD_SNAPSHOT && can_watch(&why) == 0;
	*ret = json_pack("{s:s, s:O}", "mode", watches ? "watch" : "snapshot", "files",
			 json_object_get(found, "guarded"));
	if (why.code)
		json_object_set_new(*ret, "why", forge_json_text(why.msg));
	const char *beside = watches && spec->workdirs
				     ? find_beside_workdirs(&set, spec->workdirs)
				     : NULL;
	if (beside)
		json_object_set_new(*ret, "beside_workdirs", forge_json_name(beside));
	return 0;
}
