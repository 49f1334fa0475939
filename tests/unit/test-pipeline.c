/* SPDX-License-Identifier: Apache-2.0 */
/* Texts with variables, conditions, graphs, keys and what changed between them, advice. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/parse.h"
#include "pipeline/graph.h"
#include "pipeline/key.h"
#include "pipeline/launch.h"
#include "pipeline/pipeline.h"
#include "pipeline/report.h"

/* ---- variables ---- */

static const char *find(const char *name, size_t len, void *arg)
{
	(void)arg;
	if (len == 1 && *name == 'a')
		return "1";
	if (len == 4 && strncmp(name, "long", 4) == 0)
		return "x y";
	return NULL;
}

static void expands(const char *text, const char *expected)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_free char *out = NULL;

	assert_int_equal(forge_expand(text, find, NULL, &out, &err), 0);
	assert_string_equal(out, expected);
}

static void fails(const char *text, int code)
{
	struct forge_error err = FORGE_ERROR_INIT;
	char *out = NULL;

	assert_int_equal(forge_expand(text, find, NULL, &out, &err), -code);
	assert_null(out);
}

static void variables_are_replaced(void **state)
{
	(void)state;
	expands("", "");
	expands("plain", "plain");
	expands("$a", "1");
	expands("${a}b", "1b");
	expands("$a.$long/$a", "1.x y/1");
	expands("100$$", "100$");
	fails("$b", ENOENT);
	fails("$ab", ENOENT);
	fails("${a", EINVAL);
	fails("$", EINVAL);
	fails("$1", EINVAL);
	fails("${}", EINVAL);
}

static void collect(const char *name, size_t len, void *arg)
{
	char *all = arg;
	size_t at = strlen(all);

	(void)snprintf(all + at, 200 - at, "%.*s,", (int)len, name);
}

static void names_in_shell_texts(void **state)
{
	char all[200] = "";

	(void)state;
	forge_expand_names("echo $a ${b} ${c:-x} ${#d} '$e' $1 $$ $f-$g $", collect, all);
	assert_string_equal(all, "a,b,c,d,e,f,g,");
}

static int condition(const char *text)
{
	struct forge_error err = FORGE_ERROR_INIT;

	return forge_condition(text, find, NULL, &err);
}

static void conditions(void **state)
{
	(void)state;
	assert_int_equal(condition("$a"), 1);
	assert_int_equal(condition("0"), 0);
	assert_int_equal(condition("false"), 0);
	assert_int_equal(condition("$a == 1"), 1);
	assert_int_equal(condition("$a == 1.0"), 1);
	assert_int_equal(condition("$a != 1"), 0);
	assert_int_equal(condition("$a < 10"), 1);
	assert_int_equal(condition("2 >= 10"), 0);
	assert_int_equal(condition("$long == $long"), 1);
	assert_int_equal(condition("x == y"), 0);
	assert_int_equal(condition("x < y"), -EINVAL);
	assert_int_equal(condition("$a =="), -EINVAL);
	assert_int_equal(condition("$a = 1"), -EINVAL);
	assert_int_equal(condition(""), -EINVAL);
	assert_int_equal(condition("$none == 1"), -ENOENT);
}

/* ---- graphs ---- */

struct made {
	struct forge_pipeline *p;
	struct forge_graph g;
};

static void make(const char *text, struct made *ret)
{
	struct forge_error err = FORGE_ERROR_INIT;

	*ret = (struct made){ .p = NULL };
	int rc = forge_pipeline_parse(text, strlen(text), "p.yaml", "/nowhere", NULL,
				      &ret->p, &err);
	if (rc == 0)
		rc = forge_graph_make(ret->p, &ret->g, &err);
	if (rc < 0)
		fail_msg("%s", err.msg);
}

static void unmake(struct made *m)
{
	forge_graph_done(&m->g);
	forge_pipeline_free(m->p);
}

static void tasks_come_after_those_that_they_read(void **state)
{
	struct made m;

	(void)state;
	make("steps:\n"
	     "  c: {inputs: {x: b/o}, run: x, outputs: [o]}\n"
	     "  b: {inputs: {x: a/o}, run: x, outputs: [o]}\n"
	     "  a: {run: x, outputs: [o]}\n",
	     &m);
	assert_string_equal(m.g.tasks[0].name, "a");
	assert_string_equal(m.g.tasks[1].name, "b");
	assert_string_equal(m.g.tasks[2].name, "c");
	assert_int_equal(m.g.tasks[0].length, 3);
	assert_int_equal(m.g.tasks[2].length, 1);
	assert_int_equal(m.g.tasks[0].n_readers, 1);
	unmake(&m);
}

static void loops_are_joined_or_gathered(void **state)
{
	struct made m;
	size_t n;

	(void)state;
	make("params: {l: [p, q]}\n"
	     "steps:\n"
	     "  a: {foreach: {x: $l}, run: x, outputs: [o]}\n"
	     "  b: {foreach: {x: $l, y: [1, 2]}, inputs: {i: a/o}, run: x, outputs: "
	     "[o]}\n"
	     "  c: {inputs: {i: b/o}, run: x}\n",
	     &m);
	assert_int_equal(m.g.n, 2 + 4 + 1);
	int b = forge_graph_find(&m.g, "b[q,1]", &n, NULL);
	assert_int_equal(m.g.tasks[b].n_deps, 1);
	assert_string_equal(m.g.tasks[m.g.tasks[b].deps[0]].name, "a[q]");
	assert_false(forge_input_is_dir(&m.g, &m.g.tasks[b], 0));
	int c = forge_graph_find(&m.g, "c", &n, NULL);
	assert_int_equal(m.g.tasks[c].n_deps, 4);
	assert_true(forge_input_is_dir(&m.g, &m.g.tasks[c], 0));
	assert_string_equal(m.g.tasks[c].sources[0].below, "p,1");
	unmake(&m);
}

static void ids_of_tasks_are_ids(void **state)
{
	struct made m;
	char a[FORGE_TASK_ID_MAX], b[FORGE_TASK_ID_MAX];

	(void)state;
	make("name: n\n"
	     "steps: {s: {foreach: {x: ['a/b', 'a b', plain, '..x', "
	     "'0123456789012345678901234567890123456789012345678901234567890123456789']},"
	     " "
	     "run: x}}\n",
	     &m);
	assert_string_equal(forge_task_id(&m.g, &m.g.tasks[2], a), "n.s.plain");
	for (size_t i = 0; i < m.g.n; i++)
		for (size_t k = 0; k < m.g.n; k++) {
			(void)forge_task_id(&m.g, &m.g.tasks[i], a);
			(void)forge_task_id(&m.g, &m.g.tasks[k], b);
			assert_int_equal(forge_parse_id(a, NULL), 0);
			assert_int_equal(strcmp(a, b) == 0, i == k);
		}
	unmake(&m);
}

/* ---- keys ---- */

static json_t *parts_of(const char *text, const char *runtime, const char *digest,
			char *key)
{
	struct made m;
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_task_files files = { 0 };
	json_t *parts = NULL;

	make(text, &m);
	if (m.p->steps[0].n_inputs)
		assert_int_equal(
			forge_task_files_add(&files, 0, strdup("f"), NULL, digest), 0);
	const struct forge_task_facts facts = {
		.g = &m.g, .t = &m.g.tasks[0], .files = &files, .runtime = runtime
	};
	assert_int_equal(forge_task_key(&facts, &parts, key, &err), 0);
	forge_task_files_done(&files);
	unmake(&m);
	return parts;
}

#define FIRST                                                                            \
	"params: {q: 1, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'x $q', outputs: [o], " \
	"env: {E: 1}}}\n"

static void differs(const char *text, const char *runtime, const char *digest,
		    const char *expected)
{
	char was_key[FORGE_DIGEST_MAX], is_key[FORGE_DIGEST_MAX],
		change[FORGE_CHANGE_MAX];
	forge_auto_json json_t *was =
		parts_of(FIRST, "sha256:r1", "sha256:aaaaaaaaaa", was_key);
	forge_auto_json json_t *is = parts_of(text, runtime, digest, is_key);

	assert_string_equal(forge_parts_change(was, is, change), expected);
	assert_int_equal(strcmp(was_key, is_key) == 0, *expected == '\0');
}

static void keys_and_changes(void **state)
{
	static const char r[] = "sha256:r1", d[] = "sha256:aaaaaaaaaa";

	(void)state;
	differs(FIRST, r, d, "");
	/* A parameter that is not used, another name of the step, limits. */
	differs("params: {q: 1, r: 9}\nsteps: {t: {inputs: {i: /f}, run: 'x $q', "
		"outputs: [o], "
		"env: {E: 1}, limits: {memory: 1G}, runtime: other}}\n",
		r, d, "");
	differs("params: {q: 3, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'x $q', "
		"outputs: [o], "
		"env: {E: 1}}}\n",
		r, d, "parameter q changed (1 -> 3)");
	differs(FIRST, "sha256:r2", d, "the runtime changed (r1... -> r2...)");
	differs(FIRST, NULL, d, "the runtime changed (r1... -> none)");
	differs(FIRST, r, "sha256:bbbbbbbbbb",
		"input i: f changed (sha256 aaaaaaaa... -> bbbbbbbb...)");
	differs("params: {q: 1, r: 2}\nsteps: {s: {inputs: {j: /f}, run: 'x $q', "
		"outputs: [o], "
		"env: {E: 1}}}\n",
		r, d, "input j is new");
	differs("params: {q: 1, r: 2}\nsteps: {s: {run: 'x $q', outputs: [o], env: {E: "
		"1}}}\n",
		r, d, "input i is gone");
	differs("params: {q: 1, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'x $q', "
		"outputs: [p], "
		"env: {E: 1}}}\n",
		r, d, "the declared outputs changed");
	differs("params: {q: 1, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'x $q', "
		"outputs: [o], "
		"env: {E: 2}}}\n",
		r, d, "variable E changed (1 -> 2)");
	differs("params: {q: 1, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'x $q', "
		"outputs: [o], "
		"env: {E: 1}, network: host}}\n",
		r, d, "the network changed (none -> host)");
	differs("params: {q: 1, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'y $q', "
		"outputs: [o], "
		"env: {E: 1}}}\n",
		r, d, "the command changed");
	differs("params: {q: 1, r: 2}\nsteps: {s: {inputs: {i: /f}, run: 'x $q', shell: "
		"sh, "
		"outputs: [o], env: {E: 1}}}\n",
		r, d, "the command changed");
}

/* A store that others write may have anything there. */
static void changes_of_strange_parts(void **state)
{
	static const char *const texts[] = { "null",
					     "{}",
					     "[]",
					     "{\"inputs\": 3}",
					     "{\"params\": [1]}",
					     "{\"command\": {\"script\": 1}}" };
	char buf[FORGE_CHANGE_MAX], key[FORGE_DIGEST_MAX];
	forge_auto_json json_t *is = parts_of(FIRST, "sha256:r", "sha256:a", key);

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts); i++) {
		forge_auto_json json_t *was = json_loads(texts[i], JSON_DECODE_ANY, NULL);
		assert_string_not_equal(forge_parts_change(was, is, buf), "");
	}
}

/* ---- advice ---- */

static void advises(const char *record, const char *expected)
{
	char buf[FORGE_ADVICE_MAX];
	forge_auto_json json_t *j = json_loads(record, 0, NULL);

	assert_non_null(j);
	assert_string_equal(forge_report_advice(j, buf), expected);
}

static void advice(void **state)
{
	(void)state;
	advises("{}", "");
	advises("{\"usage\": {\"memory_peak_bytes\": 325058560}, \"limits\": "
		"{\"memory_bytes\": "
		"4294967296}}",
		"asked for 4.00 GiB of memory, used 310.00 MiB: memory: 512M would do");
	advises("{\"usage\": {\"memory_peak_bytes\": 3250585600}, \"limits\": "
		"{\"memory_bytes\": "
		"4294967296}}",
		"");
	advises("{\"usage\": {\"wall_seconds\": 10, \"cpu_seconds\": 9}, \"limits\": "
		"{\"cpus\": 4}}",
		"asked for 4 CPUs, used 0.9 of them");
	advises("{\"usage\": {\"wall_seconds\": 10, \"cpu_seconds\": 30}, \"limits\": "
		"{\"cpus\": "
		"4}}",
		"");
}

/* ---- what a task leaves ---- */

static void a_notebook_is_always_an_output(void **state)
{
	char first[] = "r.json", second[] = "parts/*.csv", notebook[] = "nb/book.ipynb",
	     script[] = "book.py";
	char *patterns[] = { first, second, NULL };
	struct forge_step step = { .script = notebook };
	struct forge_task t = { .step = &step };

	(void)state;
	/* Without declared outputs: all that is below outputs/. */
	assert_true(forge_task_may_leave(&t, "outputs/book.ipynb"));
	assert_true(forge_task_may_leave(&t, "outputs/a/b"));
	assert_false(forge_task_may_leave(&t, "other"));
	t.outputs = (struct forge_strv){ .v = patterns, .n = 2 };
	assert_true(forge_task_may_leave(&t, "r.json"));
	assert_true(forge_task_may_leave(&t, "parts/1.csv"));
	assert_true(forge_task_may_leave(&t, "outputs/book.ipynb"));
	assert_false(forge_task_may_leave(&t, "outputs/other.ipynb"));
	assert_false(forge_task_may_leave(&t, "outputs/a/b"));
	step.script = script;
	assert_true(forge_task_may_leave(&t, "r.json"));
	assert_false(forge_task_may_leave(&t, "outputs/book.py"));
	step.script = NULL;
	t.outputs.n = 0;
	assert_false(forge_task_may_leave(&t, "outputs/a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_notebook_is_always_an_output),
		cmocka_unit_test(variables_are_replaced),
		cmocka_unit_test(names_in_shell_texts),
		cmocka_unit_test(conditions),
		cmocka_unit_test(tasks_come_after_those_that_they_read),
		cmocka_unit_test(loops_are_joined_or_gathered),
		cmocka_unit_test(ids_of_tasks_are_ids),
		cmocka_unit_test(keys_and_changes),
		cmocka_unit_test(changes_of_strange_parts),
		cmocka_unit_test(advice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
