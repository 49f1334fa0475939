/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a file that the command looked for and did not find, by its standard error. The
 * run wrote that text, so it is untrusted: only the end of the log is searched, and a
 * name counts only if it is relative, stays below the current directory, and has only
 * plain characters.
 */
#include "run/advise.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"

#define TAIL_BYTES 4096

/* Reads the last whole lines of the log. Returns the length, 0: nothing to read. */
static size_t read_tail(int run_dir, char text[TAIL_BYTES + 1])
{
	forge_auto_close int fd =
		openat(run_dir, "stderr",
		       O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
	ssize_t n = pread(fd, text, TAIL_BYTES, from);
	size_t len = n > 0 ? (size_t)n : 0;
	if (from > 0) {
		const char *end = memchr(text, '\n', len);
		size_t skip = end ? (size_t)(end + 1 - text) : len;
		memmove(text, text + skip, len - skip);
		len -= skip;
	}
	text[len] = '\0';
	return len;
}

/* R has typographic quotes in some languages: U+2018 and U+2019 become an apostrophe. */
static void make_plain(char *line)
{
	char *to = line;

	while (*line) {
		bool is_quote = strncmp(line, "\xe2\x80\x98", 3) == 0 ||
				strncmp(line, "\xe2\x80\x99", 3) == 0;
		*to++ = is_quote ? '\'' : *line;
		line += is_quote ? 3 : 1;
	}
	*to = '\0';
}

/* Whether a user could type the name as it is, also in a shell. */
static bool is_plain(const char *name)
{
	if (!*name || *name == '/' || *name == '-' || *name == '~' ||
	    strlen(name) >= PATH_MAX || strstr(name, ".."))
		return false;
	for (const char *p = name; *p; p++) {
		unsigned char c = (unsigned char)*p;
		if (c <= ' ' || c == 0x7f || strchr("\"'`$\\&|;<>()[]{}*?!#~", c))
			return false;
	}
	for (const char *p = name;; p++) {
		size_t len = strcspn(p, "/");
		if (len == 0 || (len == 1 && *p == '.'))
			return false;
		p += len;
		if (!*p)
			return true;
	}
}

/*
 * Whether the file exists here. No link is followed, and no other file system entered:
 * its server may not answer, and the run is over. Without openat2 the answer is no.
 */
static bool is_here(const char *name, bool *ret_is_dir)
{
	forge_auto_close int fd =
		sys_openat2(AT_FDCWD, name, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0,
			    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
				    RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	*ret_is_dir = S_ISDIR(st.st_mode);
	return S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
}

static bool is_unseen(const struct forge_spec *s, const char *name)
{
	forge_auto_free char *cwd = getcwd(NULL, 0);
	forge_auto_free char *path = cwd ? forge_asprintf("%s/%s", cwd, name) : NULL;

	return path && !forge_advise_is_seen(s, path);
}

/* The first quoted name in this line that exists here and is not an input; NULL: none. */
static char *find_name(const struct forge_spec *s, char *line, bool *ret_is_dir)
{
	make_plain(line);
	for (char *p = line, *end; (p = strpbrk(p, "'\"")); p = end) {
		end = strchr(p + 1, *p);
		if (!end)
			return NULL;
		*end++ = '\0';
		const char *name = strncmp(p + 1, "./", 2) == 0 ? p + 3 : p + 1;
		if (is_plain(name) && is_here(name, ret_is_dir) && is_unseen(s, name))
			return strdup(name);
	}
	return NULL;
}

char *forge_advise_log(const struct forge_spec *s, int run_dir, bool *ret_is_dir)
{
	char text[TAIL_BYTES + 1], *found = NULL;
	size_t len = read_tail(run_dir, text);

	for (char *line = text, *next; line < text + len; line = next) {
		char *end = memchr(line, '\n', (size_t)(text + len - line));
		next = end ? end + 1 : text + len;
		if (end)
			*end = '\0';
		/* The last message counts. C, Python, R and Julia all print this text. */
		if (!strstr(line, "No such file or directory"))
			continue;
		char *name = find_name(s, line, ret_is_dir);
		if (!name)
			continue;
		free(found);
		found = name;
	}
	return found;
}
