/* SPDX-License-Identifier: Apache-2.0 */
/* forge.yaml from memory: values, defaults, and errors with their places. */
#include "unit.h"

#include "config/config.h"
#include "torture.h"

#define GIB (UINT64_C(1) << 30)
#define MIN (UINT64_C(60) * 1000000)

static struct forge_config *parse_ok(const char *text)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct forge_config *c = NULL;

	if (forge_config_parse(text, strlen(text), "t.yaml", "/base/dir", &c, &err) != 0)
		fail_msg("refused: %u:%u: %s", err.line, err.column, err.msg);
	assert_untouched(err);
	return c;
}

static void refused(const char *text, unsigned line, unsigned column, const char *part)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_config *c = NULL;

	if (forge_config_parse(text, strlen(text), "t.yaml", "/base", &c, &err) !=
	    -EINVAL)
		fail_msg("not refused: %s", text);
	assert_null(c);
	assert_contains(err.msg, part);
	assert_string_equal(err.file, "t.yaml");
	if (err.line != line || err.column != column)
		fail_msg("%s: at %u:%u, not %u:%u", err.msg, err.line, err.column, line,
			 column);
	assert_int_equal(forge_config_parse(text, strlen(text), "t", "/", &c, NULL),
			 -EINVAL);
}

static const struct forge_limits *limits(const struct forge_config *c, const char *name)
{
	const struct forge_profile *p = NULL;
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	assert_int_equal(forge_config_profile(c, name, &p, &err), 0);
	assert_untouched(err);
	return &p->limits;
}

static void an_empty_file_gives_the_built_in_values(void **state)
{
	forge_auto_config struct forge_config *c = parse_ok("");

	(void)state;
	assert_null(c->path);
	assert_string_equal(c->workdir, "/tmp/scidex-analysis-{id}");
	assert_int_equal(c->read_only.n, 0);
	assert_int_equal(c->n_profiles, 4);
	assert_true(limits(c, NULL)->memory_bytes == 2 * GIB);
	assert_true(limits(c, "default")->wall_usec == 30 * MIN);
	assert_true(limits(c, "default")->pids == 100);
	assert_true(limits(c, "notebook")->memory_bytes == 2 * GIB);
	assert_true(limits(c, "notebook")->wall_usec == 10 * MIN);
	assert_true(limits(c, "notebook")->pids == 100);
	assert_true(limits(c, "tool")->memory_bytes == GIB);
	assert_true(limits(c, "tool")->wall_usec == 10 * MIN);
	assert_true(limits(c, "tool")->cpus_milli == 1000);
	assert_true(limits(c, "post_process")->memory_bytes == GIB);
	assert_true(limits(c, "post_process")->wall_usec == 5 * MIN);
	assert_true(c->caps.memory_bytes == 0);
	assert_false(c->allow_unlimited);
	assert_int_equal(c->allow_missing, 0);
	assert_int_equal(c->cgroup, FORGE_CGROUP_AUTO);
	assert_true(c->tmp_bytes == 0 && c->shm_bytes == 0);
	assert_int_equal(c->uid_base, 1879048192);
	assert_int_equal(c->uid_count, 65536);
	assert_int_equal(c->env_pass.n, 4);
	assert_string_equal(c->env_pass.v[2], "LC_*");
	assert_int_equal(c->env_set.n, 0);
}

static const char every_key[] =
	"version: 1\n"
	"workdir: /scratch//forge/./{id}/{run_id}/\n"
	"read_only: [data, ../docs, /ref/./a//b/../c/, data/]\n"
	"profiles:\n"
	"  default: {memory: 4G, cpus: 2.5}\n"
	"  notebook: {timeout: 1h}\n"
	"  big: {memory: 7G, cpu_time: 3h, output_limit: 1M, open_files: 99, grace: 1s,\n"
	"        disk: 1T, inodes: 5, pids: 6, io_rate: 20M}\n"
	"host:\n"
	"  max: {memory: 8G, cpus: 4, pids: unlimited}\n"
	"  allow_unlimited: true\n"
	"sandbox:\n"
	"  allow_missing: [landlock_scope, cpu_time, cpu_time, io]\n"
	"  cgroup: systemd\n"
	"  tmp_size: 256M\n"
	"  shm_size: 1G\n"
	"  uid_base: 200000\n"
	"  uid_count: 1000\n"
	"env:\n"
	"  pass: [LANG, MY_*]\n"
	"  set: {OMP_NUM_THREADS: 1, EMPTY: , Q: 'a=b c'}\n";

static void every_key_is_stored(void **state)
{
	forge_auto_config struct forge_config *c = parse_ok(every_key);

	(void)state;
	assert_string_equal(c->workdir, "/scratch/forge/{id}/{run_id}");
	assert_int_equal(c->read_only.n, 3);
	assert_string_equal(c->read_only.v[0], "/base/dir/data");
	assert_string_equal(c->read_only.v[1], "/base/docs");
	assert_string_equal(c->read_only.v[2], "/ref/a/c");
	assert_true(c->caps.memory_bytes == 8 * GIB && c->caps.cpus_milli == 4000);
	assert_true(c->caps.pids == 0);
	assert_true(c->allow_unlimited);
	assert_int_equal(c->allow_missing,
			 1u << FORGE_MECH_LANDLOCK_SCOPE | 1u << FORGE_MECH_CPU_TIME |
				 1u << FORGE_MECH_IO);
	assert_int_equal(c->cgroup, FORGE_CGROUP_SYSTEMD);
	assert_true(c->tmp_bytes == GIB / 4 && c->shm_bytes == GIB);
	assert_int_equal(c->uid_base, 200000);
	assert_int_equal(c->uid_count, 1000);
	assert_int_equal(c->env_pass.n, 2);
	assert_string_equal(c->env_pass.v[1], "MY_*");
	assert_string_equal(forge_strv_getenv(&c->env_set, "OMP_NUM_THREADS"), "1");
	assert_string_equal(forge_strv_getenv(&c->env_set, "EMPTY"), "");
	assert_string_equal(forge_strv_getenv(&c->env_set, "Q"), "a=b c");
}

static void profiles_inherit_from_the_file_s_default(void **state)
{
	forge_auto_config struct forge_config *c = parse_ok(every_key);

	(void)state;
	assert_int_equal(c->n_profiles, 5);
	assert_true(limits(c, NULL)->memory_bytes == 4 * GIB);
	assert_true(limits(c, "notebook")->memory_bytes == 2 * GIB); /* its own */
	assert_true(limits(c, "notebook")->cpus_milli == 2500);	     /* of default */
	assert_true(limits(c, "notebook")->wall_usec == 60 * MIN);
	assert_true(limits(c, "tool")->cpus_milli == 1000);
	assert_true(limits(c, "big")->memory_bytes == 7 * GIB);
	assert_true(limits(c, "big")->cpus_milli == 2500);
	assert_true(limits(c, "big")->wall_usec == 30 * MIN);
	assert_true(limits(c, "big")->open_files == 99);
	assert_true(limits(c, "big")->io_bytes_per_second == 20 << 20);
	assert_true(limits(c, "tool")->io_bytes_per_second == FORGE_UNLIMITED);
}

static void unknown_profiles_name_the_known(void **state)
{
	forge_auto_config struct forge_config *c = parse_ok("");
	const struct forge_profile *p = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	assert_int_equal(forge_config_profile(c, "noteboook", &p, &err), -ENOENT);
	assert_null(p);
	assert_string_equal(err.msg,
			    "unknown profile 'noteboook' (have: default, notebook, tool, "
			    "post_process); did you mean 'notebook'?");
	assert_int_equal(forge_config_profile(c, "gpu", &p, NULL), -ENOENT);
}

static void unknown_keys_name_the_known(void **state)
{
	(void)state;
	refused("version: 1\nprofils: {}\n", 2, 1,
		"unknown key 'profils' (have: version, workdir, read_only, runtime, runtimes, executor, executors, analysis, store, profiles, "
		"host, queue, outputs, post_process, retry, pipeline, sampling, health, guard, retention, "
		"sandbox, env); did you mean 'profiles'?");
	refused("sandbox: {cgruop: v2}\n", 1, 11,
		"sandbox: unknown key 'cgruop' (have: allow_missing, cgroup, tmp_size, "
		"shm_size, uid_base, uid_count); did you mean 'cgroup'?");
	refused("host: {maximum: {}}\n", 1, 8,
		"host: unknown key 'maximum' (have: max, allow_unlimited, scripts_network, budget)");
	refused("profiles:\n  default:\n    memroy: 2G\n", 3, 5,
		"profiles.default: unknown key 'memroy' (have: memory, cpus,");
	refused("host: {max: {cpu-time: 1h}}\n", 1, 14, "did you mean 'cpu_time'?");
	refused("host.max: {}\n", 1, 1, "unknown key 'host.max'");
	refused("sandbox: {'cgroup.x': 1}\n", 1, 11, "unknown key 'cgroup.x'");
}

/* The word of path at this depth is in the list of a message about an unknown key beside it. */
static void is_listed(const char *path, size_t begin)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_config *c = NULL;
	char text[256] = "", word[64];
	size_t len = begin + strcspn(path + begin, "."), n = 0;

	for (size_t i = 0; i < begin; i += strcspn(path + i, ".") + 1)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "{%.*s: ",
				      (int)strcspn(path + i, "."), path + i);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "{zzz: 1}");
	for (size_t i = 0; i < begin; i += strcspn(path + i, ".") + 1)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "}");
	assert_true(forge_config_parse(text, n, "test", "/", &c, &err) < 0);
	(void)snprintf(word, sizeof(word), " %.*s", (int)(len - begin), path + begin);
	for (const char *p = err.msg; (p = strstr(p, word)); p++)
		if (p[strlen(word)] == ',' || p[strlen(word)] == ')')
			return;
	fail_msg("%s: '%s' is not in: %s", text, word + 1, err.msg);
}

static void check_listed(const struct forge_config_key *key, void *arg)
{
	(void)arg;
	/* NAME stands for any word. */
	for (size_t i = 0; !strstr(key->path, "NAME"); i += strcspn(key->path + i, ".") + 1) {
		is_listed(key->path, i);
		if (!strchr(key->path + i, '.'))
			break;
	}
}

static void no_key_is_left_out_of_the_list(void **state)
{
	(void)state;
	forge_config_each_key(check_listed, NULL);
}

static void wrong_types_are_refused(void **state)
{
	(void)state;
	refused("word\n", 1, 1, "configuration: must be a map");
	refused("- 1\n", 1, 1, "configuration: must be a map");
	refused("host: 1\n", 1, 7, "host: must be a map");
	refused("host: {max: 1}\n", 1, 13, "host.max: must be a map of limits");
	refused("profiles: [a]\n", 1, 11, "profiles: must be a map of profile names");
	refused("profiles: {default: 2G}\n", 1, 21, "profiles.default: must be a map");
	refused("profiles: {default: {memory: [2G]}}\n", 1, 30, "must be one value");
	refused("read_only: data\n", 1, 12, "read_only: must be a list");
	refused("read_only: [[a]]\n", 1, 13, "read_only: must be one value, not a list");
	refused("workdir: {a: b}\n", 1, 10, "workdir: must be one value, not a map");
	refused("env: {set: [A]}\n", 1, 12, "env.set: must be a map");
	refused("env: {set: {A: [b]}}\n", 1, 16,
		"env.set: must be one value, not a list");
	refused("sandbox: {cgroup: [v2]}\n", 1, 19, "sandbox.cgroup: must be one value");
	refused("version: []\n", 1, 10, "version: must be one value");
	refused("sandbox: {tmp_size: {}}\n", 1, 21, "must be one value");
	refused("sandbox: {uid_base: {}}\n", 1, 21, "must be one value");
	refused("host: {allow_unlimited: []}\n", 1, 25, "must be one value");
	refused("sandbox: {allow_missing: swap}\n", 1, 26, "must be a list");
	refused("env: {pass: LANG}\n", 1, 13, "must be a list");
}

static void wrong_values_are_refused(void **state)
{
	(void)state;
	refused("version: 2\n", 1, 10, "version: '2' is not a version this forge reads");
	refused("profiles: {default: {memory: 2X}}\n", 1, 30,
		"profiles.default.memory: '2X' is not a size (write 512M, 2G, 2GiB or "
		"unlimited)");
	refused("profiles: {a: {grace: unlimited}}\n", 1, 23,
		"profiles.a.grace: 'unlimited' is");
	refused("profiles: {a: {timeout: }}\n", 1, 25, "'' is not a duration");
	refused("profiles: {a/b: {}}\n", 1, 12, "profiles: 'a/b' is not an id");
	refused("profiles: {..: {}}\n", 1, 12, "profiles: '..' is not an id");
	refused("host: {max: {pids: 0}}\n", 1, 20,
		"host.max.pids: '0' is not a whole number");
	refused("host: {allow_unlimited: yes}\n", 1, 25,
		"host.allow_unlimited: unknown value 'yes' (have: false, true)");
	refused("sandbox: {cgroup: v3}\n", 1, 19,
		"sandbox.cgroup: unknown value 'v3' (have: auto, v2, systemd, v1, none); "
		"did "
		"you mean 'v2'?");
	refused("sandbox: {allow_missing: [swap, seccomp]}\n", 1, 33,
		"sandbox.allow_missing: unknown value 'seccomp' (have: landlock, "
		"landlock_scope, memory, swap, cpus, pids, cpu_time, io)");
	refused("sandbox: {shm_size: unlimited}\n", 1, 21,
		"'unlimited' is never allowed here");
	refused("sandbox: {tmp_size: -1}\n", 1, 21,
		"sandbox.tmp_size: '-1' is not a size");
	refused("sampling: {interval: 99ms}\n", 1, 22,
		"sampling.interval: must be from 100ms to 1h, or off");
	refused("sampling: {interval: unlimited}\n", 1, 22,
		"sampling.interval: 'unlimited' is");
	refused("a: 1\na: 2\n", 2, 1, "duplicate key 'a'");
}

static void uids_stay_in_range(void **state)
{
	forge_auto_config struct forge_config *most =
		parse_ok("sandbox: {uid_base: 2147418112, uid_count: 65536}\n");

	(void)state;
	assert_int_equal(most->uid_base, 2147418112);
	refused("sandbox: {uid_base: 1000}\n", 1, 21,
		"sandbox.uid_base: '1000' is out of range (write 65536 to 2147483647)");
	refused("sandbox: {uid_base: 0}\n", 1, 21, "'0' is not a whole number");
	refused("sandbox: {uid_count: 0}\n", 1, 22, "'0' is not a whole number");
	refused("sandbox: {uid_base: unlimited}\n", 1, 21, "is out of range");
	refused("sandbox: {uid_base: 4294967296}\n", 1, 21, "is out of range");
	refused("sandbox: {uid_base: 99999999999999999999}\n", 1, 21, "is out of range");
	refused("sandbox: {uid_base: x}\n", 1, 21, "is not a whole number");
	refused("sandbox: {uid_base: 2147418113}\n", 1, 21,
		"with uid_count the last user id would be 2147483648");
	refused("sandbox: {uid_count: 2147483647}\n", 1, 22, "the last user id would be");
}

static void workdirs_are_checked(void **state)
{
	forge_auto_config struct forge_config *dots =
		parse_ok("workdir: /a/..b/{run_id}\n");

	(void)state;
	assert_string_equal(dots->workdir, "/a/..b/{run_id}");
	refused("workdir: tmp/{id}\n", 1, 10, "workdir: 'tmp/{id}' must be absolute");
	refused("workdir: /tmp/x\n", 1, 10, "must contain {id} or {run_id}");
	refused("workdir: /tmp/../{id}\n", 1, 10, "must not contain '..'");
	refused("workdir: /tmp/{id}/..\n", 1, 10, "must not contain '..'");
	refused("workdir: /tmp/{user}/{id}\n", 1, 10,
		"has an unknown {name} (have: {id}, {run_id})");
	refused("workdir: /tmp/{id\n", 1, 10, "has an unknown {name}");
	refused("workdir: /tmp/{id}}\n", 1, 10, "has a '}' without its '{'");
	refused("workdir:\n", 1, 9, "must be absolute");
}

static void read_only_roots_are_checked(void **state)
{
	forge_auto_config struct forge_config *up =
		parse_ok("read_only: [../../../../x]\n");

	(void)state;
	assert_string_equal(up->read_only.v[0], "/x");
	refused("read_only: [/]\n", 1, 13, "read_only: '/' is the whole file system");
	refused("read_only: [../../..]\n", 1, 13, "is the whole file system");
	refused("read_only: ['']\n", 1, 13, "a path must not be empty");
	refused("read_only: ['~/x']\n", 1, 13, "'~' has no meaning here");
}

static void relative_base_is_below_the_current_directory(void **state)
{
	forge_auto_config struct forge_config *c = NULL;
	forge_auto_free char *cwd = getcwd(NULL, 0);
	forge_auto_free char *want = forge_asprintf("%s/sub/data", cwd);

	(void)state;
	assert_int_equal(
		forge_config_parse("read_only: [data]", 17, "t", "./sub", &c, NULL), 0);
	assert_string_equal(c->read_only.v[0], want);
}

static void environment_is_checked(void **state)
{
	forge_auto_config struct forge_config *none = parse_ok("env: {pass: []}\n");

	(void)state;
	assert_int_equal(none->env_pass.n, 0);
	refused("env: {pass: [A-B]}\n", 1, 14, "env.pass: 'A-B' is not the name");
	refused("env: {pass: ['*']}\n", 1, 14, "env.pass: '*' is not the name");
	refused("env: {pass: ['A*B']}\n", 1, 14, "is not the name");
	refused("env: {pass: ['A**']}\n", 1, 14, "is not the name");
	refused("env: {pass: ['FORGE_*']}\n", 1, 14, "FORGE_ are reserved");
	refused("env: {set: {1A: x}}\n", 1, 13, "env.set: '1A' is not the name");
	refused("env: {set: {FORGE_X: x}}\n", 1, 13,
		"env.set: 'FORGE_X': names that begin");
}

static void caps_bind_what_the_file_says(void **state)
{
	(void)state;
	refused("profiles:\n  big: {memory: 4G}\nhost: {max: {memory: 2G}}\n", 2, 17,
		"profiles.big: memory: 4.00 GiB is more than this host allows: 2.00 GiB "
		"(host.max.memory)");
	refused("profiles: {big: {pids: unlimited}}\n", 1, 24,
		"pids: unlimited is not allowed on this host (host.allow_unlimited is "
		"false)");
	refused("profiles: {a: {cpu_time: unlimited}}\nhost: {max: {cpu_time: 1h}}\n", 1,
		26, "cpu-time: unlimited is more than this host allows: 1 h");
	forge_auto_config struct forge_config *fine =
		parse_ok("profiles: {a: {cpu_time: unlimited}}\n");
	assert_true(limits(fine, "a")->cpu_usec == FORGE_UNLIMITED);
}

static void built_in_values_give_way_to_caps(void **state)
{
	forge_auto_config struct forge_config *c =
		parse_ok("host: {max: {memory: 1536M, timeout: 7m, cpu_time: 1h}}\n"
			 "profiles: {mine: {pids: 5}}\n");

	(void)state;
	assert_true(limits(c, NULL)->memory_bytes == 3 * GIB / 2);
	assert_true(limits(c, NULL)->wall_usec == 7 * MIN);
	assert_true(limits(c, NULL)->cpu_usec == 60 * MIN);
	assert_true(limits(c, "tool")->memory_bytes == GIB);
	assert_true(limits(c, "tool")->wall_usec == 7 * MIN);
	assert_true(limits(c, "post_process")->wall_usec == 5 * MIN);
	assert_true(limits(c, "mine")->memory_bytes == 3 * GIB / 2);
	for (size_t i = 0; i < c->n_profiles; i++)
		assert_int_equal(
			forge_limits_check(&c->profiles[i].limits, &c->caps, false, NULL),
			0);
}

struct seen {
	const char *paths[256];
	size_t n;
};

static void see_key(const struct forge_config_key *key, void *arg)
{
	struct seen *seen = arg;

	assert_true(key->path && key->type && key->builtin && key->help);
	for (size_t i = 0; i < seen->n; i++)
		assert_string_not_equal(seen->paths[i], key->path);
	assert_true(seen->n < FORGE_ARRAY_SIZE(seen->paths));
	seen->paths[seen->n++] = key->path;
}

static void every_key_is_listed_once(void **state)
{
	struct seen seen = {0};

	(void)state;
	forge_config_each_key(see_key, &seen);
	assert_int_equal(seen.n, 6 + 13 + 4 + 9 + 2 * FORGE_LIMIT_COUNT_ROWS + 5 + 1 + 3 + 2 + 1 + 26 + 5 + 6 + 6 + 2 + 1);
	/* Callers may keep the paths. */
	assert_string_equal(seen.paths[0], "version");
	assert_string_equal(seen.paths[32], "profiles.NAME.memory");
	assert_string_equal(seen.paths[32 + FORGE_LIMIT_COUNT_ROWS], "host.max.memory");
	assert_string_equal(seen.paths[31 + 2 * FORGE_LIMIT_COUNT_ROWS], "host.max.grace");
	assert_string_equal(seen.paths[seen.n - 1], "env.set");
}

static void sampling_is_an_interval_or_off(void **state)
{
	forge_auto_config struct forge_config *def = parse_ok(""),
		*off = parse_ok("sampling: {interval: off}\n"),
		*some = parse_ok("sampling: {interval: 100ms}\n");

	(void)state;
	assert_int_equal(def->sample_usec, 2000000);
	assert_int_equal(off->sample_usec, 0);
	assert_int_equal(some->sample_usec, 100000);
}

static void results_of_others_are_not_for_a_project_to_choose(void **state)
{
	forge_auto_config struct forge_config *c =
		parse_ok("pipeline: {reuse_from: [/srv/forge/alice, /srv/forge/bob//]}\n");

	(void)state;
	assert_int_equal(c->reuse_from.n, 2);
	assert_string_equal(c->reuse_from.v[1], "/srv/forge/bob");
	refused("pipeline: {reuse_from: [srv/forge]}\n", 1, 25,
		"pipeline.reuse_from: 'srv/forge' is no absolute path of a FORGE_HOME");
	refused("pipeline: {reuse_from: [//]}\n", 1, 25, "is no absolute path");
	refused("pipeline: {reuse_from: /srv/forge}\n", 1, 24, "pipeline.reuse_from");
}

static void retries_are_rules_by_reason(void **state)
{
	forge_auto_config struct forge_config *c = parse_ok(
		"retry:\n  host_lost: {times: 2}\n  memory: {times: 3, factor: 1.5, max: 64G}\n"
		"  wall_time: {times: 1, max: 2h}\n");

	(void)state;
	assert_int_equal(c->retry.rules[FORGE_RETRY_HOST_LOST].times, 2);
	assert_int_equal(c->retry.rules[FORGE_RETRY_MEMORY].times, 3);
	assert_int_equal(c->retry.rules[FORGE_RETRY_MEMORY].factor_milli, 1500);
	assert_true(c->retry.rules[FORGE_RETRY_MEMORY].max == 64 * GIB);
	assert_true(c->retry.rules[FORGE_RETRY_WALL_TIME].max == 120 * MIN);
	assert_int_equal(c->retry.rules[FORGE_RETRY_EXIT].times, 0);
	refused("retry: 3\n", 1, 8, "retry: must be a map of reasons");
	refused("retry: {memory: 3}\n", 1, 17, "retry.memory: must be a map with times");
	refused("retry: {memory: {}}\n", 1, 17, "does not say how often (times)");
	refused("retry: {memory: {times: [1]}}\n", 1, 25, "must be one value");
	refused("retry: {memory: {times: 1, tims: 2}}\n", 1, 28,
		"retry.memory: unknown key 'tims' (have: times, factor, max); did you mean");
	refused("retry: {exit: {times: 1, max: 2}}\n", 1, 31, "no limit belongs to exit");
	refused("retry: {admission: {times: 1}}\n", 1, 9,
		"retry: another attempt does not cure 'admission' (have: host_lost, memory,");
	refused("retry: {mem: {times: 1}}\n", 1, 9, "retry: unknown reason 'mem'");
}

/* An inner file replaces the rules of an outer one, reason by reason. */
static void retries_of_an_inner_file_go_first(void **state)
{
	static const char outer[] = "retry: {memory: {times: 3, max: 4G}, exit: {times: 1}}";
	static const char inner[] = "retry: {memory: {times: 0}, signal: {times: 2}}";
	const struct forge_config_layer layers[] = {
		{ .text = outer, .len = sizeof(outer) - 1, .name = "outer" },
		{ .text = inner, .len = sizeof(inner) - 1, .name = "inner" },
	};
	forge_auto_config struct forge_config *c = NULL;

	(void)state;
	assert_int_equal(forge_config_parse_layers(layers, 2, &c, NULL), 0);
	assert_int_equal(c->retry.rules[FORGE_RETRY_MEMORY].times, 0);
	assert_int_equal(c->retry.rules[FORGE_RETRY_EXIT].times, 1);
	assert_int_equal(c->retry.rules[FORGE_RETRY_SIGNAL].times, 2);
}

/* A listed default, written down, must be legal and change nothing. */
static void check_builtin(const struct forge_config_key *key, void *arg)
{
	const struct forge_config *plain = arg;
	forge_auto_free char *nested = NULL;
	char path[64], *dot;
	size_t closing = 0;

	if (strchr(key->builtin, ' ') && *key->builtin != '[')
		return; /* "half the memory limit": said in words, cannot be written */
	nested = forge_asprintf("%s", "");
	(void)snprintf(path, sizeof(path), "%s", key->path);
	for (char *at = path; at; at = dot ? dot + 1 : NULL) {
		dot = strchr(at, '.');
		if (dot)
			*dot = '\0';
		char *more = forge_asprintf("%s{%s: ", nested, at);
		free(nested);
		nested = more;
		closing++;
	}
	/* Quotes keep the braces of a template from being a map. */
	const char *quote = strchr("[{", key->builtin[0]) ? "" : "'";
	char *text = forge_asprintf("%s%s%s%s%.*s", nested, quote, key->builtin, quote,
				    (int)closing, "}}}}");
	free(nested);
	nested = text;
	forge_auto_config struct forge_config *c = parse_ok(text);
	assert_string_equal(c->workdir, plain->workdir);
	assert_int_equal(c->uid_base, plain->uid_base);
	assert_int_equal(c->uid_count, plain->uid_count);
	assert_int_equal(c->cgroup, plain->cgroup);
	assert_int_equal(c->allow_unlimited, plain->allow_unlimited);
	assert_int_equal(c->env_pass.n, plain->env_pass.n);
	for (size_t i = 0; i < c->env_pass.n; i++)
		assert_string_equal(c->env_pass.v[i], plain->env_pass.v[i]);
	assert_memory_equal(&c->profiles[0].limits, &plain->profiles[0].limits,
			    sizeof(struct forge_limits));
}

static void listed_defaults_are_the_real_ones(void **state)
{
	forge_auto_config struct forge_config *plain = parse_ok("");

	(void)state;
	forge_config_each_key(check_builtin, plain);
}

static void long_keys_and_values_are_cut_in_messages(void **state)
{
	char text[3000];

	(void)state;
	memset(text, 'x', sizeof(text));
	memcpy(text + 900, ": 1\n", 5);
	refused(text, 1, 1, "unknown key 'xxx");
	memcpy(text, "sandbox: {cgroup: ", 18);
	memset(text + 18, 'y', sizeof(text) - 20);
	memcpy(text + sizeof(text) - 2, "}", 2);
	refused(text, 1, 19, "(have: auto, v2");
	memcpy(text, "workdir: ", 9);
	memset(text + 9, 'y', sizeof(text) - 10);
	text[sizeof(text) - 1] = '\0';
	refused(text, 1, 10, "must be absolute");
}

static int parse_every_key(void *arg)
{
	forge_auto_config struct forge_config *c = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	(void)arg;
	int rc = forge_config_parse(every_key, sizeof(every_key) - 1, "t", "/base", &c,
				    &err);
	assert_int_equal(err.code, -rc);
	assert_true((rc == 0) == (c != NULL));
	return rc;
}

/* Named maps in two layers: lists are replaced, variables added, limits clamped, paths completed. */
static int parse_named_maps(void *arg)
{
	static const char outer[] =
		"host: {max: {memory: 1G}}\n"
		"analysis: {runtime: a, inputs: [x], env: {A: 1}, network: none}\n"
		"runtimes:\n"
		"  a: {kind: r, prefix: envs/a, libraries: [lib, ~/lib], env: {B: 2},\n"
		"      limits: {memory: 2G, pids: unlimited}, commands: [R], smoke: "
		"'true'}\n"
		"  b: {kind: conda, prefix: name}\n"
		"profiles: {own: {pids: 7}}\n";
	static const char inner[] = "analysis: {profile: own, inputs: [y, z], env: {C: "
				    "3}, limits: {pids: 6}}\n"
				    "runtimes: {b: {kind: venv, prefix: /b}}\n"
				    "profiles: {own: {cpus: 1}, more: {}}\n";
	const struct forge_config_layer layers[] = {
		{ .text = outer,
		  .len = sizeof(outer) - 1,
		  .name = "o",
		  .base_dir = "/o" },
		{ .text = inner,
		  .len = sizeof(inner) - 1,
		  .name = "i",
		  .base_dir = "/i" },
	};
	forge_auto_config struct forge_config *c = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	(void)arg;
	int rc = forge_config_parse_layers(layers, FORGE_ARRAY_SIZE(layers), &c, &err);
	assert_int_equal(err.code, -rc);
	assert_true((rc == 0) == (c != NULL));
	if (rc < 0)
		return rc;
	assert_string_equal(c->analysis.runtime, "a");
	assert_int_equal(c->analysis.inputs.n, 2);
	assert_string_equal(c->analysis.inputs.v[0], "y");
	assert_int_equal(c->analysis.env.n, 2);
	assert_int_equal(c->n_runtimes, 2);
	assert_string_equal(c->runtimes[0].name, "b");
	assert_string_equal(c->runtimes[0].kind, "venv");
	assert_string_equal(c->runtimes[1].prefix, "/o/envs/a");
	assert_string_equal(c->runtimes[1].libraries.v[0], "/o/lib");
	assert_string_equal(
		c->runtimes[1].clamped,
		"memory clamped to 1.00 GiB (host.max), pids is the profile's "
		"(host.allow_unlimited is false)");
	assert_int_equal(limits(c, "own")->pids, 7);
	assert_int_equal(limits(c, "own")->cpus_milli, 1000);
	return 0;
}

static void memory_may_run_out_anywhere(void **state)
{
	(void)state;
	assert_true(torture(parse_every_key, NULL) > 100);
	assert_true(torture(parse_named_maps, NULL) > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_file_gives_the_built_in_values),
		cmocka_unit_test(every_key_is_stored),
		cmocka_unit_test(profiles_inherit_from_the_file_s_default),
		cmocka_unit_test(unknown_profiles_name_the_known),
		cmocka_unit_test(unknown_keys_name_the_known),
		cmocka_unit_test(no_key_is_left_out_of_the_list),
		cmocka_unit_test(wrong_types_are_refused),
		cmocka_unit_test(wrong_values_are_refused),
		cmocka_unit_test(uids_stay_in_range),
		cmocka_unit_test(workdirs_are_checked),
		cmocka_unit_test(read_only_roots_are_checked),
		cmocka_unit_test(relative_base_is_below_the_current_directory),
		cmocka_unit_test(environment_is_checked),
		cmocka_unit_test(caps_bind_what_the_file_says),
		cmocka_unit_test(built_in_values_give_way_to_caps),
		cmocka_unit_test(every_key_is_listed_once),
		cmocka_unit_test(sampling_is_an_interval_or_off),
		cmocka_unit_test(results_of_others_are_not_for_a_project_to_choose),
		cmocka_unit_test(retries_are_rules_by_reason),
		cmocka_unit_test(retries_of_an_inner_file_go_first),
		cmocka_unit_test(listed_defaults_are_the_real_ones),
		cmocka_unit_test(long_keys_and_values_are_cut_in_messages),
		cmocka_unit_test(memory_may_run_out_anywhere),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
