/* SPDX-License-Identifier: Apache-2.0 */
/* Slot files: written here, repaired by reconcile.c. */
#include "run/active.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "sandbox/cgroup.h"

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
 * The order in which slots are tried: the first eight, then two at random in each next doubling,
 * then all. Few runs use few slots, and the five hundredth does not look at all before it.
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

int forge_active_claim(const struct forge_home *home, unsigned *attempt, unsigned n_slots,
		       struct forge_active *ret, struct forge_error *err)
{
	for (;;) {
		unsigned slot = nth_slot((*attempt)++, n_slots);
		if (slot >= n_slots)
			break;
		int fd = try_slot(home->active_fd, slot);
		if (fd >= 0) {
			*ret = (struct forge_active){ .fd = fd, .slot = slot };
			return 0;
		}
		if (fd != -EWOULDBLOCK)
			return forge_fail_errno(err, -fd, "lock %s/active/%u", home->path,
						slot);
	}
	return forge_hint(
		err, forge_fail(err, EAGAIN, "%u analyses are running already", n_slots),
		"Raise sandbox.uid_count in the configuration");
}

/* One line with these facts; takes them. */
static int append_facts(struct forge_active *a, json_t *facts, struct forge_error *err)
{
	char *text = facts ? json_dumps(facts, JSON_COMPACT) : NULL;

	json_decref(facts);
	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	size_t len = strlen(text);
	text[len] = '\n'; /* in place of its NUL: a whole line ends with it */
	int rc = forge_write_all(a->fd, text, len + 1);
	free(text);
	return rc < 0 ? forge_fail_errno(err, -rc, "write active/%u", a->slot) : 0;
}

int forge_active_intend(struct forge_active *a, const char *run_id, const char *workdir,
			const char *store, bool keep, struct forge_error *err)
{
	forge_auto_strv struct forge_strv cgroups = { 0 };
	int rc = forge_cgroup_predict(run_id, &cgroups);

	if (rc < 0)
		return forge_fail_errno(err, -rc, "find our cgroups (/proc/self/cgroup)");
	json_t *dirs = json_array();
	forge_strv_foreach (dir, &cgroups)
		json_array_append_new(dirs, json_string(dir));
	json_t *facts = json_pack("{s:s, s:s, s:s, s:b, s:i, s:I, s:o}", "run_id", run_id,
				  "workdir", workdir, "store", store, "keep", keep, "pid",
				  (int)getpid(), "pid_namespace",
				  (json_int_t)forge_pid_namespace(), "cgroups", dirs);
	if (!facts)
		return forge_fail(err, EINVAL, "the workdir's path is not valid UTF-8");
	return append_facts(a, facts, err);
}

int forge_active_note_record(struct forge_active *a, json_t *record,
			     struct forge_error *err)
{
	return append_facts(a, json_pack("{s:O}", "record", record), err);
}

int forge_active_note_workdir(struct forge_active *a, const struct forge_workdir *w,
			      struct forge_error *err)
{
	return append_facts(a,
			    json_pack("{s:I, s:I, s:I}", "dev", (json_int_t)w->dev, "ino",
				      (json_int_t)w->ino, "inner", (json_int_t)w->inner),
			    err);
}

int forge_active_intend_workdir(struct forge_active *a, const char *workdir,
				struct forge_error *err)
{
	return append_facts(a, json_pack("{s:s}", "workdir", workdir), err);
}

int forge_active_intend_keep(struct forge_active *a, struct forge_error *err)
{
	return append_facts(a, json_pack("{s:b}", "keep", 1), err);
}

/*
 * Far more than the longest command line makes of a slot. What is larger is not ours, and is left
 * to a person: taken for empty, workdir and cgroups would stay for ever.
 */
#define SLOT_MAX (1u << 30)

int forge_active_read(int fd, json_t **ret)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_fd(fd, SLOT_MAX, &text, &len);
	json_t *facts = NULL;

	if (rc < 0)
		return rc;
	for (char *line = text, *end;
	     (end = memchr(line, '\n', len - (size_t)(line - text))); line = end + 1) {
		json_error_t why;
		json_t *j = json_loadb(line, (size_t)(end - line), 0, &why);
		if (!j && json_error_code(&why) == json_error_out_of_memory) {
			json_decref(facts);
			return -ENOMEM;
		}
		if (json_is_object(j) && facts) {
			json_object_update(facts, j);
			json_decref(j);
		} else if (json_is_object(j)) {
			facts = j;
		} else {
			json_decref(j); /* torn: those before it count */
		}
	}
	*ret = facts;
	return 0;
}

void forge_active_leave(struct forge_active *a)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
}

void forge_active_close(struct forge_active *a)
{
	if (a->fd >= 0)
		(void)!ftruncate(a->fd,
				 0); /* failing, it is repaired once more than needed */
	forge_active_leave(a);
}
