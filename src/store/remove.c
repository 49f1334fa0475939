/* SPDX-License-Identifier: Apache-2.0 */
/* Deletes runs that their users removed. */
#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/strv.h"
#include "store/backend.h"

/* Deletes the analysis of the run when it has no other run. */
#define SQL_NAMELESS                                                                     \
	("DELETE FROM analyses WHERE analysis_id = $1 AND NOT EXISTS (SELECT 1 FROM "    \
	 "runs WHERE analysis_id = $1)")

/* Rows that refer to a run are deleted before the run. */
static const char *const REMOVALS[] = {
	"DELETE FROM run_events WHERE run_id = $1",
	"DELETE FROM inputs WHERE run_id = $1",
	"DELETE FROM outputs WHERE run_id = $1",
	"DELETE FROM post_process_records WHERE run_id = $1",
	"DELETE FROM health_checks WHERE run_id = $1",
	"DELETE FROM runs WHERE run_id = $1",
	SQL_NAMELESS,
};

static int remove_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const char *run_id = arg;
	int rc = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(REMOVALS) && rc >= 0; i++)
		rc = forge_sql(st, err, NULL, NULL, REMOVALS[i], SQL_TEXT(run_id));
	return rc < 0 ? rc : 0;
}

int forge_store_remove(struct forge_store *st, const char *run_id,
		       struct forge_error *err)
{
	return forge_store_transact(st, true, remove_work, run_id, err);
}

struct drop {
	const char *run_id, *text;
	const json_t *record;
};

static int drop_work(struct forge_store *st, const void *arg, struct forge_error *err)
{
	const struct drop *d = arg;
	int rc = forge_sql(st, err, NULL, NULL, "DELETE FROM outputs WHERE run_id = $1",
			   SQL_TEXT(d->run_id));

	if (rc >= 0)
		rc = forge_store_insert_outputs(st, d->run_id, d->record, err);
	if (rc >= 0)
		rc = forge_sql(st, err, NULL, NULL,
			       "UPDATE runs SET record = $1 WHERE run_id = $2",
			       SQL_TEXT(d->text), SQL_TEXT(d->run_id));
	return rc < 0 ? rc : 0;
}

int forge_store_drop_outputs(struct forge_store *st, const char *run_id,
			     const json_t *record, struct forge_error *err)
{
	forge_auto_free char *text =
		json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
	const struct drop d = { run_id, text, record };

	return text ? forge_store_transact(st, true, drop_work, &d, err)
		    : forge_fail(err, ENOMEM, "out of memory");
}

int forge_store_has_object(struct forge_store *st, const char *digest,
			   struct forge_error *err)
{
	int rc = forge_sql(st, err, NULL, NULL,
			   "SELECT 1 FROM outputs WHERE sha256 = $1 LIMIT 1",
			   SQL_TEXT(digest));

	return rc < 0 ? rc : rc > 0;
}
