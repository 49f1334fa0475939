/* SPDX-License-Identifier: Apache-2.0 */
/* Takes over the slot of a dead supervisor. */
#include "run/resume.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "record/deliver.h"
#include "record/record.h"
#include "run/carry_out.h"
#include "run/health_env.h"
#include "run/postprocess.h"
#include "run/signals.h"
#include "spec/saved.h"
#include "state/slot.h"

/* As the run was started: in the same directory, with the same file. */
static int load_config(const json_t *saved, struct forge_config **ret,
		       struct forge_error *err)
{
	const char *cwd = forge_json_string(saved, "cwd");
	const char *file = forge_json_string(saved, "config");
	forge_auto_free char *dir = cwd ? forge_json_name_decode(cwd) : NULL;
	forge_auto_free char *path = file ? forge_json_name_decode(file) : NULL;

	if (dir)
		(void)!chdir(dir); /* gone: relative paths were resolved before */
	if (path && forge_config_load(path, ret, NULL) == 0)
		return 0;
	/* The file is gone or wrong by now: the run has its limits, and is collected all the same. */
	return forge_config_parse("", 0, "defaults", "/", ret, err);
}

static int resume(struct forge_home *home, struct forge_slot *slot, const json_t *content,
		  bool only_looks, struct forge_error *err)
{
	const json_t *saved = json_object_get(content, "saved");
	forge_auto_config struct forge_config *cfg = NULL;
	forge_auto_spec struct forge_spec spec = { 0 };
	struct forge_run_request req;
	int rc = load_config(saved, &cfg, err);

	if (rc == 0)
		rc = forge_saved_restore(saved, cfg, &spec, &req, err);
	if (rc < 0)
		return rc;
	const struct forge_ready_run ready = {
		.cfg = cfg,
		.req = &req,
		.spec = &spec,
		.home = home,
		.store = forge_json_string_or(content, "store", ""),
		.post_process = forge_post_process_of,
		.check_env = forge_health_env,
	};
	return forge_carry_on(&ready, slot, content, only_looks, err);
}

/* A supervisor may have been killed between the verdict and the end of its clean-up. */
static int check_verdict(const struct forge_home *home, const json_t *content,
			 struct forge_error *err)
{
	json_t *verdict = NULL;
	int rc = forge_load_verdict(home, forge_json_string_or(content, "run_id", ""),
				    &verdict, err);
	bool has_verdict = verdict != NULL;

	json_decref(verdict);
	return rc < 0	     ? rc
	       : has_verdict ? forge_fail(err, EALREADY, "the run has its verdict")
			     : 0;
}

int forge_resume(unsigned number, bool only_looks, void (*on_taken)(void *arg), void *arg,
		 struct forge_error *err)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	struct forge_slot slot = FORGE_SLOT_INIT;
	struct forge_signals before;
	json_t *content = NULL;
	int rc = forge_home_open(false, &home, err);

	/* From the moment that the slot names this process, forge kill may signal it. */
	forge_signals_catch(&before);
	if (rc == 0)
		rc = forge_slot_take_over(&home, number, &slot, &content, err);
	if (rc == 0) {
		on_taken(arg);
		rc = check_verdict(&home, content, err);
	}
	if (rc == 0)
		rc = resume(&home, &slot, content, only_looks, err);
	forge_slot_release(&slot);
	json_decref(content);
	forge_signals_release(&before);
	return rc;
}
