/* SPDX-License-Identifier: Apache-2.0 */
/* forge outputs: lists or copies the outputs of a run. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/parse.h"
#include "cli/pipeline_cli.h"
#include "cli/session.h"
#include "cli/table.h"
#include "record/clear.h"
#include "record/foreign.h"
#include "run/export.h"
#include "run/signals.h"
#include "state/objects.h"

static bool is_json;
static bool replaces;
static const char *copy_to, *cat_path;

static const struct forge_opt *outputs_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_STRING(
			'C', "copy", "PATH", &copy_to,
			"Copy them into this directory, checked against their digests"),
		FORGE_FLAG(0, "force", &replaces,
			   "Let --copy replace files that are there"),
		FORGE_STRING(0, "cat", "OUTPUT", &cat_path,
			     "Print the content of this one, checked against its digest"),
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* The texts of table cells, in one buffer. */
struct text {
	char *at;
};

/* Adds the text of the next cell, in at most size bytes. */
static const char *put(struct text *t, size_t size, const char *a, const char *b)
{
	char *start = t->at;
	int n = snprintf(start, size, "%s%s%s", a, *b ? "/" : "", b);

	t->at += n < 0 ? 0 : (size_t)n + 1;
	return start;
}

/* Reports whose files they are, and where: the run belongs to another FORGE_HOME. */
static void print_owner(const json_t *record)
{
	forge_auto_home struct forge_home theirs = FORGE_HOME_INIT;
	char text[1024];
	int rc = forge_foreign_open(record, "outputs", &theirs, NULL);
	forge_auto_close int objects =
		rc < 0 ? -1
		       : openat(theirs.fd, "objects",
				O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	(void)snprintf(
		text, sizeof(text), "forge: these are %s's, kept in %s%s%s%s",
		forge_json_string(record, "user"), forge_foreign_home(record),
		forge_record_is_here(record) ? "" : " on host ",
		forge_record_is_here(record) ? "" : forge_json_string(record, "host"),
		forge_record_is_here(record) && objects < 0 ? ", not readable to you"
							    : "");
	forge_print_clean(stderr, text, strlen(text));
	putc('\n', stderr);
}

/* Whether each file that the step read is an object here: an input that was dropped too must be made first. */
static bool has_inputs(const struct forge_home *home, const json_t *step)
{
	const json_t *inputs = json_object_get(json_object_get(step, "parts"), "inputs");
	const char *input, *name;
	json_t *files, *digest;
	char path[FORGE_STORED_MAX];

	json_object_foreach ((json_t *)inputs, input, files)
		json_object_foreach (files, name, digest)
			if (!forge_objects_is_digest(json_string_value(digest)) ||
			    faccessat(home->fd,
				      forge_objects_path(path, json_string_value(digest)),
				      F_OK, AT_SYMLINK_NOFOLLOW) < 0)
				return false;
	return true;
}

/*
 * How the temporary outputs of a step are made again: by a command that does it or, when other steps must run for that, by
 * one that says which. They stay, as no step that reads them is part of it. NULL: not known.
 */
static char *remake_hint(const struct forge_home *home, const json_t *record, bool is_one)
{
	FORGE_CLEANUP(forge_pipeline_asked_done)
	struct forge_pipeline_asked lists = { .params = { 0 } };
	const json_t *step = json_object_get(record, "step");
	char *task = (char *)forge_json_string(step, "task");
	const struct forge_strv one = { .v = &task, .n = 1 };
	struct forge_pipeline_run r;
	bool is_whole = has_inputs(home, step);

	if (!task || forge_pipeline_ask_again(step, &lists, &r, NULL) < 0 || !r.path)
		return NULL;
	r.only = &one;
	if (is_whole)
		r.force = &one;
	else
		r.copy_to = "DIR";
	forge_auto_free char *command = forge_pipeline_command(&r, r.path);
	return command ? forge_asprintf("`%s` %s %s again", command,
					is_whole ? "makes" : "says how to make",
					is_one ? "it" : "them")
		       : NULL;
}

#define DROPPED_LISTED 5
#define DROPPED	       "temporary, and dropped when the last step that reads it had succeeded"

static bool is_temporary(const json_t *output)
{
	return json_is_true(json_object_get(output, "temporary"));
}

/* Outputs that a pipeline dropped, and those that a user removed. */
static void print_removed(const struct forge_home *home, const json_t *record)
{
	const json_t *removed = json_object_get(record, "outputs_removed"), *f;
	size_t n = json_array_size(removed), i, dropped = 0;
	bool has_others = json_array_size(json_object_get(record, "outputs")) > 0;

	json_array_foreach (removed, i, f) {
		const char *path = forge_json_string_or(f, "path", "?");
		if (!is_temporary(f) || dropped++ >= DROPPED_LISTED)
			continue;
		fputs("forge: ", stderr);
		forge_print_clean(stderr, path, strlen(path));
		fputs(" was " DROPPED "\n", stderr);
	}
	if (dropped > DROPPED_LISTED)
		fprintf(stderr, "forge: so %s %zu more\n",
			dropped == DROPPED_LISTED + 1 ? "was" : "were",
			dropped - DROPPED_LISTED);
	forge_auto_free char *hint =
		dropped ? remake_hint(home, record, dropped == 1) : NULL;
	if (hint) {
		fputs("  hint: ", stderr);
		forge_print_clean(stderr, hint, strlen(hint));
		putc('\n', stderr);
	}
	if (n > dropped && (has_others || dropped))
		fprintf(stderr,
			"forge: %zu of its outputs %s removed; `forge show --json` names "
			"%s\n",
			n - dropped, n - dropped == 1 ? "was" : "were",
			n - dropped == 1 ? "it" : "them");
	else if (n > dropped)
		fputs("forge: its outputs were removed; `forge show --json` names them\n",
		      stderr);
}

#define DAMAGED " (damaged)"

static void print_notes(const struct forge_home *home, const json_t *record)
{
	const json_t *f;
	size_t i, damaged = 0;

	json_array_foreach (json_object_get(record, "outputs"), i, f)
		damaged += json_is_true(json_object_get(f, "damaged"));
	if (damaged)
		fprintf(stderr,
			"forge: %zu of these %s damaged; `forge verify %s` says how\n",
			damaged, damaged == 1 ? "is" : "are",
			forge_json_string(record, "run_id"));
	print_removed(home, record);
}

static int list(const struct forge_session *s, const json_t *record,
		struct forge_error *err)
{
	bool is_foreign = forge_foreign_is(&s->home, record);
	const char *home = is_foreign ? forge_foreign_home(record) : s->home.path;
	enum { PATH, SIZE, DIGEST, STORED, COLUMNS };
	const json_t *files = json_object_get(record, "outputs"), *f;
	size_t n = json_array_size(files), i;
	size_t place_max = strlen(home) + 1 + FORGE_STORED_MAX + sizeof(DAMAGED);
	struct forge_cell *cells = calloc((n + 1) * COLUMNS, sizeof(*cells));
	char *buffer = calloc(n + 1, FORGE_FORMAT_MAX + place_max);
	struct text text = { buffer };

	if (!cells || !buffer) {
		free(cells);
		free(buffer);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	static const char *const heading[] = { "OUTPUT", "SIZE", "SHA-256", "STORED" };
	for (size_t c = 0; c < COLUMNS; c++)
		cells[c] = (struct forge_cell){ heading[c], FORGE_BOLD };
	json_array_foreach (files, i, f) {
		struct forge_cell *row = &cells[(i + 1) * COLUMNS];
		const char *digest = forge_json_string(f, "sha256");
		char size[FORGE_FORMAT_MAX], stored[FORGE_STORED_MAX];
		char place[FORGE_STORED_MAX + sizeof(DAMAGED)];
		row[PATH].text = forge_json_string(f, "path");
		(void)forge_format_size(
			size, (uint64_t)json_integer_value(json_object_get(f, "size")));
		row[SIZE].text = put(&text, FORGE_FORMAT_MAX, size, "");
		/* The path follows from the digest, whatever the record has. */
		if (!forge_objects_is_digest(digest))
			continue;
		row[DIGEST].text = digest + strlen("sha256:");
		bool is_damaged = json_is_true(json_object_get(f, "damaged"));
		(void)snprintf(place, sizeof(place), "%s%s",
			       forge_objects_path(stored, digest),
			       is_damaged ? DAMAGED : "");
		row[STORED].colour = is_damaged ? FORGE_RED : FORGE_PLAIN;
		row[STORED].text = put(&text, place_max, home, place);
	}
	if (is_foreign)
		print_owner(record);
	forge_table_print(stdout, cells, COLUMNS, n + 1);
	print_notes(&s->home, record);
	free(cells);
	free(buffer);
	return 0;
}

/* ---- --copy ---- */

/* A run to copy: its record, the home with its files, and the name of its directory. */
struct source {
	json_t *record;
	struct forge_home other; /* the home of another user, if that has the files */
	const char *below;
};

static void sources_free(struct source *at, size_t n)
{
	for (size_t i = 0; at && i < n; i++) {
		json_decref(at[i].record);
		forge_home_close(&at[i].other);
	}
	free(at);
}

/* The label, or the id if another run has the same label. */
static const char *name_of(const struct source *at, size_t n, size_t i)
{
	const char *label = forge_record_label(at[i].record);

	for (size_t k = 0; label && k < n; k++) {
		const char *other = forge_record_label(at[k].record);
		if (k != i &&
		    ((other && strcmp(other, label) == 0) ||
		     strcmp(forge_json_string(at[k].record, "run_id"), label) == 0))
			label = NULL;
	}
	return label ? label : forge_json_string(at[i].record, "run_id");
}

static int open_source(struct forge_session *s, const char *run_id, struct source *ret,
		       struct forge_error *err)
{
	int rc = forge_session_record(s, run_id, &ret->record, err);

	return rc == 0 && forge_foreign_is(&s->home, ret->record)
		       ? forge_foreign_open(ret->record, "outputs", &ret->other, err)
		       : rc;
}

static void print_copied(const struct source *source)
{
	size_t n = json_array_size(json_object_get(source->record, "outputs"));

	printf("%zu file%s copied to %s%s%s\n", n, n == 1 ? "" : "s", copy_to,
	       source->below ? "/" : "", source->below ? source->below : "");
}

static int copy_sources(const struct forge_session *s, const struct source *at, size_t n,
			struct forge_error *err)
{
	struct forge_export_run *runs = calloc(n, sizeof(*runs));
	struct forge_signals before;
	size_t unread = n;

	if (!runs)
		return forge_fail(err, ENOMEM, "out of memory");
	/* ^C must not leave half of the files. */
	forge_signals_catch(&before);
	forge_auto_close int signals = forge_signals_fd();
	const struct forge_export how = { .to = copy_to,
					  .replaces = replaces,
					  .stop_fd = signals };
	for (size_t i = 0; i < n; i++)
		runs[i] =
			(struct forge_export_run){ .home = at[i].other.path ? &at[i].other
									    : &s->home,
						   .record = at[i].record,
						   .below = at[i].below };
	int rc = forge_export_runs(runs, n, &how, &unread, err);
	forge_signals_release(&before);
	free(runs);
	if (rc == -EACCES && unread < n && at[unread].other.path)
		return forge_foreign_fail(at[unread].record, "outputs", EACCES, err);
	return rc;
}

/* Each run gets its own directory, as names can be equal. All are copied, or none. */
static int copy(struct forge_session *s, const struct forge_strv *ids, bool has_own_dirs,
		struct forge_error *err)
{
	struct source *at = calloc(ids->n + 1, sizeof(*at));
	int rc = at ? 0 : forge_fail(err, ENOMEM, "out of memory");

	for (size_t i = 0; at && i < ids->n; i++)
		at[i].other = FORGE_HOME_INIT;
	for (size_t i = 0; i < ids->n && rc == 0; i++)
		rc = open_source(s, ids->v[i], &at[i], err);
	for (size_t i = 0; i < ids->n && rc == 0; i++)
		rc = forge_check_quarantine(at[i].record, err);
	for (size_t i = 0; i < ids->n && rc == 0; i++)
		at[i].below = has_own_dirs ? name_of(at, ids->n, i) : NULL;
	if (rc == 0)
		rc = copy_sources(s, at, ids->n, err);
	for (size_t i = 0; i < ids->n && rc >= 0; i++) {
		if (is_json)
			forge_print_json(json_object_get(at[i].record, "outputs"));
		else
			print_copied(&at[i]);
	}
	sources_free(at, ids->n);
	return rc < 0 ? rc : 0;
}

/* ---- --cat ---- */

/* The output with this name, written as in the record or as it is; of "outputs" or "outputs_removed". */
static const json_t *output_of(const json_t *record, const char *list, const char *name)
{
	const json_t *f, *found = NULL;
	size_t i;

	json_array_foreach (json_object_get(record, list), i, f) {
		const char *written = forge_json_string(f, "path");
		if (written && strcmp(written, name) == 0)
			return f;
		forge_auto_free char *own =
			written ? forge_json_name_decode(written) : NULL;
		if (own && strcmp(own, name) == 0)
			found = f;
	}
	return found;
}

static int fail_without(const struct forge_home *home, const json_t *record,
			const char *run_id, struct forge_error *err)
{
	const json_t *removed = output_of(record, "outputs_removed", cat_path);
	forge_auto_free char *hint = NULL;

	if (!removed)
		return forge_hint(err,
				  forge_fail(err, ENOENT, "run %s left no output %s",
					     run_id, cat_path),
				  "`forge outputs %s` lists them", run_id);
	if (!is_temporary(removed))
		return forge_fail(err, ENOENT, "output %s of run %s was removed",
				  cat_path, run_id);
	hint = remake_hint(home, record, true);
	int rc = forge_fail(err, ENOENT, "output %s of run %s was " DROPPED, cat_path,
			    run_id);
	/* Half of a command would be another one. */
	if (hint && strlen(hint) >= sizeof(err->hint))
		return forge_hint(err, rc, "`forge outputs %s` has the command", run_id);
	return hint ? forge_hint(err, rc, "%s", hint) : rc;
}

/* Nothing is printed unless the whole content has the digest. */
static int cat(struct forge_session *s, const char *run_id, struct forge_error *err)
{
	forge_auto_json json_t *record = NULL;
	forge_auto_home struct forge_home other = FORGE_HOME_INIT;
	char buf[65536];
	ssize_t n;
	int rc = forge_session_record(s, run_id, &record, err);

	if (rc == 0)
		rc = forge_check_quarantine(record, err);
	if (rc < 0)
		return rc;
	const json_t *output = output_of(record, "outputs", cat_path);
	if (!output)
		return fail_without(&s->home, record, run_id, err);
	bool is_foreign = forge_foreign_is(&s->home, record);
	if (is_foreign)
		rc = forge_foreign_open(record, "outputs", &other, err);
	if (rc < 0)
		return rc;
	forge_auto_close int fd = forge_objects_get(is_foreign ? &other : &s->home,
						    forge_json_string(output, "sha256"));
	if (fd == -EUCLEAN)
		return forge_hint(
			err, forge_fail(err, EUCLEAN, "output %s is damaged", cat_path),
			"`forge verify %s` says how", run_id);
	if (fd < 0)
		return forge_fail_errno(err, -fd, "output %s", cat_path);
	if (lseek(fd, 0, SEEK_SET) < 0)
		return forge_fail_errno(err, errno, "output %s", cat_path);
	while ((n = read(fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		rc = n < 0 ? -errno : forge_write_all(STDOUT_FILENO, buf, (size_t)n);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "output %s", cat_path);
	}
	return 0;
}

static int show(struct forge_session *s, const char *run_id, bool has_heading,
		struct forge_error *err)
{
	forge_auto_json json_t *record = NULL;
	int rc = forge_session_record(s, run_id, &record, err);

	if (rc < 0)
		return rc;
	forge_session_note_damage(s, record);
	if (is_json) {
		forge_print_json(json_object_get(record, "outputs"));
		return 0;
	}
	if (has_heading)
		printf("%s\n", run_id);
	struct forge_error held = FORGE_ERROR_INIT;
	if (forge_check_quarantine(record, &held) < 0)
		forge_print_warning(&held);
	return list(s, record, err);
}

/* Whether the words can match several runs, whatever they match now. */
static bool means_several(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (strpbrk(argv[i], "*?"))
			return true;
	return argc > 1;
}

/* Of a run that was tried again the last attempt has what is wanted. */
static int take_last(struct forge_session *s, struct forge_strv *ids,
		     struct forge_error *err)
{
	forge_auto_strv struct forge_strv last = { 0 };
	int rc = 0;

	for (size_t i = 0; i < ids->n && rc == 0; i++) {
		forge_auto_json json_t *record = NULL;
		bool is_pending, is_there = false;
		rc = forge_session_record(s, ids->v[i], &record, err);
		if (rc == 0)
			rc = forge_session_last(s, &record, &is_pending, err);
		const char *id = rc == 0 ? forge_json_string(record, "run_id") : NULL;
		if (!id)
			break;
		if (strcmp(id, ids->v[i]) != 0)
			fprintf(stderr, "forge: run %s was retried; this is %s\n",
				ids->v[i], id);
		forge_strv_foreach (have, &last)
			is_there = is_there || strcmp(have, id) == 0;
		if (!is_there && forge_strv_add(&last, id) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	}
	struct forge_strv named = *ids;
	*ids = last;
	last = named;
	return rc;
}

static int cmd_outputs(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_strv struct forge_strv ids = { 0 };
	forge_session_rule = FORGE_SESSION_LOOKS;
	int rc =
		forge_session_runs(&s, &forge_cmd_outputs, argc, argv, false, &ids, &err);

	if (rc > 0)
		return rc;
	if (rc == 0)
		rc = take_last(&s, &ids, &err);
	if (rc == 0 && replaces && !copy_to)
		rc = forge_fail(&err, EINVAL, "--force belongs to --copy DIR");
	if (rc == 0 && cat_path && (copy_to || is_json))
		rc = forge_fail(&err, EINVAL,
				"--cat goes with neither --copy nor --json");
	if (rc == 0 && cat_path && ids.n != 1)
		rc = forge_fail(&err, EINVAL, "--cat needs one run");
	if (rc == 0 && copy_to)
		rc = copy(&s, &ids, means_several(argc, argv), &err);
	if (rc == 0 && cat_path)
		rc = cat(&s, ids.v[0], &err);
	for (size_t i = 0; i < ids.n && rc == 0 && !copy_to && !cat_path; i++)
		rc = show(&s, ids.v[i], ids.n > 1, &err);
	if (rc == -ECANCELED) {
		fputs("forge: nothing was copied\n", stderr);
		return 130;
	}
	return rc < 0 ? forge_session_fail(&err) : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_outputs = {
	.name = "outputs",
	.synopsis = "[OPTIONS] RUN...",
	.help = "List or copy what a run left",
	.about = "Outputs are kept by content; equal files are there once. --copy brings "
		 "them\n"
		 "back under their own names, all of them or none; it replaces files "
		 "only\n"
		 "with --force. Of several runs each gets a directory there, named by "
		 "its label.\n"
		 "Of a run that was tried again the outputs are those of its last "
		 "attempt.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_FAILED,
	.run = cmd_outputs,
	.opts = outputs_opts,
};
