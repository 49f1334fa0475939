/* SPDX-License-Identifier: Apache-2.0 */
/* Slot files: written and read here; reconcile.c repairs what they name. */
#include "state/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/entries.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/proc.h"

/* The slot's fd, -EWOULDBLOCK when it is taken or waits for repair, or another error. */
static int try_slot(int dir, unsigned slot)
{
	char name[16];
	struct stat st;

	(void)snprintf(name, sizeof(name), "%u", slot);
	forge_auto_close int fd =
		openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_size == 0 ? forge_take_fd(fd) : -EWOULDBLOCK;
}

/*
 * The order in which slots are tried: the first eight, then two random ones in each next doubling of
 * the range, then all. A few runs use low numbers, and the 500th run does not try 499 slots first.
 */
#define NEAR	 8
#define PER_STEP 2

static unsigned nth_slot(unsigned attempt, unsigned n_slots)
{
	unsigned base = NEAR;
	uint32_t chance = 0;

	if (attempt < NEAR)
		return attempt;
	for (unsigned step = (attempt - NEAR) / PER_STEP; step > 0 && base < n_slots;
	     step--)
		base *= 2;
	if (base < n_slots) {
		(void)!getrandom(&chance, sizeof(chance),
				 GRND_NONBLOCK); /* any will do */
		unsigned slot = base + chance % base;
		return slot < n_slots ? slot : n_slots - 1;
	}
	/* Every step has been tried: one after the other. */
	unsigned steps = 0;
	for (base = NEAR; base < n_slots; base *= 2)
		steps++;
	return attempt - NEAR - steps * PER_STEP;
}

int forge_slot_claim(const struct forge_home *home, unsigned *attempt, unsigned n_slots,
		     struct forge_slot *ret, struct forge_error *err)
{
	for (;;) {
		unsigned number = nth_slot((*attempt)++, n_slots);
		if (number >= n_slots)
			break;
		int fd = try_slot(home->active_fd, number);
		if (fd >= 0) {
			*ret = (struct forge_slot){ .fd = fd, .number = number };
			return 0;
		}
		if (fd != -EWOULDBLOCK)
			return forge_fail_errno(err, -fd, "lock %s/active/%u", home->path,
						number);
	}
	return forge_hint(
		err, forge_fail(err, EAGAIN, "%u analyses are running already", n_slots),
		"Raise sandbox.uid_count in the configuration");
}

int forge_slot_add(struct forge_slot *s, json_t *object, struct forge_error *err)
{
	char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;

	json_decref(object);
	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	size_t len = strlen(text);
	text[len] = '\n'; /* replaces the NUL: a complete line ends with it */
	int rc = forge_write_all(s->fd, text, len + 1);
	free(text);
	return rc < 0 ? forge_fail_errno(err, -rc, "write active/%u", s->number) : 0;
}

int forge_slot_begin(struct forge_slot *s, const struct forge_slot_run *run,
		     struct forge_error *err)
{
	json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:I}", "run_id",
				 run->run_id, "store", run->store, "executor",
				 run->executor, "executor_kind", run->executor_kind,
				 "keep", run->keeps_workdir, "pid", (int)getpid(),
				 "pid_namespace", (json_int_t)forge_pid_namespace());

	if (line && run->plan && json_object_update(line, run->plan) < 0) {
		json_decref(line);
		line = NULL;
	}
	return forge_slot_add(s, line, err);
}

int forge_slot_add_record(struct forge_slot *s, json_t *record, struct forge_error *err)
{
	return forge_slot_add(s, json_pack("{s:O}", "record", record), err);
}

int forge_slot_add_keep(struct forge_slot *s, struct forge_error *err)
{
	return forge_slot_add(s, json_pack("{s:b}", "keep", 1), err);
}

/*
 * Far more than a run with the longest command line writes. A larger file was not written by forge and
 * is an error: taken for an empty slot, its workdir and cgroups would never be removed.
 */
#define SLOT_MAX (1u << 30)

/* With word: only if the text has it, else NULL. Parsing takes far longer than reading. */
static int read_slot(int fd, const char *word, bool only_first, json_t **ret)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_fd(fd, SLOT_MAX, &text, &len);
	json_t *slot = NULL;

	if (rc < 0)
		return rc;
	*ret = NULL;
	if (word && !memmem(text, len, word, strlen(word)))
		return 0;
	for (char *line = text, *end;
	     (end = memchr(line, '\n', len - (size_t)(line - text))) &&
	     !(only_first && slot);
	     line = end + 1) {
		json_error_t why;
		json_t *j = json_loadb(line, (size_t)(end - line), 0, &why);
		if (!j && json_error_code(&why) == json_error_out_of_memory) {
			json_decref(slot);
			return -ENOMEM;
		}
		if (json_is_object(j) && slot) {
			json_object_update(slot, j);
			json_decref(j);
		} else if (json_is_object(j)) {
			slot = j;
		} else {
			json_decref(j); /* torn: the lines before it count */
		}
	}
	*ret = slot;
	return 0;
}

int forge_slot_read(int fd, json_t **ret)
{
	return read_slot(fd, NULL, false, ret);
}

bool forge_slot_has(int fd, const char *word)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;

	return forge_read_fd(fd, SLOT_MAX, &text, &len) == 0 &&
	       memmem(text, len, word, strlen(word));
}

int forge_slot_read_first(int fd, const char *word, json_t **ret)
{
	return read_slot(fd, word, true, ret);
}

/*
 * Calls visit with the content of each slot, with word of each that has this word, until it returns true. visit
 * owns the content.
 */
static int each_slot(const struct forge_home *home, const char *word, bool only_first,
		     bool (*visit)(void *arg, const char *name, json_t *slot), void *arg)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;
	int unread = 0;

	(void)forge_entries_open(&d, home->active_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));) {
		json_t *slot = NULL;
		if (name[0] == '.')
			continue;
		forge_auto_close int fd =
			openat(forge_entries_fd(&d), name,
			       O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
		int rc = fd < 0 ? -errno : read_slot(fd, word, only_first, &slot);
		unread = rc < 0 && rc != -ENOENT ? rc : unread;
		if (slot && visit(arg, name, slot))
			return 0;
	}
	return d.error ? d.error : unread;
}

/* What is looked for, and what was found. */
struct search {
	const char *run_id;
	json_t *slot;
	int number;
};

static bool is_it(void *arg, const char *name, json_t *slot)
{
	struct search *s = arg;
	const char *id = forge_json_string(slot, "run_id");

	if (!id || strcmp(id, s->run_id) != 0) {
		json_decref(slot);
		return false;
	}
	s->slot = slot;
	s->number = (int)strtol(name, NULL, 10);
	return true;
}

int forge_slot_find(const struct forge_home *home, const char *run_id, json_t **ret)
{
	struct search s = { .run_id = run_id };
	int rc = each_slot(home, run_id, false, is_it, &s);

	*ret = s.slot;
	return rc;
}

int forge_slot_number(const struct forge_home *home, const char *run_id)
{
	struct search s = { .run_id = run_id };
	int rc = each_slot(home, run_id, false, is_it, &s);
	bool is_there = s.slot != NULL;

	json_decref(s.slot);
	return is_there ? s.number : rc < 0 ? rc : -ENOENT;
}

static bool add_id(void *arg, const char *name, json_t *slot)
{
	const char *id = forge_json_string(slot, "run_id");

	(void)name; /* the id is enough */
	if (id)
		json_object_set_new(arg, id, json_true());
	json_decref(slot);
	return false;
}

json_t *forge_slot_ids(const struct forge_home *home)
{
	json_t *ids = json_object();

	if (ids)
		(void)each_slot(home, NULL, true, add_id,
				ids); /* what cannot be read is left out */
	return ids;
}

static bool add_slot(void *arg, const char *name, json_t *slot)
{
	const char *id = forge_json_string(slot, "run_id");

	(void)name; /* the id is enough */
	json_object_del(slot, "record");
	json_object_del(slot, "saved");
	if (id)
		json_object_set(arg, id, slot);
	json_decref(slot);
	return false;
}

json_t *forge_slot_all(const struct forge_home *home)
{
	json_t *all = json_object();

	if (all)
		(void)each_slot(home, NULL, false, add_slot,
				all); /* what cannot be read is left out */
	return all;
}

bool forge_slot_exists(const struct forge_home *home, const char *run_id)
{
	json_t *slot;
	int rc = forge_slot_find(home, run_id, &slot);
	bool is_there = slot != NULL;

	json_decref(slot);
	return is_there || rc < 0; /* a slot that cannot be read may name the run */
}

json_t *forge_slot_record(const struct forge_home *home, const char *run_id)
{
	json_t *slot;

	(void)!forge_slot_find(home, run_id, &slot); /* NULL: no slot has it */
	json_t *record = json_incref(json_object_get(slot, "record"));

	json_decref(slot);
	return record;
}

/* Others lock a slot for moments, to look at it. */
#define TAKE_MSEC 1000

int forge_slot_take_over(const struct forge_home *home, unsigned number,
			 struct forge_slot *ret, json_t **ret_content,
			 struct forge_error *err)
{
	char name[16];
	struct forge_slot s = { .number = number };

	(void)snprintf(name, sizeof(name), "%u", number);
	forge_auto_close int fd =
		openat(home->active_fd, name, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
	int rc = fd < 0 ? -errno : forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, TAKE_MSEC, -1);
	if (rc == 0)
		rc = forge_slot_read(fd, ret_content);
	if (rc == 0 && !*ret_content)
		rc = -ENOENT;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "take over active/%s", name);
	s.fd = fd;
	rc = forge_slot_add(&s,
			    json_pack("{s:i, s:I}", "pid", (int)getpid(), "pid_namespace",
				      (json_int_t)forge_pid_namespace()),
			    err);
	if (rc < 0)
		return rc;
	ret->fd = forge_take_fd(fd);
	ret->number = number;
	return 0;
}

void forge_slot_release(struct forge_slot *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void forge_slot_close(struct forge_slot *s)
{
	/* When this fails, repair finds nothing to do for the slot and empties it. */
	if (s->fd >= 0)
		(void)!ftruncate(s->fd, 0);
	forge_slot_release(s);
}
