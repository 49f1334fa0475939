/* SPDX-License-Identifier: Apache-2.0 */
/* Finds attempts that are due and that no process has started. */
#include "record/retry_due.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/json.h"
#include "record/deliver.h"
#include "record/record.h"
#include "record/retry.h"
#include "spec/again.h"
#include "state/slot.h"

static void restore_raised(const json_t *record, struct forge_limits *limits)
{
	const json_t *with = json_object_get(record, "retried_with");

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		const json_t *value = json_object_get(with, row->json);
		if (!json_is_number(value))
			continue;
		*forge_limit_slot(limits, row) =
			row->type == FORGE_LIMIT_DURATION
				? (uint64_t)(json_number_value(value) * 1e3 + 0.5) * 1000
				: (uint64_t)json_integer_value(value);
	}
}

static bool is_marked(const json_t *content)
{
	return json_is_true(json_object_get(content, "is_due"));
}

/*
 * The id of the attempt that was decided on, NULL: none. record is the one of this FORGE_HOME. When a power cut
 * took that, the file has the id, and is marked when the store has it too.
 */
static const char *next_of(const json_t *record, const json_t *content)
{
	const char *next = is_marked(content) ? forge_json_string(content, "next")
			   : forge_record_is_over(record)
				   ? forge_json_string(record, "retried_by")
				   : NULL;

	return forge_run_id_is_valid(next) && strlen(next) == FORGE_RUN_ID_MAX - 1 ? next
										   : NULL;
}

int forge_retry_again(const json_t *record, struct forge_retry_file *file,
		      struct forge_again *ret, struct forge_error *err)
{
	const char *next = next_of(record, file->content);
	/* What only the store knows of is lost. */
	int reason = is_marked(file->content)
			     ? FORGE_RETRY_HOST_LOST
			     : forge_retry_find(forge_json_string(record, "reason"));

	if (!next || reason < 0)
		return forge_fail(err, ENODATA, "run %s is not to be retried",
				  file->run_id);
	*ret = (struct forge_again){ .file = file };
	(void)snprintf(ret->run_id, sizeof(ret->run_id), "%s", next);
	(void)snprintf(ret->previous, sizeof(ret->previous), "%s", file->run_id);
	forge_again_restore_chain(file->content, &ret->chain, &ret->limits);
	if (!is_marked(file->content))
		restore_raised(record, &ret->limits);
	ret->chain.used[reason]++;
	ret->chain.attempt++;
	return 0;
}

bool forge_retry_has_begun(const struct forge_home *home, const char *run_id)
{
	static const char *const files[] = { "record.json", "events.jsonl" };
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	struct stat st;

	if (dir < 0)
		return dir != -ENOENT;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files); i++)
		if (fstatat(dir, files[i], &st, AT_SYMLINK_NOFOLLOW) == 0
			    ? st.st_size > 0
			    : errno != ENOENT)
			return true;
	return false;
}

bool forge_retry_may_pass(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -ENOMEM || rc == -EMFILE ||
	       rc == -ENFILE || rc == -EAGAIN || rc == -EIO || rc == -EROFS;
}

void forge_retry_take_back(json_t *record, const char *why)
{
	forge_auto_free char *sentence = forge_asprintf("Not retried: %s.", why);

	json_object_del(record, "retried_by");
	json_object_del(record, "retried_with");
	json_object_set_new(record, "not_retried", forge_json_text(why));
	forge_record_add_notes(record, sentence ? sentence : "Not retried.");
}

int forge_retry_give_up(const struct forge_home *home, struct forge_retry_file *file,
			const char *why, struct forge_error *err)
{
	const char *url =
		forge_json_string(json_object_get(file->content, "request"), "store");
	json_t *record = NULL, *events = NULL;
	forge_auto_free char *store = url ? forge_json_name_decode(url) : NULL;
	int rc = forge_load_record(home, file->run_id, &record, err);

	if (rc == 0 && json_object_get(record, "retried_by")) {
		forge_retry_take_back(record, why);
		rc = forge_load_events(home, file->run_id, &events, err);
		if (rc == 0)
			rc = forge_add_event(home, file->run_id,
					     forge_event_json(forge_next_seq(events),
							      "repair", "not_retried",
							      NULL, why),
					     err);
		if (rc == 0)
			rc = forge_write_record(home, file->run_id, record, err);
	}
	/* Also when the process that wrote the record died before this. */
	if (rc == 0 && store && json_object_get(record, "not_retried"))
		rc = forge_deliver_later(home, file->run_id, store, err);
	json_decref(events);
	json_decref(record);
	/* Without a record there is nothing that could promise an attempt. */
	if (rc == 0 || forge_is_no_record(rc))
		forge_retry_file_remove(file);
	else
		forge_retry_file_release(file);
	return forge_is_no_record(rc) ? 0 : rc;
}

int forge_retry_cancel(const struct forge_home *home, const char *run_id,
		       struct forge_error *err)
{
	struct forge_retry_file file = FORGE_RETRY_FILE_INIT;
	int rc = forge_retry_file_claim(home, run_id, 0, &file);

	if (rc < 0)
		return rc;
	json_t *record = NULL;
	(void)!forge_load_record(home, run_id, &record, NULL); /* NULL: none */
	const char *next = next_of(record, file.content);
	bool has_begun = next && (forge_slot_exists(home, next) ||
				  forge_retry_has_begun(home, next));
	json_decref(record);
	if (has_begun) {
		forge_retry_file_release(&file);
		return -ENOENT;
	}
	return forge_retry_give_up(home, &file, "it was cancelled", err);
}

enum due { NOT_YET, DUE, NO_USE, TAKEN_BACK };

/* The lock of the file is held: no supervisor of the run, or of its next attempt, lives. */
static enum due look_at(const struct forge_home *home, const struct forge_retry_file *f)
{
	json_t *record = NULL;
	enum due due = NO_USE;

	if (forge_slot_exists(home, f->run_id))
		return NOT_YET; /* repair comes first */
	int rc = forge_load_record(home, f->run_id, &record, NULL);
	const char *next = rc == 0 || rc == -ENOENT ? next_of(record, f->content) : NULL;
	if (next && forge_retry_has_begun(home, next))
		due = NO_USE;
	else if (next)
		due = forge_slot_exists(home, next) ? NOT_YET : DUE;
	else if (!forge_record_is_over(record))
		due = NOT_YET; /* forge_retry_ask_store() may know more */
	else if (json_object_get(record, "not_retried"))
		due = TAKEN_BACK;
	json_decref(record);
	return due;
}

int forge_retry_each_due(const struct forge_home *home, bool dry_run,
			 forge_retry_starter *start, void *arg, struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int n = 0, first = 0;

	(void)forge_entries_open(&d, home->fd, "retries"); /* usually does not exist */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct forge_retry_file f = FORGE_RETRY_FILE_INIT;
		if (name[0] == '.' || forge_retry_file_claim(home, name, 0, &f) < 0)
			continue;
		enum due due = look_at(home, &f);
		if (due == NO_USE && !dry_run)
			forge_retry_file_remove(&f);
		if (due == TAKEN_BACK && !dry_run)
			(void)!forge_retry_give_up(
				home, &f, "", NULL); /* the next repair tries again */
		forge_retry_file_release(&f); /* the new supervisor needs the lock */
		if (due != DUE)
			continue;
		int rc = start(home, name, arg, first ? NULL : err);
		first = rc < 0 && !first ? rc : first;
		n += rc > 0;
	}
	return first ? first : n;
}

/* ---- after a power cut ---- */

static void mark_due(const struct forge_home *home, struct forge_retry_file *f)
{
	struct forge_retry_file due = FORGE_RETRY_FILE_INIT;
	json_t *content = json_incref(f->content);

	json_object_set_new(content, "is_due", json_true());
	if (forge_retry_file_make(home, f->run_id, content, &due, NULL) == 0)
		forge_retry_file_release(&due);
}

static void ask_store(const struct forge_home *home, struct forge_store *st,
		      struct forge_retry_file *f)
{
	json_t *record = NULL, *row = NULL;

	if (forge_slot_exists(home, f->run_id) || is_marked(f->content) ||
	    forge_load_record(home, f->run_id, &record, NULL) != -ENOENT) {
		json_decref(record);
		return;
	}
	int rc = forge_store_get(st, f->run_id, &row, NULL);
	const char *next = forge_json_string(f->content, "next");
	const char *by = forge_json_string(row, "retried_by");
	if (rc == 0 && forge_record_is_over(row) && next && by && strcmp(by, next) == 0)
		mark_due(home, f);
	else if (rc == -ENOENT || (rc == 0 && forge_record_is_over(row)))
		forge_retry_file_remove(f); /* it never began, or is not retried */
	json_decref(row);
}

void forge_retry_ask_store(const struct forge_home *home, struct forge_store *st)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, home->fd, "retries"); /* usually does not exist */
	for (const char *name; (name = forge_entries_next(&d));) {
		struct forge_retry_file f = FORGE_RETRY_FILE_INIT;
		if (name[0] == '.' || forge_retry_file_claim(home, name, 0, &f) < 0)
			continue;
		ask_store(home, st, &f);
		forge_retry_file_release(&f);
	}
}
