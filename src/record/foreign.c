/* SPDX-License-Identifier: Apache-2.0 */
/* Opens another FORGE_HOME, or says whose it is and why it cannot be opened. */
#include "record/foreign.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "record/record.h"

const char *forge_foreign_home(const json_t *record)
{
	const char *home =
		forge_json_string(json_object_get(record, "supervisor"), "home");

	return home && *home == '/' ? home : NULL;
}

bool forge_foreign_is(const struct forge_home *ours, const json_t *record)
{
	const char *home = forge_foreign_home(record);

	if (!home || strcmp(home, ours->path) == 0)
		return false;
	/* Looks for the run's directory: links can give a home more than one name. */
	forge_auto_close int dir =
		forge_home_open_run(ours, forge_json_string_or(record, "run_id", "?"));
	return dir < 0;
}

static bool is_on_this_host(const json_t *record)
{
	char host[256] = "";

	(void)gethostname(host, sizeof(host) - 1); /* "" matches no host */
	return strcmp(host, forge_json_string_or(record, "host", "?")) == 0;
}

int forge_foreign_fail(const json_t *record, const char *what, int code,
		       struct forge_error *err)
{
	const char *run_id = forge_json_string_or(record, "run_id", "?"),
		   *owner = forge_json_string_or(record, "user", "?");
	const char *home = forge_foreign_home(record);
	char user[FORGE_USER_MAX];
	bool is_mine = strcmp(owner, forge_user_name(user)) == 0;

	if (!home)
		return forge_fail(err, code, "run %s is not of this FORGE_HOME", run_id);
	if (code == EREMOTE)
		return forge_hint(err,
				  forge_fail(err, code, "the %s of run %s are on host %s",
					     what, run_id,
					     forge_json_string_or(record, "host", "?")),
				  "They are %s's, in %s", owner, home);
	if (code != EACCES)
		return forge_hint(
			err,
			forge_fail_errno(err, code, "the %s of run %s", what, run_id),
			"They are %s's, in %s", owner, home);
	forge_fail(err, code,
		   "the %s of run %s are %s's: kept in the owner's FORGE_HOME, %s, not "
		   "readable to you",
		   what, run_id, owner, home);
	return is_mine ? -code
		       : forge_hint(err, -code,
				    "%s can share them with a group: chmod g+rx %s "
				    "(docs/TEAM.md)",
				    owner, home);
}

/* Rows can name any directory: it is used only if it belongs to the owner of the run. */
static int check_owner(int fd, const json_t *record, mode_t kind)
{
	const json_t *uid = json_object_get(json_object_get(record, "supervisor"), "uid");
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return json_is_integer(uid) && (json_int_t)st.st_uid == json_integer_value(uid) &&
			       (st.st_mode & S_IFMT) == kind
		       ? 0
		       : -EPERM;
}

int forge_foreign_open(const json_t *record, const char *what, struct forge_home *ret,
		       struct forge_error *err)
{
	struct forge_home h = FORGE_HOME_INIT;
	const char *home = forge_foreign_home(record);
	int rc = 0;

	if (!home || !is_on_this_host(record))
		return forge_foreign_fail(record, what, EREMOTE, err);
	h.path = strdup(home);
	if (!h.path)
		return forge_fail(err, ENOMEM, "out of memory");
	rc = h.fd = forge_open_nolink(home, O_PATH | O_DIRECTORY);
	if (rc >= 0)
		rc = check_owner(h.fd, record, S_IFDIR);
	if (rc >= 0) {
		h.runs_fd = openat(h.fd, "runs",
				   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		rc = h.runs_fd < 0 ? -errno : 0;
	}
	if (rc < 0) {
		forge_home_close(&h);
		return forge_foreign_fail(record, what, -rc, err);
	}
	*ret = h;
	return 0;
}

int forge_foreign_open_log(const struct forge_home *theirs, const json_t *record,
			   const char *name)
{
	forge_auto_close int dir =
		forge_home_open_run(theirs, forge_json_string_or(record, "run_id", "?"));
	if (dir < 0)
		return dir;
	forge_auto_close int fd = openat(
		dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int rc = check_owner(fd, record, S_IFREG);
	return rc < 0 ? rc : forge_take_fd(fd);
}
