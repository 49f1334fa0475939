/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the state directory. */
#include "state/home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/strv.h"

/* Trailing slashes would make O_NOFOLLOW follow, and comparisons fail. */
static char *without_slashes(const char *s)
{
	size_t len = strlen(s);

	while (len > 1 && s[len - 1] == '/')
		len--;
	return strndup(s, len);
}

char *forge_home_path(void)
{
	const char *s = getenv("FORGE_HOME");

	if (s && *s)
		return s[0] == '/' ? without_slashes(s) : NULL;
	if (geteuid() == 0)
		return strdup("/var/lib/forge");
	s = getenv("XDG_STATE_HOME");
	if (s && s[0] == '/')
		return forge_asprintf("%s/forge", s);
	s = getenv("HOME");
	return s && s[0] == '/' ? forge_asprintf("%s/.local/state/forge", s) : NULL;
}

/* In a directory of another user, or behind a link to one, forge would write and truncate files. */
static int check_own(int fd, const char *path, struct forge_error *err)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 022))
		return 0;
	return forge_hint(err, forge_fail(err, EPERM, "%s is not yours alone", path),
			  "It must belong to you and not be writable by others");
}

/* Once for every directory: what is safe inside it needs its name. */
static int sync_parent(int dir, const char *name)
{
	if (dir != AT_FDCWD)
		return fsync(dir) < 0 ? -errno : 0;
	forge_auto_free char *parent = strndup(name, (size_t)(strrchr(name, '/') - name));
	if (!parent)
		return -ENOMEM;
	forge_auto_close int fd =
		open(*parent ? parent : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	(void)!(fd < 0 || fsync(fd)); /* one that may not be read is not ours to keep */
	return 0;
}

/* Opens a directory that must be ours alone; makes it when make is set. */
static int open_own(int dir, const char *name, const char *shown, bool make,
		    struct forge_error *err)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags);

	if (fd < 0 && errno == ENOENT && make) {
		int rc = mkdirat(dir, name, 0700) < 0 ? -errno : sync_parent(dir, name);
		if (rc < 0 && rc != -EEXIST)
			return forge_hint(err,
					  forge_fail_errno(err, -rc, "make %s", shown),
					  "Set FORGE_HOME to a directory you can write");
		fd = openat(dir, name, flags);
	}
	if (fd < 0)
		return forge_fail_errno(err, errno, "open %s", shown);
	int rc = check_own(fd, shown, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return fd;
}

static int make_parents(const char *path, struct forge_error *err)
{
	forge_auto_free char *parent = strdup(path);
	if (!parent)
		return forge_fail(err, ENOMEM, "out of memory");
	*strrchr(parent, '/') = '\0';
	int rc = *parent ? forge_mkdirs(parent, 0700) : 0;
	return rc < 0 ? forge_hint(err, forge_fail_errno(err, -rc, "make %s", parent),
				   "Set FORGE_HOME to a directory you can write")
		      : 0;
}

void forge_home_share(const struct forge_home *h, int fd)
{
	struct stat st;

	if (!h->shared || fstat(fd, &st) < 0)
		return;
	/* Not by the mode it is made with: the umask is for files that are not to be shared. */
	mode_t more = S_ISDIR(st.st_mode) ? 050 : 040;
	if ((st.st_mode & more) != more)
		(void)!fchmod(fd, (st.st_mode & 07777) | more);
}

/* chmod g+rx by its owner is the wish to share. */
static mode_t shared_mode(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & 050) == 050 ? 050 : 0;
}

int forge_home_open(bool make, struct forge_home *ret, struct forge_error *err)
{
	struct forge_home h = FORGE_HOME_INIT;

	h.path = forge_home_path();
	if (!h.path)
		return forge_hint(err,
				  forge_fail(err, EINVAL, "no place for forge's state"),
				  "Set FORGE_HOME to an absolute path");
	int rc = make && access(h.path, F_OK) < 0 ? make_parents(h.path, err) : 0;
	if (rc == 0)
		rc = h.fd = open_own(AT_FDCWD, h.path, h.path, make, err);
	if (rc >= 0)
		rc = h.runs_fd = open_own(h.fd, "runs", "runs in FORGE_HOME", make, err);
	if (rc >= 0) {
		h.shared = shared_mode(h.fd);
		forge_home_share(&h, h.runs_fd);
	}
	if (rc >= 0)
		rc = h.active_fd =
			open_own(h.fd, "active", "active in FORGE_HOME", make, err);
	if (rc < 0) {
		forge_wrap(err, 0, "FORGE_HOME");
		forge_home_close(&h);
		return rc;
	}
	*ret = h;
	return 0;
}

int forge_home_subdir(const struct forge_home *h, const char *name,
		      struct forge_error *err)
{
	return open_own(h->fd, name, name, true, err);
}

int forge_home_open_run(const struct forge_home *h, const char *run_id)
{
	if (!forge_run_id_is_valid(run_id))
		return -EINVAL;
	int fd = openat(h->runs_fd, run_id,
			O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

void forge_home_close(struct forge_home *h)
{
	if (h->fd >= 0)
		close(h->fd);
	if (h->runs_fd >= 0)
		close(h->runs_fd);
	if (h->active_fd >= 0)
		close(h->active_fd);
	free(h->path);
	*h = FORGE_HOME_INIT;
}
