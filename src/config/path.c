/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text: nothing here accesses the file system or depends on its state. */
#include "config/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

/* Appends the components of path to out, which has room and never ends in '/'. */
static size_t append_components(char *out, size_t n, const char *path)
{
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && memcmp(path, "..", 2) == 0) {
			while (n > 0 && out[--n] != '/')
				;
		} else if (len > 0 && !(len == 1 && *path == '.')) {
			out[n++] = '/';
			memcpy(out + n, path, len);
			n += len;
		}
		path += len;
		path += *path == '/';
	}
	return n;
}

char *forge_path_absolute(const char *base, const char *path)
{
	forge_auto_free char *cwd = NULL;
	const char *parts[3] = { "", "", path };
	size_t size = sizeof("/") + 3, n = 0;

	if (*path != '/') {
		parts[1] = base ? base : "";
		if (parts[1][0] != '/') {
			cwd = getcwd(NULL, 0);
			if (!cwd)
				return NULL;
			parts[0] = cwd;
		}
	}
	for (size_t i = 0; i < 3; i++)
		size += strlen(parts[i]);
	char *out = malloc(size);
	if (!out) {
		errno = ENOMEM;
		return NULL;
	}
	for (size_t i = 0; i < 3; i++)
		n = append_components(out, n, parts[i]);
	if (n == 0)
		out[n++] = '/';
	out[n] = '\0';
	return out;
}
