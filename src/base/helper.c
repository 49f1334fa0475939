/* SPDX-License-Identifier: Apache-2.0 */
/* Finds helper programs. */
#include "base/helper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "config-build.h"

int forge_helper_find(const char *name, const char *in_build, char ret[PATH_MAX],
		      struct forge_error *err)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *const places[] = { "../libexec/forge", ".", in_build };

	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(places) && n > 0; i++) {
		forge_auto_free char *path =
			forge_asprintf("%s/%s/%s", self, places[i], name);
		if (path && access(path, X_OK) == 0 && realpath(path, ret))
			return 0;
	}
	forge_auto_free char *path = forge_asprintf("%s/%s", FORGE_LIBEXECDIR, name);
	if (path && access(path, X_OK) == 0 && realpath(path, ret))
		return 0;
	return forge_hint(err, forge_fail(err, ENOENT, "%s is not installed", name),
			  "It belongs in %s", FORGE_LIBEXECDIR);
}
