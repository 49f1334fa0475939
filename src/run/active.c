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

static int append_facts(struct forge_active *a, struct forge_error *err)
{
	char *text = json_dumps(a->facts, JSON_COMPACT);

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
	a->facts = json_pack("{s:s, s:s, s:s, s:b, s:i, s:I, s:o}", "run_id", run_id,
			     "workdir", workdir, "store", store, "keep", keep, "pid",
			     (int)getpid(), "pid_namespace",
			     (json_int_t)forge_pid_namespace(), "cgroups", dirs);
	if (!a->facts)
		return forge_fail(err, EINVAL, "the workdir's path is not valid UTF-8");
	return append_facts(a, err);
}

int forge_active_note_record(struct forge_active *a, json_t *record,
			     struct forge_error *err)
{
	json_object_set(a->facts, "record", record);
	return append_facts(a, err);
}

int forge_active_note_workdir(struct forge_active *a, const struct forge_workdir *w,
			      struct forge_error *err)
{
	json_object_set_new(a->facts, "dev", json_integer((json_int_t)w->dev));
	json_object_set_new(a->facts, "ino", json_integer((json_int_t)w->ino));
	return append_facts(a, err);
}

json_t *forge_active_read(int fd)
{
	struct stat st;
	errno = 0;
	if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > (64 << 20))
		return NULL;
	forge_auto_free char *text = malloc((size_t)st.st_size + 1);
	ssize_t n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
	if (n <= 0)
		return NULL;
	text[n] = '\0';
	errno = 0;
	json_t *facts = NULL;
	for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
		json_t *j = json_loadb(line, (size_t)(end - line), 0, NULL);
		if (j) {
			json_decref(facts);
			facts = j;
		}
	}
	return facts;
}

void forge_active_leave(struct forge_active *a)
{
	json_decref(a->facts);
	a->facts = NULL;
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
