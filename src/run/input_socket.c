/* SPDX-License-Identifier: Apache-2.0 */
#include "run/input_socket.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/sys.h"

/* More files, or a deeper tree, take too long at the end of a run. */
#define ENTRIES_MAX 100000
#define DEPTH_MAX   128

struct search {
	unsigned n, depth;
	char *text;
};

static bool stop(struct search *s, const char *what, const char *name)
{
	(void)snprintf(s->text, FORGE_INPUT_SOCKET_TEXT, "%s %.180s", what, name);
	return true;
}

static bool look_into(struct search *s, int dir, const char *name);

/* type: of the directory's entry. A file that is gone is none. */
static bool look_at(struct search *s, int dir, const char *name, unsigned char type)
{
	struct stat st;

	if (type == DT_UNKNOWN) {
		if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return errno != ENOENT && stop(s, "cannot look at", name);
		type = S_ISSOCK(st.st_mode)  ? DT_SOCK
		       : S_ISDIR(st.st_mode) ? DT_DIR
					     : DT_REG;
	}
	if (type == DT_SOCK)
		return stop(s, "a socket:", name);
	return type == DT_DIR && look_into(s, dir, name);
}

static bool look_into(struct search *s, int dir, const char *name)
{
	if (s->depth >= DEPTH_MAX)
		return stop(s, "directories are too deep at", name);
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	bool is_found = false;

	if (!d) {
		bool is_gone = fd < 0 && errno == ENOENT;
		if (fd >= 0)
			close(fd);
		return !is_gone && stop(s, "cannot look into", name);
	}
	s->depth++;
	for (struct dirent *e; !is_found && (errno = 0, e = readdir(d));) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		is_found = ++s->n > ENTRIES_MAX
				   ? stop(s, "too many files to look at all in", name)
				   : look_at(s, dirfd(d), e->d_name, e->d_type);
	}
	if (!is_found && errno)
		is_found = stop(s, "cannot look into", name);
	s->depth--;
	(void)closedir(d);
	return is_found;
}

bool forge_find_input_socket(const struct forge_strv *paths,
			     char text[FORGE_INPUT_SOCKET_TEXT])
{
	struct search s = { .text = text };

	forge_strv_foreach (path, paths)
		if (look_at(&s, AT_FDCWD, path, DT_UNKNOWN))
			return true;
	return false;
}
