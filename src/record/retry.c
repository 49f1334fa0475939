/* SPDX-License-Identifier: Apache-2.0 */
/* Decides on retries, and finds those that no process has started. */
#include "record/retry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/json.h"
#include "record/deliver.h"
#include "record/record.h"
#include "spec/again.h"
#include "state/slot.h"

/* ---- the decision ---- */

FORGE_PRINTF(2, 3)
static void refuse(struct forge_retry_choice *ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(ret->why_not, sizeof(ret->why_not), fmt, ap);
	va_end(ap);
}

static uint64_t multiply(uint64_t value, unsigned milli)
{
	/* Limits that overflow are far above every host. */
	return value > UINT64_MAX / 2 / milli ? UINT64_MAX / 2
					      : (value * milli + 999) / 1000;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a && a < b ? a : b;
}

/* The inodes of a workdir are a limit of their own, which a rule for "disk" raises by its factor. */
static const struct forge_limit_row *row_of(const struct forge_retry_case *c,
					    enum forge_retry_reason reason)
{
	for (size_t i = 0; c->is_inodes && i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].key, "inodes") == 0)
			return &forge_limit_rows[i];
	return forge_retry_limit(reason);
}

/* False: the limit cannot be raised any more. */
static bool raise_limit(const struct forge_retry_case *c, struct forge_retry_choice *ret)
{
	const struct forge_retry_rule *rule = &c->chain->policy.rules[ret->reason];
	const struct forge_limit_row *row = row_of(c, ret->reason);
	unsigned factor = rule->factor_milli ? rule->factor_milli : FORGE_RETRY_FACTOR;
	uint64_t had = row ? forge_limit_value(c->limits, row) : FORGE_UNLIMITED;
	char text[FORGE_FORMAT_MAX];

	if (had == FORGE_UNLIMITED || c->is_host_full || factor == 1000)
		return true;
	uint64_t host = forge_limit_value(c->most, row);
	uint64_t own = c->is_inodes ? 0 : rule->max;
	uint64_t next = least_of(host, least_of(own, multiply(had, factor)));
	/* Records have milliseconds: an attempt that repair starts has the same limit. */
	if (row->type == FORGE_LIMIT_DURATION)
		next = next / 1000 * 1000;
	if (next <= had) {
		bool is_own = own && (!host || own <= host);
		refuse(ret, "%s cannot be raised above %s, %s", row->name,
		       forge_limit_format(text, row, least_of(host, own ? own : host)),
		       is_own ? "the max of its rule" : "the most that this host allows");
		return false;
	}
	*forge_limit_slot(&ret->limits, row) = next;
	ret->raised = row;
	return true;
}

void forge_retry_choose(const struct forge_retry_case *c, struct forge_retry_choice *ret)
{
	int reason = forge_retry_find(c->reason);

	*ret = (struct forge_retry_choice){ .limits = *c->limits };
	if (reason < 0 || strcmp(c->status, "succeeded") == 0 ||
	    strcmp(c->status, "cancelled") == 0)
		return;
	ret->reason = (enum forge_retry_reason)reason;
	unsigned times = c->chain->policy.rules[reason].times;
	if (times == 0)
		return;
	if (c->chain->used[reason] >= times) {
		refuse(ret, "%s had its %u %s", forge_retry_names[reason], times,
		       times == 1 ? "retry" : "retries");
		return;
	}
	if (c->is_hopeless) {
		refuse(ret, "more of the limit would not help");
		return;
	}
	ret->is_retried = raise_limit(c, ret);
}

unsigned forge_retry_attempts_max(const struct forge_retry_policy *p)
{
	unsigned n = 1;

	for (int i = 0; i < FORGE_RETRY_COUNT; i++)
		n += p->rules[i].times;
	return n;
}

const char *forge_retry_describe(char buf[FORGE_RETRY_WITH_MAX],
				 const struct forge_limit_row *raised,
				 const struct forge_limits *limits)
{
	char text[FORGE_FORMAT_MAX] = "";
	uint64_t value = raised ? forge_limit_value(limits, raised) : 0;

	if (raised && raised->type == FORGE_LIMIT_SIZE)
		(void)forge_format_size_arg(text, value);
	else if (raised && raised->type == FORGE_LIMIT_DURATION)
		(void)forge_format_duration_arg(text, value);
	else if (raised)
		(void)forge_limit_format(text, raised, value);
	(void)snprintf(buf, FORGE_RETRY_WITH_MAX, "%s%s%s%s", raised ? "--" : "",
		       raised ? raised->name : "", raised ? " " : "", text);
	return buf;
}

/* ---- the decision in the record ---- */

/* In the units of "limits". */
static json_t *value_json(const struct forge_limit_row *row, uint64_t value)
{
	return row->type == FORGE_LIMIT_DURATION ? forge_json_seconds(value)
						 : forge_json_number(value);
}

void forge_retry_note(json_t *record, const char *next,
		      const struct forge_retry_choice *choice)
{
	json_object_set_new(record, "retried_by", json_string(next));
	if (choice->raised)
		json_object_set_new(
			record, "retried_with",
			json_pack("{s:o}", choice->raised->json,
				  value_json(choice->raised,
					     forge_limit_value(&choice->limits,
							       choice->raised))));
}

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

/*
 * The id of the attempt that was decided on, NULL: none. record is the one of this FORGE_HOME. Without it (a
 * power cut) the file has the id, and "is_due" when the store has it too.
 */
static const char *next_of(const json_t *record, const json_t *content)
{
	const char *next = forge_record_is_over(record)
				   ? forge_json_string(record, "retried_by")
			   : !record && json_is_true(json_object_get(content, "is_due"))
				   ? forge_json_string(content, "next")
				   : NULL;

	return forge_run_id_is_valid(next) && strlen(next) == FORGE_RUN_ID_MAX - 1 ? next
										   : NULL;
}

int forge_retry_again(const json_t *record, struct forge_retry_file *file,
		      struct forge_again *ret, struct forge_error *err)
{
	const char *next = next_of(record, file->content);
	/* What only the store knows of is lost. */
	int reason = record ? forge_retry_find(forge_json_string(record, "reason"))
			    : FORGE_RETRY_HOST_LOST;

	if (!next || reason < 0)
		return forge_fail(err, ENODATA, "run %s is not to be retried",
				  file->run_id);
	*ret = (struct forge_again){ .file = file };
	(void)snprintf(ret->run_id, sizeof(ret->run_id), "%s", next);
	(void)snprintf(ret->previous, sizeof(ret->previous), "%s", file->run_id);
	forge_again_restore_chain(file->content, &ret->chain, &ret->limits);
	restore_raised(record, &ret->limits);
	ret->chain.used[reason]++;
	ret->chain.attempt++;
	return 0;
}

static void append_notes(json_t *record, const char *sentence)
{
	const char *notes = forge_json_string_or(record, "completion_notes", "");
	forge_auto_free char *both =
		forge_asprintf("%s%s%s", notes, *notes ? " " : "", sentence);

	if (both)
		json_object_set_new(record, "completion_notes", forge_json_text(both));
}

/* Only the store has a record: the file has to know the id before the store does. */
static int write_next(const struct forge_home *home, const char *run_id, json_t *content,
		      const char *next)
{
	struct forge_retry_file f = FORGE_RETRY_FILE_INIT;

	json_object_set_new(content, "next", json_string(next));
	int rc = forge_retry_file_make(home, run_id, json_incref(content), &f, NULL);
	forge_retry_file_release(&f);
	return rc;
}

void forge_retry_after_loss(const struct forge_home *home, const char *run_id,
			    bool has_record, json_t *record)
{
	static const struct forge_limits no_bound;
	struct forge_retry_chain chain;
	struct forge_limits limits;
	struct forge_retry_choice choice;
	json_t *content = NULL;
	char text[320] = "", next[FORGE_RUN_ID_MAX];

	if (forge_retry_file_read(home, run_id, &content) < 0 ||
	    forge_make_run_id(next) < 0) {
		json_decref(content);
		return;
	}
	forge_again_restore_chain(content, &chain, &limits);
	const struct forge_retry_case c = { .status = "lost",
					    .reason = "host_lost",
					    .chain = &chain,
					    .limits = &limits,
					    .most = &no_bound };
	const char *secret = forge_again_withheld(content);
	forge_retry_choose(&c, &choice);
	if (choice.is_retried && secret) {
		(void)snprintf(text, sizeof(text),
			       "Not retried: the value of %.64s was not kept.", secret);
	} else if (choice.is_retried &&
		   (has_record || write_next(home, run_id, content, next) == 0)) {
		forge_retry_note(record, next, &choice);
		(void)snprintf(text, sizeof(text), "Retried as run %s.", next);
	} else if (*choice.why_not) {
		(void)snprintf(text, sizeof(text), "Not retried: %s.", choice.why_not);
	}
	if (*text)
		append_notes(record, text);
	json_decref(content);
}

/* ---- attempts that are due ---- */

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

int forge_retry_give_up(const struct forge_home *home, struct forge_retry_file *file,
			const char *why, struct forge_error *err)
{
	const char *url =
		forge_json_string(json_object_get(file->content, "request"), "store");
	json_t *record = NULL, *events = NULL;
	forge_auto_free char *store = url ? forge_json_name_decode(url) : NULL;
	forge_auto_free char *sentence = forge_asprintf("Not retried: %s.", why);
	int rc = forge_load_record(home, file->run_id, &record, err);

	if (rc == 0 && json_object_get(record, "retried_by")) {
		json_object_del(record, "retried_by");
		json_object_del(record, "retried_with");
		json_object_set_new(record, "not_retried", forge_json_text(why));
		append_notes(record, sentence ? sentence : "Not retried.");
		rc = forge_load_events(home, file->run_id, &events, err);
		if (rc == 0)
			rc = forge_add_event(home, file->run_id,
					     forge_event_json(forge_next_seq(events),
							      "repair", "not_retried",
							      NULL, why),
					     err);
		if (rc == 0)
			rc = forge_write_record(home, file->run_id, record, err);
		if (rc == 0 && store)
			rc = forge_deliver_later(home, file->run_id, store, err);
	}
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

enum due { NOT_YET, DUE, NO_USE };

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

	if (forge_slot_exists(home, f->run_id) ||
	    json_is_true(json_object_get(f->content, "is_due")) ||
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
