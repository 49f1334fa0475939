/* SPDX-License-Identifier: Apache-2.0 */
/* forge rm: removes runs, or only their outputs. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/session.h"
#include "record/record.h"
#include "record/remove.h"

static bool is_sure, outputs_only;

static const struct forge_opt *rm_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG('f', "force", &is_sure, "Do not ask"),
		FORGE_FLAG(0, "outputs-only", &outputs_only,
			   "Remove what they left, and keep records and logs"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* Refuses a run of another FORGE_HOME: its files belong to its owner. */
static int check(const struct forge_session *s, const json_t *record,
		 struct forge_error *err)
{
	const char *run_id = forge_json_string(record, "run_id");
	const char *owner = forge_json_string(record, "user");
	const char *home =
		forge_json_string(json_object_get(record, "supervisor"), "home");
	char user[FORGE_USER_MAX];

	if (!forge_record_is_over(record))
		return forge_hint(err,
				  forge_fail(err, EBUSY, "run %s is not over (%s)",
					     run_id, forge_json_string(record, "status")),
				  "`forge kill %s` ends it", run_id);
	if (owner && strcmp(owner, forge_user_name(user)) != 0)
		return forge_fail(err, EPERM, "run %s is %s's", run_id, owner);
	if (!forge_record_is_here(record))
		return forge_hint(err,
				  forge_fail(err, EREMOTE, "run %s was on host %s",
					     run_id, forge_json_string(record, "host")),
				  "Remove it there, where its files are");
	if (home && strcmp(home, s->home.path) != 0)
		return forge_fail(err, EXDEV, "run %s is of FORGE_HOME %s", run_id, home);
	return 0;
}

static int check_all(struct forge_session *s, const struct forge_strv *ids,
		     struct forge_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < ids->n && rc == 0; i++) {
		forge_auto_json json_t *record = NULL;
		rc = forge_session_record(s, ids->v[i], &record, err);
		if (rc == 0)
			rc = check(s, record, err);
	}
	return rc;
}

/* Shown before the question: a label means its newest run, maybe not the intended one. */
static void show_some(struct forge_session *s, const struct forge_strv *ids)
{
	const size_t most = 10;

	for (size_t i = 0; i < ids->n && i < most; i++) {
		forge_auto_json json_t *record = NULL;
		struct forge_error err = FORGE_ERROR_INIT;
		if (forge_session_record(s, ids->v[i], &record, &err) < 0)
			continue; /* removing it reports the error */
		const char *name = forge_json_string(record, "analysis_id");
		fprintf(stderr, "%s  %s  %s\n", ids->v[i],
			name && strcmp(name, ids->v[i]) != 0 ? name : "-",
			forge_json_string(record, "status"));
	}
	if (ids->n > most)
		fprintf(stderr, "... and %zu more\n", ids->n - most);
}

static int remove_all(struct forge_session *s, const struct forge_strv *ids,
		      struct forge_error *err)
{
	struct forge_removal removal = { 0 };
	char size[FORGE_FORMAT_MAX];
	size_t done = 0;
	int rc = 0;

	for (; done < ids->n && rc == 0; done += rc == 0) {
		forge_auto_json json_t *record = NULL;
		rc = forge_session_record(s, ids->v[done], &record, err);
		if (rc == 0)
			rc = forge_remove_run(&s->home, s->store, record, outputs_only,
					      &removal, err);
	}
	/* Also after a failure: the runs removed so far have unused objects. */
	int freed =
		forge_remove_objects(&s->home, s->store, &removal, rc < 0 ? NULL : err);
	printf("%s of %zu run%s removed; %s freed\n",
	       outputs_only ? "outputs" : "records, logs and outputs", done,
	       done == 1 ? "" : "s", forge_format_size(size, removal.bytes));
	if (removal.is_left)
		fputs("forge: the files of outputs are left to forge gc: another run is "
		      "collecting its own, or a record cannot be read\n",
		      stderr);
	forge_removal_done(&removal);
	return rc < 0 ? rc : freed;
}

static int cmd_rm(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_strv struct forge_strv ids = { 0 };
	int rc = forge_session_runs(&s, &forge_cmd_rm, argc, argv, false, &ids, &err);

	if (rc > 0)
		return rc;
	if (rc == 0 && !s.store)
		rc = forge_fail(&err, ENOTCONN, "the store has to forget them too");
	if (rc == 0)
		rc = check_all(&s, &ids, &err);
	if (rc == 0 && !is_sure && !isatty(STDIN_FILENO))
		rc = forge_hint(
			&err,
			forge_fail(&err, EPERM,
				   "standard input is no terminal: forge cannot ask"),
			"-f removes without asking");
	if (rc == 0 && !is_sure)
		show_some(&s, &ids);
	if (rc == 0 && !is_sure &&
	    !forge_ask("Remove %s of %zu run%s?",
		       outputs_only ? "the outputs" : "record, logs and outputs", ids.n,
		       ids.n == 1 ? "" : "s"))
		return FORGE_EXIT_FAILED;
	if (rc == 0)
		rc = remove_all(&s, &ids, &err);
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_rm = {
	.name = "rm",
	.synopsis = "[OPTIONS] RUN...",
	.help = "Remove runs that are over, or what they left",
	.about = "Removes record, logs, a kept workdir and the outputs that no other run "
		 "has.\n"
		 "A name means its newest run, a pattern ('sweep-*') all runs of yours "
		 "with "
		 "such\n"
		 "a name. With --outputs-only the record stays, and says what was there.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_rm,
	.opts = rm_opts,
};
