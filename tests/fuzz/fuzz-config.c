/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as forge.yaml: refused with a message, or a configuration that keeps its
 * rules. */
#include "fuzz.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/yaml.h"
#include "config/config.h"
#include "runtime/pyjson.h"

static void check_profiles(const struct forge_config *c)
{
	const struct forge_profile *p;

	assert(c->n_profiles >= 4);
	assert(forge_config_profile(c, NULL, &p, NULL) == 0);
	for (size_t i = 0; i < c->n_profiles; i++) {
		const struct forge_limits *l = &c->profiles[i].limits;

		assert(forge_parse_id(c->profiles[i].name, NULL) == 0);
		assert(forge_limits_check(l, &c->caps, c->allow_unlimited, NULL) == 0);
		assert(l->grace_usec != FORGE_UNLIMITED);
		for (size_t j = 0; j < FORGE_LIMIT_COUNT_ROWS; j++)
			assert(forge_limit_value(l, &forge_limit_rows[j]) != 0);
	}
}

static void check_paths(const struct forge_config *c)
{
	assert(c->workdir[0] == '/' && strchr(c->workdir, '{') &&
	       !strstr(c->workdir, "/../"));
	forge_strv_foreach (path, &c->read_only)
		assert(path[0] == '/' && path[1] && !strstr(path, "//") &&
		       !strstr(path, "/../"));
}

/* The same bytes as files of others: condarc, and conda's JSON. */
static void check_foreign(const char *data, size_t size)
{
	forge_auto_yaml struct forge_yaml *yaml = NULL;
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *json = NULL;
	char *text = NULL;

	assert(forge_yaml_parse_any(data, size, "fuzz", &yaml, &err) == 0 || err.msg[0]);
	if (forge_pyjson_load(data, size, &json) == 0 &&
	    forge_pyjson_str(json, &text) == 0)
		assert(text);
	free(text);
	json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	forge_auto_config struct forge_config *c = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	check_foreign((const char *)data, size);
	int rc = forge_config_parse((const char *)data, size, "fuzz", "/base", &c, &err);

	if (rc < 0) {
		assert(!c && err.code == -rc && err.msg[0]);
		return 0;
	}
	assert(c && err.code == 0 && !err.msg[0]);
	assert(c->uid_base >= 65536 && c->uid_count >= 1);
	assert((uint64_t)c->uid_base + c->uid_count - 1 <= INT32_MAX);
	check_profiles(c);
	check_paths(c);
	return 0;
}
