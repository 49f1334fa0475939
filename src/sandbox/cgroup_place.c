/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where manager "v2" makes the groups of runs. A cgroup with processes in it cannot give
 * controllers to its children (the root of the whole hierarchy can), and forge is started from
 * shells, which live in such a cgroup. So the runs go below the nearest group, from our own
 * upward, that can give controllers:
 *
 *   - our own group, when it gives out its controllers already, or when only forge lives
 *     in it;
 *   - a group above that gives them out already: in a directory "forge" there;
 *   - a group above that has no processes, or is the real root: the same. It comes after
 *     the groups that give out controllers already, because giving them out makes more
 *     such groups further down, and the place must stay the same;
 *   - otherwise, a group whose processes may be moved into a leaf. These are a group that
 *     was delegated to us, and, for root, the root of a container.
 *
 * The search does not go above a group with a limit: its limit must hold for the runs too. A
 * group of another user is not used, because its owner could remove the limits of the runs.
 * Where systemd manages the hierarchy, only units that it delegated are changed; otherwise
 * manager "systemd" asks it for one.
 *
 * The search changes nothing, so that crash repair can name the place before it is used. Any
 * number of commands can prepare the place at the same time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "sandbox/cgroup.h"

#define LEAF FORGE_CGROUP_LEAF

static const char *const needed[] = { "memory", "pids", "cpu" };

/* What the search needs to know about one group. */
struct level {
	bool has_controllers; /* its parent gives it the controllers we need */
	bool gives;	      /* and it gives them to its children */
	bool is_real_root;
	bool is_empty; /* no processes live in it */
	bool is_alone; /* only we and our children live in it */
	bool is_ours;  /* no other user can change it, or it was delegated to us */
};

bool forge_cgroup_has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += len)
		if ((p == text || p[-1] == ' ') &&
		    (p[len] == ' ' || p[len] == '\n' || !p[len]))
			return true;
	return false;
}

/* Lists the controllers we need that the named file of dir lacks, as "+memory +pids". */
static int list_absent(int dir, const char *file, char *absent, size_t size)
{
	char have[512];
	ssize_t n = forge_read_at(dir, file, have, sizeof(have));
	size_t len = 0;

	if (n < 0)
		return (int)n;
	absent[0] = '\0';
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(needed); i++)
		if (!forge_cgroup_has_word(have, needed[i]))
			len += (size_t)snprintf(absent + len, size - len, "%s+%s",
						len ? " " : "", needed[i]);
	return 0;
}

static bool has_all(int dir, const char *file)
{
	char absent[64];

	return list_absent(dir, file, absent, sizeof(absent)) == 0 && !*absent;
}

/*
 * Does the list hold only this process and helpers that it started? The caller treats a list
 * that fills its buffer as one with other processes.
 */
static bool is_alone(char *list)
{
	for (char *p = list; *p; p += *p == '\n') {
		long pid = strtol(p, &p, 10);
		if (pid <= 0) /* a process of another pid namespace */
			return false;
		if (pid != getpid() && forge_proc_parent((pid_t)pid) != getpid())
			return false;
	}
	return true;
}

/*
 * Root uses only groups that no other user can write, because that user could undo the limits.
 * For other users a group on a read-only mount counts as theirs, so that the first write
 * reports why it fails.
 */
static bool is_ours(int dir)
{
	static const char *const files[] = { ".", "cgroup.procs",
					     "cgroup.subtree_control" };
	struct stat st;

	if (geteuid() == 0)
		return fstat(dir, &st) == 0 && st.st_uid == 0 && !(st.st_mode & 022);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files); i++)
		if (faccessat(dir, files[i], W_OK, AT_EACCESS) < 0 && errno != EROFS)
			return false;
	return true;
}

static void look_at(int dir, struct level *ret)
{
	char procs[4096];

	*ret = (struct level){ .has_controllers = has_all(dir, "cgroup.controllers") };
	if (!ret->has_controllers)
		return;
	ret->is_ours = is_ours(dir);
	ret->gives = has_all(dir, "cgroup.subtree_control");
	if (ret->gives)
		return;
	/* Every group except the root of the whole hierarchy has this file. */
	ret->is_real_root = faccessat(dir, "cgroup.events", F_OK, 0) < 0;
	ssize_t n = forge_read_at(dir, "cgroup.procs", procs, sizeof(procs));
	ret->is_empty = n == 0;
	ret->is_alone = n > 0 && n < (ssize_t)sizeof(procs) - 1 && is_alone(procs);
}

/* Would a run that is made above this group escape a limit? */
static bool has_limit(int dir)
{
	static const char *const files[] = { "memory.max", "pids.max", "cpu.max" };
	char buf[64];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files); i++)
		if (forge_read_at(dir, files[i], buf, sizeof(buf)) > 0 &&
		    strncmp(buf, "max", 3) != 0)
			return true;
	return false;
}

static bool ends_in(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n > m && strcmp(text + n - m, end) == 0;
}

/* Was this group made by systemd, not by a process inside a unit? */
static bool is_unit(const char *path)
{
	return ends_in(path, ".scope") || ends_in(path, ".service") ||
	       ends_in(path, ".slice") || ends_in(path, ".mount") ||
	       ends_in(path, ".socket") || ends_in(path, ".swap");
}

/*
 * systemd marks the groups that it has delegated. A user's manager (user@) has the mark too,
 * but it manages the groups below itself.
 */
static bool is_delegated(const char *path)
{
	static const char *const marks[] = { "user.delegate", "trusted.delegate" };
	const char *name = strrchr(path, '/');
	char value[8];

	if (name && strncmp(name, "/user@", 6) == 0)
		return false;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(marks); i++)
		if (getxattr(path, marks[i], value, sizeof(value)) == 1 && *value == '1')
			return true;
	return false;
}

/* Cuts off the last component with its slash. */
static void go_up(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
}

/* Length of the path of the unit around path, or 0 when it is in no unit. */
static size_t unit_length(const char *path, const char *top)
{
	forge_auto_free char *p = strdup(path);

	while (p && !is_unit(p) && strcmp(p, top) != 0 && strchr(p, '/'))
		go_up(p);
	return p && is_unit(p) ? strlen(p) : 0;
}

/*
 * Finds the highest group that we may change: the root of the mounted hierarchy or, below
 * systemd, the unit around us if it is delegated; "" when there is none. In a container that
 * sees the host's hierarchy, only the names of the units show that systemd manages it.
 */
static int find_border(const struct forge_cgroup_own *own, char **ret)
{
	size_t unit = unit_length(own->unified, own->top);

	if (!unit && access("/run/systemd/system", F_OK) < 0) {
		*ret = strdup(own->top);
		return *ret ? 0 : -ENOMEM;
	}
	*ret = strndup(own->unified, unit);
	if (*ret && unit && !is_delegated(*ret))
		**ret = '\0';
	return *ret ? 0 : -ENOMEM;
}

static void clear(struct forge_cgroup_place *p)
{
	free(p->dir);
	free(p->runs);
	*p = (struct forge_cgroup_place){ 0 };
}

/*
 * In our own group the runs' groups are beside the leaf. In any other group, and in the root of
 * a hierarchy, other software has groups too, so the runs get one directory of their own.
 */
static int settle(struct forge_cgroup_place *p, const struct forge_cgroup_own *own,
		  const char *dir, enum forge_cgroup_move move)
{
	bool is_shared = strcmp(dir, own->unified) != 0 || strcmp(dir, own->top) == 0;

	clear(p);
	p->dir = strdup(dir);
	p->runs = is_shared ? forge_asprintf("%s/" FORGE_CGROUP_DIR, dir) : strdup(dir);
	p->move = move;
	return p->dir && p->runs ? 0 : -ENOMEM;
}

/* May all processes of the group be moved into a leaf? */
static bool may_move(const struct forge_cgroup_own *own, const char *path,
		     const char *border)
{
	if (geteuid() != 0)
		return true;
	return ends_in(border, ".scope") || ends_in(border, ".service") ||
	       strcmp(path, own->top) == 0;
}

static int find(const struct forge_cgroup_own *own, struct forge_cgroup_place *ret)
{
	forge_auto_free char *path = strdup(own->unified), *border = NULL;
	int rc = path ? find_border(own, &border) : -ENOMEM;

	while (rc == 0) {
		forge_auto_close int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		struct level l;

		if (dir < 0)
			return -errno;
		look_at(dir, &l);
		/*
		 * Only root can read the mark of older systemd versions; for other users the
		 * owner decides.
		 */
		if (!*border && geteuid() == 0)
			return 0;
		bool is_own = strcmp(path, own->unified) == 0;
		if (l.is_ours && l.gives)
			return settle(ret, own, path, FORGE_CGROUP_MOVE_NONE);
		if (l.is_ours && is_own && l.is_alone)
			return settle(ret, own, path, FORGE_CGROUP_MOVE_SELF);
		bool is_free = l.is_real_root || l.is_empty;
		if (l.is_ours && is_free && (!ret->dir || ret->move))
			rc = settle(ret, own, path, FORGE_CGROUP_MOVE_NONE);
		else if (l.is_ours && !ret->dir && *border && may_move(own, path, border))
			rc = settle(ret, own, path, FORGE_CGROUP_MOVE_ALL);
		if (!*border || strcmp(path, border) == 0 || has_limit(dir))
			break;
		go_up(path);
	}
	return rc;
}

int forge_cgroup_place(const struct forge_cgroup_own *own,
		       const struct forge_cgroup_place **ret)
{
	static struct forge_cgroup_place known;
	static char *seen; /* our own group at the time of the search */
	int rc = 0;

	*ret = &known;
	if (!own->unified)
		return -ENOENT;
	if (!seen || strcmp(seen, own->unified) != 0) {
		clear(&known);
		free(seen);
		seen = strdup(own->unified);
		forge_auto_close int top =
			open(own->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
		/*
		 * A controller that the root lacks is available nowhere below. On hybrid hosts
		 * the root lacks them all.
		 */
		if (top >= 0 && has_all(top, "cgroup.controllers"))
			rc = find(own, &known);
	}
	return rc < 0 ? rc : known.dir ? 0 : -ENOENT;
}

/* Moves one process into the leaf; it may have ended by now. */
static int move_one(int dir, long pid)
{
	char text[16];

	(void)snprintf(text, sizeof(text), "%ld", pid);
	int rc = forge_write_at(dir, LEAF "/cgroup.procs", text);
	return rc == -ESRCH ? 0 : rc;
}

static int move_to_leaf(int dir, enum forge_cgroup_move move)
{
	char list[65536];

	if (mkdirat(dir, LEAF, 0755) < 0 && errno != EEXIST)
		return -errno;
	ssize_t n = forge_read_at(dir, "cgroup.procs", list, sizeof(list));
	if (n < 0)
		return (int)n;
	/* Drop the last number: the end of the buffer may have cut it short. */
	if (n == (ssize_t)sizeof(list) - 1)
		*strrchr(list, '\n') = '\0';
	int first = 0;
	for (char *p = list; *p; p += *p == '\n') {
		long pid = strtol(p, &p, 10);
		if (pid <= 0)
			continue; /* a process of another pid namespace cannot be named */
		if (move == FORGE_CGROUP_MOVE_SELF && pid != getpid() &&
		    forge_proc_parent((pid_t)pid) != getpid())
			continue;
		int rc = move_one(dir, pid);
		if (first == 0)
			first = rc;
	}
	return first;
}

/*
 * Lets dir give the controllers to its children. Returns 0 or -errno; ret_absent lists those
 * that it did not give yet.
 */
static int enable(int dir, enum forge_cgroup_move move, char *ret_absent, size_t size)
{
	int rc = list_absent(dir, "cgroup.subtree_control", ret_absent, size);

	if (rc < 0 || !*ret_absent)
		return rc;
	rc = forge_write_at(dir, "cgroup.subtree_control", ret_absent);
	/*
	 * Retried, because processes fork while they are moved, and helpers of an earlier run
	 * may be about to end.
	 */
	for (int tries = 0; rc == -EBUSY && tries < 20; tries++) {
		if (move == FORGE_CGROUP_MOVE_NONE)
			break;
		if (tries > 1)
			(void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
		int moved = move_to_leaf(dir, move);
		rc = forge_write_at(dir, "cgroup.subtree_control", ret_absent);
		if (rc == -EBUSY && moved < 0)
			return moved;
	}
	return rc;
}

/* The command for the administrator where forge must not move the processes itself. */
static int hint_move(struct forge_error *err, int rc, const char *path)
{
	return forge_hint(err, rc,
			  "As root, once: mkdir -p %s/init && for p in $(cat "
			  "%s/cgroup.procs); do echo $p >%s/init/cgroup.procs; done",
			  path, path, path);
}

static int hint_setup(struct forge_error *err, int rc)
{
	if (geteuid() == 0)
		return forge_hint(
			err, rc,
			"Start forge in a delegated cgroup: systemd-run --scope -p "
			"Delegate=yes forge ...; without systemd, forge setup shows "
			"what is missing (docs/HOSTS.md)");
	return forge_hint(err, rc,
			  "As root, once: forge setup --user NAME; or start forge in a "
			  "delegated cgroup: systemd-run --user --scope -p Delegate=yes "
			  "forge ... (docs/HOSTS.md)");
}

int forge_cgroup_place_explain(const struct forge_cgroup_own *own,
			       struct forge_error *err)
{
	char absent[64];

	if (!own->unified)
		return forge_fail(err, ENOENT, "no unified cgroup hierarchy is mounted");
	forge_auto_close int dir = open(own->unified, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return forge_fail_errno(err, errno, "open %s", own->unified);
	int rc = list_absent(dir, "cgroup.controllers", absent, sizeof(absent));
	if (rc < 0)
		return forge_fail_errno(err, -rc, "read %s/cgroup.controllers",
					own->unified);
	if (*absent)
		return hint_setup(err,
				  forge_fail(err, ENOENT,
					     "controllers %s are not delegated to %s",
					     absent, own->unified));
	if (!is_ours(dir))
		return hint_setup(err,
				  forge_fail(err, EACCES, "%s is not delegated to us",
					     own->unified));
	rc = forge_fail(err, EBUSY, "other processes live in %s", own->unified);
	if (geteuid() != 0 || access("/run/systemd/system", F_OK) == 0)
		return hint_setup(err, rc);
	if (unit_length(own->unified, own->top))
		return forge_hint(
			err, rc,
			"A systemd outside of this container manages it: run the "
			"container with --cgroupns=private, or have the unit "
			"delegated (Delegate=yes)");
	return hint_move(err, rc, own->unified);
}

/* The directory "forge", which the first command makes and all others find. */
static int make_runs(const struct forge_cgroup_place *p, struct forge_error *err)
{
	char absent[64];

	if (mkdir(p->runs, 0755) < 0 && errno != EEXIST)
		return hint_setup(err, forge_fail_errno(err, errno, "make %s", p->runs));
	forge_auto_close int runs = open(p->runs, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (runs < 0)
		return forge_fail_errno(err, errno, "open %s", p->runs);
	if (!is_ours(runs))
		return forge_fail(err, EPERM, "%s belongs to another user", p->runs);
	int rc = enable(runs, FORGE_CGROUP_MOVE_NONE, absent, sizeof(absent));
	return rc < 0 ? forge_fail_errno(err, -rc, "enable %s in %s", absent, p->runs)
		      : 0;
}

int forge_cgroup_place_prepare(const struct forge_cgroup_place *p,
			       struct forge_error *err)
{
	char absent[64] = "";
	forge_auto_close int dir = open(p->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0)
		return forge_fail_errno(err, errno, "open %s", p->dir);
	int rc = enable(dir, p->move, absent, sizeof(absent));
	if (rc == -EBUSY)
		return hint_move(
			err, forge_fail(err, EBUSY, "other processes live in %s", p->dir),
			p->dir);
	if (rc < 0)
		return hint_setup(err, forge_fail_errno(err, -rc, "enable %s in %s",
							absent, p->dir));
	return strcmp(p->dir, p->runs) == 0 ? 0 : make_runs(p, err);
}
