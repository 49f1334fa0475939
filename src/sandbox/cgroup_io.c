/* SPDX-License-Identifier: Apache-2.0 */
/* The I/O rate of a group, in the formats of v2 and of v1. */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

/* In each file a line begins with "major:minor"; `none` after it removes the limit of that disk. */
static const struct {
	bool is_v2;
	const char *file, *none;
} files[] = {
	{ true, "io.max", "rbps=max wbps=max" },
	{ false, "blkio.throttle.read_bps_device", "0" },
	{ false, "blkio.throttle.write_bps_device", "0" },
};

int forge_cgroup_limit_io(struct forge_cgroup *cg, int dir, bool is_v2,
			  struct forge_error *err)
{
	const struct forge_blockdev *d = &cg->io_disk;
	uint64_t rate = cg->limits.io_bytes_per_second;
	char text[96];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files); i++) {
		if (files[i].is_v2 != is_v2)
			continue;
		if (is_v2)
			(void)snprintf(text, sizeof(text),
				       "%u:%u rbps=%" PRIu64 " wbps=%" PRIu64, d->major,
				       d->minor, rate, rate);
		else
			(void)snprintf(text, sizeof(text), "%u:%u %" PRIu64, d->major,
				       d->minor, rate);
		int rc = forge_write_at(dir, files[i].file, text);
		if (rc == -ENOENT)
			return forge_hint(
				err,
				forge_fail(err, ENOENT,
					   "io_rate: this kernel has no %s, so %s "
					   "cannot be limited",
					   files[i].file, d->name),
				"Run without --io-rate, or on a kernel with "
				"CONFIG_BLK_DEV_THROTTLING, or name io in "
				"sandbox.allow_missing");
		if (rc < 0)
			return forge_hint(
				err,
				forge_fail_errno(err, -rc,
						 "io_rate: write '%s' for disk %s to %s",
						 text, d->name, files[i].file),
				"Run without --io-rate, or name io in "
				"sandbox.allow_missing");
	}
	cg->has_io = true;
	return 0;
}

void forge_cgroup_release_io_dir(int dir)
{
	char text[4096], line[64];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files); i++) {
		if (forge_read_at(dir, files[i].file, text, sizeof(text)) <= 0)
			continue;
		for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
			(void)snprintf(line, sizeof(line), "%.*s %s",
				       (int)strcspn(p, " \n"), p, files[i].none);
			/* This may fail for a disk that is gone, which no process waits for. */
			(void)!forge_write_at(dir, files[i].file, line);
		}
	}
}

void forge_cgroup_release_io(struct forge_cgroup *cg)
{
	if (cg->has_io)
		forge_cgroup_release_io_dir(cg->blkio_fd >= 0 ? cg->blkio_fd : cg->v2_fd);
	cg->has_io = false;
}
