/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the state directory. */
#include "run/home.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"

char *forge_home_path(void)
{
	const char *s = getenv("FORGE_HOME");

	if (s && *s)
		return s[0] == '/' ? strdup(s) : NULL;
	if (geteuid() == 0)
		return strdup("/var/lib/forge");
	s = getenv("XDG_STATE_HOME");
	if (s && s[0] == '/')
		return forge_asprintf("%s/forge", s);
	s = getenv("HOME");
	return s && s[0] == '/' ? forge_asprintf("%s/.local/state/forge", s) : NULL;
}

static int open_sub(const char *home, const char *name, bool make, int *ret,
		    struct forge_error *err)
{
	forge_auto_free char *path = forge_asprintf("%s/%s", home, name);
	if (!path)
		return forge_fail(err, ENOMEM, "out of memory");
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT && make) {
		int rc = forge_mkdirs(path, 0700);
		if (rc < 0)
			return forge_hint(err,
					  forge_fail_errno(err, -rc, "make %s", path),
					  "Set FORGE_HOME to a directory you can write");
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return forge_fail_errno(err, errno, "open %s", path);
	struct stat st;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022)) {
		close(fd);
		return forge_hint(err,
				  forge_fail(err, EPERM, "%s is not yours alone", path),
				  "It must belong to you and not be writable by others");
	}
	*ret = fd;
	return 0;
}

int forge_home_open(bool make, struct forge_home *ret, struct forge_error *err)
{
	struct forge_home h = FORGE_HOME_INIT;

	h.path = forge_home_path();
	if (!h.path)
		return forge_hint(err,
				  forge_fail(err, EINVAL, "no place for forge's state"),
				  "Set FORGE_HOME to an absolute path");
	int rc = open_sub(h.path, "runs", make, &h.runs_fd, err);
	if (rc == 0)
		rc = open_sub(h.path, "active", make, &h.active_fd, err);
	if (rc < 0) {
		forge_home_close(&h);
		return rc;
	}
	*ret = h;
	return 0;
}

void forge_home_close(struct forge_home *h)
{
	if (h->runs_fd >= 0)
		close(h->runs_fd);
	if (h->active_fd >= 0)
		close(h->active_fd);
	free(h->path);
	*h = FORGE_HOME_INIT;
}
