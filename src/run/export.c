/* SPDX-License-Identifier: Apache-2.0 */
/* Names come from a run, so they are walked part by part. */
#include "run/export.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "run/objects.h"

/* Opens the directory of path below top, making what is missing; *ret_name is the last part. */
static int open_parent(int top, const char *path, const char **ret_name)
{
	int dir = fcntl(top, F_DUPFD_CLOEXEC, 0);

	while (dir >= 0) {
		char part[NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		if (len == 0 || len > NAME_MAX ||
		    (len <= 2 && strncmp(path, "..", len) == 0)) {
			close(dir);
			return -EINVAL;
		}
		if (!path[len]) {
			*ret_name = path;
			return dir;
		}
		memcpy(part, path, len);
		part[len] = '\0';
		path += len + 1;
		int next =
			mkdirat(dir, part, 0777) < 0 && errno != EEXIST
				? -1
				: openat(dir, part,
					 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int code = errno;
		close(dir);
		if (next < 0)
			return -code;
		dir = next;
	}
	return -errno;
}

static int export_one(const struct forge_home *home, int top, const json_t *output)
{
	const char *path = json_string_value(json_object_get(output, "path"));
	const char *wanted = json_string_value(json_object_get(output, "sha256"));
	const char *name = NULL;
	char stored[FORGE_STORED_MAX], digest[FORGE_DIGEST_MAX];
	uint64_t size;

	/* A store that others write too says where nothing is. */
	if (!path || !forge_objects_is_digest(wanted))
		return -EINVAL;
	forge_auto_close int from = openat(home->fd, forge_objects_path(stored, wanted),
					   O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0)
		return -errno;
	forge_auto_close int dir = open_parent(top, path, &name);
	if (dir < 0)
		return dir;
	forge_auto_close int to = openat(
		dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (to < 0)
		return -errno;
	bool is_cloned = ioctl(to, FICLONE, from) == 0;
	int rc = forge_sha256_fd(from, is_cloned ? -1 : to, digest, &size);
	if (rc == 0 && strcmp(digest, wanted) != 0)
		rc = -EUCLEAN;
	if (rc < 0)
		(void)unlinkat(dir, name, 0); /* half of it, or not what it should be */
	return rc;
}

int forge_export_outputs(const struct forge_home *home, const json_t *record,
			 const char *to, struct forge_error *err)
{
	size_t i;
	const json_t *output;
	int n = 0;

	if (mkdir(to, 0777) < 0 && errno != EEXIST)
		return forge_fail_errno(err, errno, "make %s", to);
	forge_auto_close int top = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return forge_fail_errno(err, errno, "open %s", to);
	json_array_foreach (json_object_get(record, "outputs"), i, output) {
		int rc = export_one(home, top, output);
		if (rc == -EUCLEAN)
			return forge_fail(
				err, EUCLEAN,
				"output %s is damaged: its digest is another",
				json_string_value(json_object_get(output, "path")));
		if (rc < 0)
			return forge_fail_errno(
				err, -rc, "output %s",
				json_string_value(json_object_get(output, "path")));
		n++;
	}
	return n;
}
