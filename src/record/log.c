/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the logs of a run, wherever they are. */
#include "record/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "executor/executor.h"
#include "record/foreign.h"
#include "record/view.h"

static int open_own(const struct forge_home *home, const json_t *record, const char *name,
		    struct forge_error *err)
{
	const char *run_id = forge_json_string(record, "run_id");
	forge_auto_close int dir = forge_home_open_run(home, run_id);
	forge_auto_close int fd = dir < 0 ? dir
					  : openat(dir, name,
						   O_RDONLY | O_NONBLOCK | O_NOCTTY |
							   O_CLOEXEC | O_NOFOLLOW);
	int rc = dir < 0 ? dir : fd < 0 ? -errno : 0;
	struct stat st;

	if (rc == 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		return forge_fail(err, EINVAL, "the log of run %s is no regular file",
				  run_id);
	if (rc == 0)
		return forge_take_fd(fd);
	if (!forge_record_is_here(record))
		return forge_fail(err, EREMOTE, "the logs of run %s are on host %s",
				  run_id, forge_json_string(record, "host"));
	if (dir == -ENOENT)
		return forge_foreign_fail(record, "logs", ENOENT, err);
	/* Of a run that a power cut took, one log may be on the disk and the other not. */
	if (rc == -ENOENT && json_is_true(json_object_get(record, "is_remains")) &&
	    !json_is_true(json_object_get(record, "logs_removed"))) {
		int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return none < 0 ? forge_fail_errno(err, errno, "open /dev/null") : none;
	}
	if (json_is_true(json_object_get(record, "logs_removed")) || rc == -ENOENT)
		return forge_fail(err, ENOENT,
				  "the logs of run %s were removed by forge gc", run_id);
	return forge_fail_errno(err, -rc, "open the log of run %s", run_id);
}

int forge_log_open(const struct forge_home *home, const struct forge_home *theirs,
		   const json_t *record, const char *name, struct forge_error *err)
{
	if (!theirs)
		return open_own(home, record, name, err);
	int fd = forge_foreign_open_log(theirs, record, name);
	return fd < 0 ? forge_foreign_fail(record, "logs", -fd, err) : fd;
}

int forge_log_open_remote(const json_t *slot, const char *name)
{
	const char *dir = forge_run_log_dir(slot);
	forge_auto_close int fd =
		dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;

	forge_auto_close int log =
		fd < 0 ? -1
		       : openat(fd, name,
				O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	return log >= 0 && fstat(log, &st) == 0 && S_ISREG(st.st_mode) ? forge_take_fd(log)
								      : -1;
}
