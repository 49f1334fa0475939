/* SPDX-License-Identifier: Apache-2.0 */
/* Finds records and takes single values from them. */
#include "record/view.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/parse.h"
#include "record/deliver.h"
#include "record/record.h"
#include "state/slot.h"

int forge_record_find(const struct forge_home *home, struct forge_store *st,
		      const char *run_id, json_t **ret, bool *ret_is_unconfirmed,
		      struct forge_error *err)
{
	json_t *local = NULL, *stored = NULL;
	struct forge_error why = FORGE_ERROR_INIT, unread = FORGE_ERROR_INIT;
	int rc = st ? forge_store_get(st, run_id, &stored, &why)
		    : forge_fail(&why, ENOENT, "no run '%s' here", run_id);
	int here = forge_load_record(home, run_id, &local, &unread);

	if (here == 0 &&
	    (!stored || (forge_record_is_over(local) && !forge_record_is_over(stored)))) {
		json_decref(stored);
		*ret = local;
		*ret_is_unconfirmed = true;
		return 0;
	}
	*ret_is_unconfirmed = false;
	json_decref(local);
	if (!stored)
		stored = forge_slot_record(home, run_id);
	if (!stored) {
		*err = forge_is_no_record(here) ? why : unread;
		return forge_is_no_record(here) ? rc : here;
	}
	*ret = stored;
	return 0;
}

bool forge_record_is_here(const json_t *record)
{
	char host[256] = "";
	const char *there = forge_json_string(record, "host");

	(void)gethostname(host, sizeof(host) - 1); /* "" matches no host */
	return there && strcmp(host, there) == 0;
}

time_t forge_record_time(const char *text)
{
	struct tm tm = { 0 };

	return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

uint64_t forge_record_limit(const json_t *record, const char *key, double scale)
{
	const json_t *j = json_object_get(json_object_get(record, "limits"), key);

	return json_is_number(j) ? (uint64_t)(json_number_value(j) * scale + 0.5)
				 : FORGE_UNLIMITED;
}

/* Quotes a word that a shell would interpret. */
static void print_word(FILE *f, const char *word)
{
	if (*word && !strpbrk(word, " \t\n'\"\\$`*?[]<>|&;(){}!#~")) {
		fputs(word, f);
		return;
	}
	putc('\'', f);
	for (; *word; word++)
		if (*word == '\'')
			fputs("'\\''", f);
		else
			putc(*word, f);
	putc('\'', f);
}

#define COMMAND_MAX 4096

char *forge_record_command(const json_t *record)
{
	const json_t *words = json_object_get(record, "command"), *word;
	char *text = NULL;
	size_t i, size = 0;
	FILE *f = open_memstream(&text, &size);

	if (!f)
		return NULL;
	json_array_foreach (words, i, word) {
		if (i)
			putc(' ', f);
		print_word(f, json_string_value(word) ? json_string_value(word) : "");
		if (ftell(f) > COMMAND_MAX)
			break;
	}
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	if (size > COMMAND_MAX)
		memcpy(text + COMMAND_MAX - 4, "...", 4);
	return text;
}

int forge_record_time_to_id(const char *text, char buf[FORGE_RUN_ID_MAX],
			    struct forge_error *err)
{
	static const char *const formats[] = { "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S",
					       "%Y-%m-%dT%H:%M", "%Y-%m-%d" };
	uint64_t usec;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(formats); i++) {
		struct tm tm = { 0 };
		const char *end = strptime(text, formats[i], &tm);
		time_t then = end ? timegm(&tm) : -1;
		if (!end || then <= 0 || (*end && *end != '.' && *end != 'Z'))
			continue;
		(void)forge_run_id_at(buf, (uint64_t)then * 1000);
		return 0;
	}
	int rc = forge_parse_duration(text, &usec, NULL);
	if (rc < 0 || usec == FORGE_UNLIMITED)
		return forge_hint(
			err, forge_fail(err, EINVAL, "'%.40s' is no time", text),
			"Write 2h or 3d for how long ago, or 2026-01-31T12:00:00");
	uint64_t now = (uint64_t)time(NULL) * 1000;
	(void)forge_run_id_at(buf, now > usec / 1000 ? now - usec / 1000 : 0);
	return 0;
}
