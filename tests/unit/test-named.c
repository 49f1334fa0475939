/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of named things: every type of row, its refusals, the walk of a section and the manual. */
#include "unit.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "base/yaml.h"
#include "config/named.h"
#include "torture.h"

struct thing {
	char *text, *word, *choice;
	struct forge_strv list, env;
	struct forge_limits limits;
	bool flag;
	uint64_t bytes, usec, count;
};

#define FIELD(f) offsetof(struct thing, f)

static const char *const choices[] = { "red", "green", NULL };

static const struct forge_named_row rows[] = {
	{ "text", FORGE_NAMED_TEXT, FIELD(text), "text", "A text", NULL },
	{ "word", FORGE_NAMED_WORD, FIELD(word), "name", "A word", NULL },
	{ "choice", FORGE_NAMED_ONE_OF, FIELD(choice), "colour", "One of", choices },
	{ "list", FORGE_NAMED_LIST, FIELD(list), "list", "A list", NULL },
	{ "env", FORGE_NAMED_PAIRS, FIELD(env), "map", "Variables", NULL },
	{ "limits", FORGE_NAMED_LIMITS, FIELD(limits), "map", "Limits", NULL },
	{ "flag", FORGE_NAMED_BOOL, FIELD(flag), "true or false", "A flag", NULL },
	{ "size", FORGE_NAMED_SIZE, FIELD(bytes), "size", "A size", NULL },
	{ "wait", FORGE_NAMED_DURATION, FIELD(usec), "duration", "A time", NULL },
	{ "count", FORGE_NAMED_COUNT, FIELD(count), "whole number", "How many", NULL },
};

static struct forge_named_map map = { .must_be = "a map of colours",
				      .rows = rows,
				      .n = FORGE_ARRAY_SIZE(rows),
				      .builtin = "none" };

static struct forge_loader loader = { .name = "t.yaml" };

static void done(struct thing *t)
{
	free(t->text);
	free(t->word);
	free(t->choice);
	forge_strv_done(&t->list);
	forge_strv_done(&t->env);
	*t = (struct thing){ .text = NULL };
}

/* Reads text, a map, into t. */
static int read_map(const char *text, struct thing *t, struct forge_error *err)
{
	forge_auto_yaml struct forge_yaml *root = NULL;
	int rc = forge_yaml_parse(text, strlen(text), "t.yaml", &root, err);

	return rc < 0 ? rc : forge_named_read(&loader, root, "things.x", &map, t, err);
}

static void read_ok(const char *text, struct thing *t)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	if (read_map(text, t, &err) < 0)
		fail_msg("refused: %u:%u: %s", err.line, err.column, err.msg);
	assert_untouched(err);
}

static void refused(const char *text, unsigned column, const char *message)
{
	struct thing t = { .text = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(read_map(text, &t, &err), -EINVAL);
	assert_string_equal(err.msg, message);
	assert_string_equal(err.file, "t.yaml");
	assert_int_equal(err.line, 1);
	if (err.column != column)
		fail_msg("%s: at column %u, not %u", text, err.column, column);
	done(&t);
}

static const char every_key[] = "text: ''\n"
				"word: w\n"
				"choice: green\n"
				"list: [a, b]\n"
				"env: {A: 1, B: ''}\n"
				"limits: {memory: 2G, pids: unlimited}\n"
				"flag: true\n"
				"size: 1K\n"
				"wait: 2s\n"
				"count: 3\n";

static void every_type_is_stored(void **state)
{
	struct thing t = { .text = NULL };

	(void)state;
	read_ok(every_key, &t);
	assert_string_equal(t.text, "");
	assert_string_equal(t.word, "w");
	assert_string_equal(t.choice, "green");
	assert_int_equal(t.list.n, 2);
	assert_string_equal(t.list.v[1], "b");
	assert_string_equal(forge_strv_getenv(&t.env, "A"), "1");
	assert_string_equal(forge_strv_getenv(&t.env, "B"), "");
	assert_true(t.limits.memory_bytes == UINT64_C(2) << 30);
	assert_true(t.limits.pids == FORGE_UNLIMITED && t.limits.cpus_milli == 0);
	assert_true(t.flag);
	assert_int_equal(t.bytes, 1024);
	assert_int_equal(t.usec, 2000000);
	assert_int_equal(t.count, 3);
	done(&t);
}

/* A second file goes on where the first one ended. */
static void a_second_map_replaces_or_adds(void **state)
{
	struct thing t = { .text = NULL };

	(void)state;
	read_ok(every_key, &t);
	read_ok("{word: v, list: [c], env: {B: 2, C: 3}, limits: {cpus: 1}, flag: false}",
		&t);
	assert_string_equal(t.text, "");
	assert_string_equal(t.word, "v");
	assert_int_equal(t.list.n, 1);
	assert_string_equal(t.list.v[0], "c");
	assert_int_equal(t.env.n, 3);
	assert_string_equal(forge_strv_getenv(&t.env, "A"), "1");
	assert_string_equal(forge_strv_getenv(&t.env, "B"), "2");
	assert_true(t.limits.memory_bytes == UINT64_C(2) << 30);
	assert_int_equal(t.limits.cpus_milli, 1000);
	assert_false(t.flag);
	read_ok("list: []", &t);
	assert_int_equal(t.list.n, 0);
	done(&t);
}

static void wrong_values_are_refused_at_their_place(void **state)
{
	(void)state;
	refused("[a]", 1, "things.x: must be a map of colours");
	refused("text: [a]", 7, "things.x.text: must be one value");
	refused("word: ''", 7, "things.x.word: must be a name");
	refused("word: [a]", 7, "things.x.word: must be a name");
	refused("choice: blue", 9, "things.x.choice: 'blue' is not one of red, green");
	refused("choice: ''", 9, "things.x.choice: must be a name");
	refused("choice: {}", 9, "things.x.choice: must be a name");
	refused("list: a", 7, "things.x.list: must be a list, like [a, b]");
	refused("list: [a, [b]]", 11, "things.x.list: must be a list of plain values");
	refused("list: [a, '']", 11, "things.x.list: a value must not be empty");
	refused("env: [A]", 6, "things.x.env: must be a map, like NAME: value");
	refused("env: {A: [1]}", 10, "things.x.env: must be a map of plain values");
	refused("env: {1A: 2}", 7,
		"things.x.env: '1A' is not the name of an environment variable (write "
		"letters, "
		"digits and '_', first not a digit)");
	refused("limits: 2G", 9,
		"things.x.limits: must be a map of limits, for example memory: 2G");
	refused("limits: {memory: [2G]}", 18,
		"things.x.limits.memory: must be one value, like 2G");
	refused("flag: yes", 7, "things.x.flag: unknown value 'yes' (have: false, true)");
	refused("flag: []", 7,
		"things.x.flag: must be one value, not a list (true or false)");
	refused("size: {}", 7, "things.x.size: must be one value, not a map (size)");
	refused("size: unlimited", 7,
		"things.x.size: 'unlimited' is never allowed here (write 512M or 2G)");
	refused("wait: unlimited", 7,
		"things.x.wait: 'unlimited' is not possible here (leave the key out)");
	refused("count: unlimited", 8,
		"things.x.count: 'unlimited' is not possible here (leave the key out)");
	refused("count: []", 8,
		"things.x.count: must be one value, not a list (whole number)");
}

static void unknown_keys_name_the_known(void **state)
{
	struct thing t = { .text = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	refused("{word: w, worth: 1}", 11,
		"things.x: unknown key 'worth' (have: text, word, choice, list, env, "
		"limits, "
		"flag, size, wait, count); did you mean 'word'?");
	refused("memory: 2G", 1,
		"things.x: unknown key 'memory' (have: text, word, choice, list, env, "
		"limits, "
		"flag, size, wait, count)");
	/* With the hint, a limit is no longer just unknown. */
	map.has_limits_hint = true;
	int rc = read_map("cpu-time: 1h", &t, &err);
	map.has_limits_hint = false;
	assert_int_equal(rc, -EINVAL);
	assert_string_equal(err.msg, "things.x: unknown key 'cpu-time'");
	assert_string_equal(
		err.hint,
		"cpu_time is a limit: write limits: {cpu_time: ...} in things.x");
}

struct walk {
	unsigned n;
	char paths[4][32];
	int stop_at; /* the visitor fails there, -1: nowhere */
};

static int visit(struct forge_loader *ld, const struct forge_yaml *node, const char *path,
		 void *arg, struct forge_error *err)
{
	struct walk *w = arg;

	assert_ptr_equal(ld, &loader);
	assert_non_null(node->key);
	if ((int)w->n == w->stop_at)
		return forge_fail(err, EDOM, "stop");
	(void)snprintf(w->paths[w->n++], sizeof(w->paths[0]), "%s", path);
	return 0;
}

static int walk(const char *text, struct walk *w, struct forge_error *err)
{
	forge_auto_yaml struct forge_yaml *root = NULL;

	assert_int_equal(forge_yaml_parse(text, strlen(text), "t.yaml", &root, NULL), 0);
	return forge_named_each(&loader, root, "things", visit, w, err);
}

static void sections_are_walked_in_order(void **state)
{
	struct walk w = { .stop_at = -1 };
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)state;
	/* The type of an entry is for the visitor to check. */
	assert_int_equal(walk("{b: {}, a: 1, c-1.x: []}", &w, &err), 0);
	assert_int_equal(w.n, 3);
	assert_string_equal(w.paths[0], "things.b");
	assert_string_equal(w.paths[1], "things.a");
	assert_string_equal(w.paths[2], "things.c-1.x");
	assert_int_equal(forge_named_each(&loader, NULL, "things", visit, &w, &err), 0);
	assert_int_equal(w.n, 3);
	assert_untouched(err);
	w = (struct walk){ .stop_at = 1 };
	assert_int_equal(walk("{b: {}, a: 1}", &w, &err), -EDOM);
	assert_int_equal(w.n, 1);
}

static void names_are_ids(void **state)
{
	struct walk w = { .stop_at = -1 };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	assert_int_equal(walk("{a: {}, b/c: {}}", &w, &err), -EINVAL);
	assert_contains(err.msg, "things: 'b/c' is not an id");
	assert_int_equal(err.column, 9);
	assert_int_equal(w.n, 1);
}

static void entries_are_found_by_name(void **state)
{
	forge_auto_yaml struct forge_yaml *root = NULL;

	(void)state;
	assert_int_equal(forge_yaml_parse("{a: 1, b: 2}", 12, "t", &root, NULL), 0);
	assert_string_equal(forge_named_find(root, "b")->scalar, "2");
	assert_null(forge_named_find(root, "c"));
	assert_null(forge_named_find(NULL, "a"));
}

static void see_key(const struct forge_config_key *key, void *arg)
{
	const struct forge_config_key **seen = arg;
	static struct forge_config_key keys[FORGE_ARRAY_SIZE(rows)];
	static size_t n;

	keys[n++] = *key;
	*seen = keys;
}

static void rows_are_listed_for_the_manual(void **state)
{
	static char paths[FORGE_ARRAY_SIZE(rows)][FORGE_NAMED_PATH_MAX];
	const struct forge_config_key *seen = NULL;

	(void)state;
	forge_named_each_key(&map, "things", paths, see_key, &seen);
	assert_string_equal(seen[0].path, "things.NAME.text");
	assert_string_equal(seen[9].path, "things.NAME.count");
	assert_string_equal(seen[9].type, "whole number");
	assert_string_equal(seen[9].help, "How many");
	assert_string_equal(seen[9].builtin, "none");
}

static int read_every_key(void *arg)
{
	struct thing t = { .text = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)arg;
	int rc = read_map(every_key, &t, &err);
	if (rc == 0)
		rc = read_map(every_key, &t, &err); /* values are replaced */
	assert_int_equal(err.code, -rc);
	done(&t);
	return rc;
}

static void memory_may_run_out_anywhere(void **state)
{
	(void)state;
	assert_true(torture(read_every_key, NULL) > 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_is_stored),
		cmocka_unit_test(a_second_map_replaces_or_adds),
		cmocka_unit_test(wrong_values_are_refused_at_their_place),
		cmocka_unit_test(unknown_keys_name_the_known),
		cmocka_unit_test(sections_are_walked_in_order),
		cmocka_unit_test(names_are_ids),
		cmocka_unit_test(entries_are_found_by_name),
		cmocka_unit_test(rows_are_listed_for_the_manual),
		cmocka_unit_test(memory_may_run_out_anywhere),
	};

	return cmocka_run_group_tests_name("named", tests, NULL, NULL);
}
