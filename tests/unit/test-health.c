/* SPDX-License-Identifier: Apache-2.0 */
/* Checks as they are declared, in layers of files and as JSON; their engine, with a cache. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/rmtree.h"
#include "config/config.h"
#include "health/check.h"

#define LAYER(t, n) { .text = (t), .len = strlen(t), .name = (n), .base_dir = "/srv/project" }

static struct forge_config *layers(const char *outer, const char *inner)
{
	const struct forge_config_layer both[] = { LAYER(outer, "outer"), LAYER(inner, "inner") };
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct forge_config *c = NULL;

	assert_int_equal(forge_config_parse_layers(both, 2, &c, &err), 0);
	assert_untouched(err);
	return c;
}

static void every_host_has_checks_that_warn(void **state)
{
	forge_auto_config struct forge_config *c = layers("", "");

	(void)state;
	assert_int_equal(c->health.n_checks, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_string_equal(c->health.checks[i].severity, "warn");
		assert_string_equal(c->health.checks[i].when, "both");
		assert_true(c->health.checks[i].every_usec > 0);
	}
	assert_non_null(forge_health_find(&c->health, "disk"));
	assert_non_null(forge_health_find(&c->health, "memory"));
	assert_null(forge_health_find(&c->health, "guard"));
}

static void inner_files_add_and_change_nothing(void **state)
{
	forge_auto_config struct forge_config *c = layers(
		"health: {db: {kind: tcp, address: 'a:1'}, disk: {kind: disk, min_free: 5%}}\n"
		"guard: {paths: [/a]}\n",
		"health: {db: {kind: tcp, address: 'b:2', when: demand}, web: {kind: unix, path: s}}\n"
		"guard: {paths: [b, /a/c], exclude: [/a/d]}\n");
	const struct forge_check_decl *d = forge_health_find(&c->health, "db");

	(void)state;
	assert_string_equal(d->address, "a:1");
	assert_string_equal(d->when, "both");
	assert_int_equal(forge_health_find(&c->health, "disk")->min_free.milli, 50);
	assert_string_equal(forge_health_find(&c->health, "disk")->severity, "block");
	assert_string_equal(forge_health_find(&c->health, "web")->path, "/srv/project/s");
	d = forge_health_find(&c->health, "guard");
	assert_string_equal(d->kind, "files");
	assert_int_equal(d->paths.n, 1);
	assert_string_equal(d->paths.v[0], "/a");
	assert_int_equal(d->exclude.n, 0);
	d = forge_health_find(&c->health, "guard-2");
	assert_string_equal(d->paths.v[0], "/srv/project/b");
	assert_string_equal(d->exclude.v[0], "/a/d");
}

static void a_guard_cannot_be_switched_off_inside(void **state)
{
	static const char outer[] = "guard: {paths: [/a], mode: watch, hold: true}\n";
	static const char *const inner[] = { "guard: {mode: 'off'}\n", "guard: {hold: false}\n" };
	struct forge_error err;
	struct forge_config *c = NULL;

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(inner); i++) {
		const struct forge_config_layer both[] = { LAYER(outer, "outer"),
							   LAYER(inner[i], "inner") };
		err = FORGE_ERROR_INIT;
		assert_int_equal(forge_config_parse_layers(both, 2, &c, &err), -EINVAL);
		assert_non_null(strstr(err.msg, "because of outer:1, and cannot be weakened here"));
	}
}

static void a_guard_without_words_is_no_weaker(void **state)
{
	static const char *const outer[] = { "guard: {paths: [/a]}\n",
					     "health: {x: {kind: files, paths: [/a]}}\n" };
	static const char *const weak[] = { "guard: {mode: 'off'}\n", "guard: {mode: snapshot}\n",
					    "guard: {unattributed: warn}\n" };
	static const char strict[] = "guard: {mode: watch, unattributed: corrupted, hold: true}\n";

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(outer); i++) {
		for (size_t k = 0; k < FORGE_ARRAY_SIZE(weak); k++) {
			const struct forge_config_layer both[] = { LAYER(outer[i], "outer"),
								   LAYER(weak[k], "inner") };
			struct forge_config *c = NULL;
			assert_int_equal(forge_config_parse_layers(both, 2, &c, NULL), -EINVAL);
		}
		forge_auto_config struct forge_config *c = layers(outer[i], strict);
		assert_int_equal(c->health.mode, FORGE_GUARD_WATCH);
		assert_true(c->health.holds);
		/* Its own guard a file may weaken. */
		forge_auto_config struct forge_config *own =
			layers("", "guard: {mode: 'off', paths: [/a]}\n");
		assert_int_equal(own->health.mode, FORGE_GUARD_OFF);
	}
}

static void json_has_all_of_a_check(void **state)
{
	forge_auto_config struct forge_config *c = layers(
		"health:\n"
		"  db: {kind: postgres, url: 'postgresql://u:p@h/d', tables: [a, b], count: [a],\n"
		"       thorough: true, timeout: 3s, every: 1h, severity: warn, if_failed: wait}\n"
		"  web: {kind: http, url: 'http://h/', status: 204, body: ok, when: post}\n"
		"  mem: {kind: memory, min_available: 1G, max_pressure: 0.5%}\n"
		"guard: {paths: ['/a/**/*.db'], exclude: [/a/x], mode: snapshot, unattributed: warn}\n",
		"");
	struct forge_health_config h = { 0 };
	forge_auto_json json_t *j = forge_health_json(&c->health);

	(void)state;
	assert_int_equal(forge_health_restore(j, &h), 0);
	forge_auto_json json_t *again = forge_health_json(&h);
	assert_true(json_equal(j, again));
	assert_int_equal(h.n_checks, c->health.n_checks);
	assert_int_equal(forge_health_find(&h, "mem")->max_pressure.milli, 5);
	assert_true(forge_health_find(&h, "db")->is_thorough);
	assert_int_equal(h.mode, FORGE_GUARD_SNAPSHOT);
	forge_health_done(&h);
	/* One that lacks what every check has. */
	json_object_del(json_array_get(json_object_get(j, "checks"), 0), "kind");
	assert_int_equal(forge_health_restore(j, &h), -EINVAL);
	forge_health_done(&h);
}

/* ---- the engine ---- */

static void results_are_used_again_while_they_are_young(void **state)
{
	char dir[] = "/tmp/forge-test-health-XXXXXX", path[64], text[300];
	struct forge_home home = FORGE_HOME_INIT;
	struct forge_config *c = NULL;
	struct stat st;

	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(setenv("FORGE_HOME", dir, 1), 0);
	assert_int_equal(forge_home_open(true, &home, NULL), 0);
	(void)snprintf(path, sizeof(path), "%s/mark", dir);
	(void)snprintf(text, sizeof(text),
		       "health:\n  young: {kind: disk, path: %s, min_free: 1, min_inodes: 1, every: 1h}\n"
		       "  fresh: {kind: disk, path: %s, min_free: 1, min_inodes: 1}\n",
		       path, path);
	assert_int_equal(forge_config_parse(text, strlen(text), "f", "/", &c, NULL), 0);
	const struct forge_check_env env = { .cfg = c, .home = &home };
	for (int i = 0; i < 3; i++) {
		forge_auto_check_results struct forge_check_results r = { 0 };
		/* The second time the file is there; the third time on demand. */
		if (i == 1)
			close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		assert_int_equal(forge_checks_run(&env, i == 2 ? FORGE_PHASE_DEMAND : FORGE_PHASE_PRE,
						  NULL, -1, &r, NULL),
				 0);
		assert_int_equal(r.n, 4);
		for (size_t k = 0; k < r.n; k++) {
			const char *name = r.v[k].decl->name;
			if (strcmp(name, "young") == 0) {
				assert_int_equal(r.v[k].report.is_ok, i == 2);
				assert_int_equal(r.v[k].is_reused, i == 1);
			} else if (strcmp(name, "fresh") == 0) {
				assert_int_equal(r.v[k].report.is_ok, i >= 1);
				assert_false(r.v[k].is_reused);
			}
		}
		assert_int_equal(forge_checks_failed(&r, "block") != NULL, i < 2);
	}
	forge_config_free(c);
	forge_home_close(&home);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(forge_rmtree(dir, st.st_dev, st.st_ino, NULL, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_host_has_checks_that_warn),
		cmocka_unit_test(inner_files_add_and_change_nothing),
		cmocka_unit_test(a_guard_cannot_be_switched_off_inside),
		cmocka_unit_test(a_guard_without_words_is_no_weaker),
		cmocka_unit_test(json_has_all_of_a_check),
		cmocka_unit_test(results_are_used_again_while_they_are_young),
	};

	return cmocka_run_group_tests_name("health", tests, NULL, NULL);
}
