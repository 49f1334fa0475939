/* SPDX-License-Identifier: Apache-2.0 */
/* The last result of each check. */
#include "health/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/proc.h"
#include "base/sha256.h"

#define RESULT_MAX (64u << 10)
#define KEY_SIZE   32

static void name_of(const struct forge_check_decl *d, char buf[96])
{
	(void)snprintf(buf, 96, "%.80s.json", d->name);
}

static uint64_t boot_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void add_list(struct forge_sha256 *h, const struct forge_strv *list)
{
	forge_strv_foreach (word, list)
		forge_sha256_add(h, word, strlen(word) + 1);
	forge_sha256_add(h, "|", 1);
}

/* Checks run at the same time: the first one's key is the key of all. */
static bool make_key(int dir)
{
	char fresh[KEY_SIZE], name[32];

	(void)snprintf(name, sizeof(name), ".key.%d", (int)getpid());
	(void)unlinkat(dir, name, 0); /* of a killed process with this number */
	forge_auto_close int fd = openat(
		dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	bool is_made = fd >= 0 &&
		       getrandom(fresh, sizeof(fresh), 0) == (ssize_t)sizeof(fresh) &&
		       forge_write_all(fd, fresh, sizeof(fresh)) == 0 &&
		       (linkat(dir, name, dir, "key", 0) == 0 || errno == EEXIST);
	if (fd >= 0)
		(void)unlinkat(dir, name, 0);
	return is_made;
}

/*
 * A number that only this FORGE_HOME has: a digest without it would let a reader of the files guess a weak
 * password. False: there is none, and no result is used again.
 */
static bool read_key(int dir, char key[KEY_SIZE])
{
	for (int i = 0; i < 2; i++) {
		forge_auto_close int fd =
			openat(dir, "key", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			return read(fd, key, KEY_SIZE) == KEY_SIZE;
		if (errno != ENOENT || !make_key(dir))
			return false;
	}
	return false;
}

/* A digest of all that the result depends on. NULL: there is no key. */
static const char *digest(int dir, const struct forge_check_decl *d,
			  char buf[FORGE_DIGEST_MAX])
{
	const char *texts[] = { d->kind,    d->path, d->url,	 d->body,   d->address,
				d->process, d->unit, d->runtime, d->command };
	char key[KEY_SIZE];
	const uint64_t numbers[] = { d->min_free.absolute,
				     d->min_free.milli,
				     d->min_inodes.absolute,
				     d->min_inodes.milli,
				     d->min_available.absolute,
				     d->min_available.milli,
				     d->max_pressure.absolute,
				     d->max_pressure.milli,
				     d->is_thorough,
				     d->status,
				     d->timeout_usec };
	struct forge_sha256 h;

	if (!read_key(dir, key))
		return NULL;
	forge_sha256_init(&h);
	forge_sha256_add(&h, key, sizeof(key));
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts); i++)
		forge_sha256_add(&h, texts[i] ? texts[i] : "",
				 texts[i] ? strlen(texts[i]) + 1 : 1);
	forge_sha256_add(&h, numbers, sizeof(numbers));
	add_list(&h, &d->tables);
	add_list(&h, &d->count);
	add_list(&h, &d->contents);
	return forge_sha256_done(&h, buf);
}

/* Rows before and after a run are compared: another time's are of no use. */
static bool may_be_reused(const struct forge_check_decl *d)
{
	return d->every_usec && !d->count.n && !d->contents.n;
}

uint64_t forge_check_clock(void)
{
	return boot_usec();
}

int forge_check_recall(int dir, const struct forge_check_decl *d, uint64_t ended_since,
		       struct forge_check_result *ret)
{
	char name[96], boot[FORGE_BOOT_ID_MAX], own[FORGE_DIGEST_MAX];
	forge_auto_free char *text = NULL;
	size_t len = 0;

	name_of(d, name);
	if (!may_be_reused(d) || dir < 0 ||
	    forge_read_file(dir, name, RESULT_MAX, &text, &len) < 0 ||
	    !digest(dir, d, own))
		return 0;
	forge_auto_json json_t *j = json_loadb(text, len, 0, NULL);
	uint64_t then = (uint64_t)json_integer_value(json_object_get(j, "boot_usec"));
	uint64_t took = (uint64_t)json_integer_value(json_object_get(j, "duration_usec"));
	uint64_t now = boot_usec();
	if (!json_is_object(j) || then > now ||
	    (now - then >= d->every_usec && then + took < ended_since) ||
	    strcmp(forge_json_string_or(j, "boot", ""), forge_boot_id(boot)) != 0 ||
	    strcmp(forge_json_string_or(j, "decl", ""), own) != 0)
		return 0;
	*ret = (struct forge_check_result){
		.decl = d,
		.duration_usec = took,
		.age_usec = now - then,
		.is_reused = true,
	};
	ret->report.is_ok = json_is_true(json_object_get(j, "ok"));
	ret->report.numbers = json_incref(json_object_get(j, "numbers"));
	(void)snprintf(ret->report.text, sizeof(ret->report.text), "%s",
		       forge_json_string_or(j, "text", ""));
	(void)snprintf(ret->time, sizeof(ret->time), "%s",
		       forge_json_string_or(j, "time", ""));
	return 1;
}

void forge_check_remember(int dir, const struct forge_check_result *r)
{
	char name[96], boot[FORGE_BOOT_ID_MAX], own[FORGE_DIGEST_MAX];

	if (dir < 0 || r->is_reused || !may_be_reused(r->decl) ||
	    !digest(dir, r->decl, own))
		return;
	forge_auto_json json_t *j = json_pack(
		"{s:s, s:s, s:I, s:b, s:o, s:s, s:I, s:O?}", "decl", own, "boot",
		forge_boot_id(boot), "boot_usec", (json_int_t)(boot_usec() - r->age_usec),
		"ok", r->report.is_ok, "text", forge_json_text(r->report.text), "time",
		r->time, "duration_usec", (json_int_t)r->duration_usec, "numbers",
		r->report.numbers);
	forge_auto_free char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	name_of(r->decl, name);
	if (text)
		(void)!forge_replace_file(dir, name, text, strlen(text), false);
}
