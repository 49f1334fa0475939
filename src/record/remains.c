/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a record of nothing but the id and the logs of a run. */
#include "record/remains.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "config-build.h"
#include "record/adopt.h"
#include "record/record.h"

json_t *forge_record_of_remains(const struct forge_home *home, const char *run_id)
{
	char host[256] = "", user[FORGE_USER_MAX], when[FORGE_TIME_MAX];
	time_t created = (time_t)(forge_run_id_msec(run_id) / 1000);

	(void)gethostname(host, sizeof(host) - 1); /* "" will do */
	return json_pack(
		"{s:s, s:s, s:n, s:n, s:n, s:n, s:n, s:[], s:s, s:o, s:o, s:s, s:n, s:n, "
		"s:n, s:{}, s:{}, s:[], s:[], s:o, s:n, s:n, s:i, s:b, s:s}",
		"run_id", run_id, "analysis_id", run_id, "status", "reason",
		"completion_notes", "exit_code", "signal", "command", "executor", "local",
		"host", forge_json_text(host), "user",
		forge_json_text(forge_user_name(user)), "created_at",
		forge_format_time(when, created), "started_at", "ended_at", "runtime",
		"limits", "usage", "inputs", "outputs", "logs",
		forge_record_logs(home, run_id), "workdir", "parent_run", "attempt", 1,
		"is_remains", 1, "forge_version", FORGE_VERSION);
}
