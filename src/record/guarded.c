/* SPDX-License-Identifier: Apache-2.0 */
/* Judges changes of guarded files. */
#include "record/guarded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/entries.h"
#include "base/json.h"
#include "health/guard.h"
#include "record/record.h"
#include "state/quarantine.h"
#include "state/slot.h"

/* Repair is done by a command that the user wanted for something else. */
#define LOST_USEC (30 * 1000000ull)

/* Has this run, which began earlier, ended since then? Not known counts as yes. */
static bool has_ended_since(const struct forge_home *home, const char *since,
			    const char *run_id)
{
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	char ended[FORGE_RUN_ID_MAX];
	struct stat st;

	if (dir < 0 || fstatat(dir, "record.json", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return dir != -ENOENT && errno != ENOENT;
	/* An id begins with its time. */
	uint64_t msec = (uint64_t)st.st_mtim.tv_sec * 1000 +
			(uint64_t)st.st_mtim.tv_nsec / 1000000;
	(void)forge_run_id_at(ended, msec);
	return strncmp(ended, since, strlen(ended)) >= 0;
}

bool forge_run_was_alone(const struct forge_home *home, const char *run_id)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	forge_auto_json json_t *slots = forge_slot_ids(home);

	if (!slots || json_object_size(slots) > 1)
		return false;
	(void)forge_entries_open(&d, home->runs_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		if (!forge_run_id_is_valid(name) || strcmp(name, run_id) == 0)
			continue;
		/* Ids sort by time. */
		if (strcmp(name, run_id) > 0 || has_ended_since(home, run_id, name))
			return false;
	}
	return d.error == 0;
}

bool forge_guard_blames(const struct forge_home *home, const char *run_id,
			enum forge_unattributed unattributed)
{
	return unattributed == FORGE_UNATTRIBUTED_CORRUPTED ||
	       (unattributed == FORGE_UNATTRIBUTED_AUTO &&
		forge_run_was_alone(home, run_id));
}

/* The first change by this author that counts, or NULL. */
static const json_t *first_change(const json_t *report, const char *by)
{
	size_t i;
	const json_t *one;

	json_array_foreach (json_object_get(report, "files"), i, one)
		if (strcmp(forge_json_string_or(one, "by", ""), by) == 0 &&
		    !json_is_true(json_object_get(one, "warns")))
			return one;
	return NULL;
}

/* The first change, not by others, that does not count, or NULL. */
static const json_t *first_warning(const json_t *report)
{
	size_t i;
	const json_t *one;

	json_array_foreach (json_object_get(report, "files"), i, one)
		if (strcmp(forge_json_string_or(one, "by", ""), "other") != 0)
			return one;
	return NULL;
}

static unsigned long long count(const json_t *report, const char *key)
{
	return (unsigned long long)json_integer_value(json_object_get(report, key));
}

/* What the verdict rests on, when nothing was found. */
static enum forge_guard_verdict tell_of_loss(const json_t *report,
					     char text[FORGE_GUARD_TEXT])
{
	if (strcmp(forge_json_string_or(report, "mode", ""), "times") != 0)
		return FORGE_GUARD_SILENT;
	(void)snprintf(text, FORGE_GUARD_TEXT,
		       "%s; by their times no guarded file was changed",
		       forge_json_string_or(report, "note", ""));
	return FORGE_GUARD_NOTED;
}

enum forge_guard_verdict forge_guard_judge(const struct forge_home *home,
					   const char *run_id,
					   enum forge_unattributed unattributed,
					   const json_t *report,
					   char text[FORGE_GUARD_TEXT])
{
	const json_t *shown = first_change(report, "run");
	const char *note = forge_json_string(report, "note");

	if (!shown)
		shown = first_change(report, "unknown");
	if (!shown)
		shown = first_warning(report);
	if (!shown)
		return tell_of_loss(report, text);
	bool is_own = strcmp(forge_json_string_or(shown, "by", ""), "run") == 0;
	bool warns = json_is_true(json_object_get(shown, "warns"));
	unsigned long long n = count(report, is_own ? "by_run" : "unattributed");
	const char *when = json_is_true(json_object_get(report, "until_now"))
				   ? "since it began, and by whom is not known"
				   : "while it ran, and by whom is not known";
	(void)snprintf(text, FORGE_GUARD_TEXT,
		       "%llu guarded file%s %s changed %s, e.g. %.200s (%s)%s%s%s", n,
		       n == 1 ? "" : "s", n == 1 ? "was" : "were",
		       is_own ? "by this run" : when,
		       forge_json_string_or(shown, "path", ""),
		       forge_json_string_or(shown, "what", ""), note ? " [" : "",
		       note ? note : "", note ? "]" : "");
	return !warns && (is_own || forge_guard_blames(home, run_id, unattributed))
		       ? FORGE_GUARD_CORRUPTED
		       : FORGE_GUARD_NOTED;
}

enum forge_guard_verdict forge_guard_judge_unknown(enum forge_unattributed unattributed,
						   const char *why,
						   char text[FORGE_GUARD_TEXT])
{
	(void)snprintf(text, FORGE_GUARD_TEXT,
		       "whether it changed guarded files is not known: %s", why);
	return unattributed == FORGE_UNATTRIBUTED_CORRUPTED ? FORGE_GUARD_CORRUPTED
							    : FORGE_GUARD_NOTED;
}

/* ---- slots ---- */

json_t *forge_guard_slot_json(enum forge_unattributed unattributed, json_t *files)
{
	return json_pack("{s:s, s:o*}", "unattributed",
			 forge_unattributed_words[unattributed], "files", files);
}

enum forge_unattributed forge_guard_slot_unattributed(const json_t *slot,
						      enum forge_unattributed now)
{
	const char *word =
		forge_json_string(json_object_get(slot, "guard"), "unattributed");

	for (int i = 0; word && i < 3; i++)
		if (strcmp(word, forge_unattributed_words[i]) == 0)
			return (enum forge_unattributed)i;
	return now;
}

const json_t *forge_guard_slot_files(const json_t *slot)
{
	return json_object_get(json_object_get(slot, "guard"), "files");
}

/* ---- lost runs ---- */

int forge_guard_judge_lost(const struct forge_home *home, const char *run_id,
			   const json_t *slot, json_t *record, struct forge_error *err)
{
	enum forge_unattributed unattributed =
		forge_guard_slot_unattributed(slot, FORGE_UNATTRIBUTED_AUTO);
	const json_t *files = forge_guard_slot_files(slot);
	struct forge_error why = FORGE_ERROR_INIT;
	char text[FORGE_GUARD_TEXT] = "";
	json_t *report = NULL;

	if (!files)
		return 0;
	int rc = forge_guard_since(files, LOST_USEC, &report, &why);
	enum forge_guard_verdict found =
		rc < 0 ? forge_guard_judge_unknown(unattributed, why.msg, text)
		       : forge_guard_judge(home, run_id, unattributed, report, text);
	bool is_corrupted = found == FORGE_GUARD_CORRUPTED;
	if (rc < 0)
		report = json_pack("{s:s, s:o}", "mode", "none", "note",
				   forge_json_text(why.msg));
	rc = is_corrupted ? forge_quarantine_add(home, run_id, err) : 0;
	if (rc < 0) {
		json_decref(report);
		return rc;
	}
	json_t *health = json_object_get(record, "health");
	if (!health) {
		health = json_object();
		json_object_set_new(record, "health", health);
	}
	json_object_set_new(
		health, "post",
		json_pack("{s:b, s:o}", "ok", !is_corrupted, "guard", report));
	if (is_corrupted)
		json_object_set_new(record, "quarantine", json_true());
	forge_auto_free char *sentence = forge_asprintf("Health: %s.", text);
	if (sentence && found != FORGE_GUARD_SILENT)
		forge_record_add_notes(record, sentence);
	return 0;
}
