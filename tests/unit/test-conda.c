/* SPDX-License-Identifier: Apache-2.0 */
/* Conda without conda: activation rule by rule, packages, digests, locks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rmtree.h"
#include "runtime/conda.h"
#include "unit.h"

static char top[64];

static int enter(void **state)
{
	(void)state;
	(void)snprintf(top, sizeof(top), "/tmp/test-conda-XXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static int leave(void **state)
{
	struct stat st;

	(void)state;
	return stat(top, &st) < 0 ? -1
				  : forge_rmtree(top, st.st_dev, st.st_ino, NULL, NULL);
}

/* A file below top, with its directories. */
static void put(const char *path, const char *text)
{
	char full[512];

	(void)snprintf(full, sizeof(full), "%s/%s", top, path);
	*strrchr(full, '/') = '\0';
	assert_int_equal(forge_mkdirs(full, 0755), 0);
	full[strlen(full)] = '/';
	FILE *f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static const char *below(const char *path)
{
	static char full[4][512];
	static int n;

	n = (n + 1) % 4;
	(void)snprintf(full[n], sizeof(full[n]), "%s/%s", top, path);
	return full[n];
}

/* An activation: the environment before as words, then questions about it after. */
struct act {
	struct forge_strv env, scripts, warnings;
};

static void act_done(struct act *a)
{
	forge_strv_done(&a->env);
	forge_strv_done(&a->scripts);
	forge_strv_done(&a->warnings);
}

static void activate(struct act *a, const char *prefix, const char *root, bool stack)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_conda_spec spec = { .prefix = prefix,
					 .root_prefix = root,
					 .stack = stack,
					 .change_prompt = true };
	int rc = forge_conda_activate(&spec, &a->env, &a->scripts, &a->warnings, &err);

	if (rc < 0)
		print_error("%s\n", err.msg);
	assert_int_equal(rc, 0);
}

static void set(struct act *a, const char *name, const char *value)
{
	assert_int_equal(forge_strv_setenv(&a->env, name, value), 0);
}

#define is(a, name, value) assert_string_equal(forge_strv_getenv(&(a)->env, name), value)
#define isnt_set(a, name)  assert_null(forge_strv_getenv(&(a)->env, name))

static void level_0_puts_it_in_front(void **state)
{
	struct act a = { 0 };

	(void)state;
	put("c/envs/e/conda-meta/history", "");
	set(&a, "PATH", "/usr/bin:/bin");
	activate(&a, "/c/envs/e", "/c", false);
	is(&a, "PATH", "/c/envs/e/bin:/c/condabin:/usr/bin:/bin");
	is(&a, "CONDA_PREFIX", "/c/envs/e");
	is(&a, "CONDA_SHLVL", "1");
	is(&a, "CONDA_DEFAULT_ENV", "e");
	is(&a, "CONDA_PROMPT_MODIFIER", "(e) ");
	is(&a, "CONDA_EXE", "/c/bin/conda");
	is(&a, "_CONDA_EXE", "/c/bin/conda");
	is(&a, "CONDA_PYTHON_EXE", "/c/bin/python");
	is(&a, "_CONDA_ROOT", "/c");
	is(&a, "_CE_M", "");
	is(&a, "_CE_CONDA", "");
	isnt_set(&a, "CONDA_PREFIX_0");
	assert_int_equal(a.scripts.n, 0);
	act_done(&a);
}

static void condabin_is_there_once(void **state)
{
	struct act a = { 0 };

	(void)state;
	set(&a, "PATH", "/x/condabin:/bin");
	activate(&a, "/c/envs/e", "/c", false);
	is(&a, "PATH", "/c/envs/e/bin:/x/condabin:/bin");
	act_done(&a);
	a = (struct act){ 0 };
	set(&a, "PATH", "/x/mycondabin:/bin");
	activate(&a, "/c/envs/e", "/c", false);
	is(&a, "PATH", "/c/envs/e/bin:/c/condabin:/x/mycondabin:/bin");
	act_done(&a);
}

static void odd_paths(void **state)
{
	struct act a = { 0 };

	(void)state;
	activate(&a, "/c/envs/e", NULL, false); /* PATH unset, no installation known */
	is(&a, "PATH", "/c/envs/e/bin:/usr/bin");
	isnt_set(&a, "CONDA_EXE");
	act_done(&a);
	a = (struct act){ 0 };
	set(&a, "PATH", "::/bin:");
	activate(&a, "/c/envs/e", NULL, false);
	is(&a, "PATH", "/c/envs/e/bin:::/bin:");
	act_done(&a);
}

static void names_follow_the_place(void **state)
{
	static const struct {
		const char *prefix, *root, *name;
	} cases[] = {
		{ "/c", "/c", "base" },
		{ "/c/envs/my env", "/c", "my env" },
		{ "/home/u/.conda/envs/größe", "/c", "größe" },
		{ "/srv/project/.pixi/envs/default", NULL, "default" },
		{ "/srv/prefix", "/c", "/srv/prefix" },
		{ "/srv/xenvs/e", "/c", "/srv/xenvs/e" },
	};

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++) {
		struct act a = { 0 };
		char prompt[128];
		activate(&a, cases[i].prefix, cases[i].root, false);
		is(&a, "CONDA_DEFAULT_ENV", cases[i].name);
		(void)snprintf(prompt, sizeof(prompt), "(%s) ", cases[i].name);
		is(&a, "CONDA_PROMPT_MODIFIER", prompt);
		act_done(&a);
	}
}

static void above_level_0_the_old_place_is_taken(void **state)
{
	struct act a = { 0 };

	(void)state;
	set(&a, "PATH", "/first:/c/envs/old/bin:/c/condabin:/c/envs/old/bin:/bin");
	set(&a, "CONDA_SHLVL", "1");
	set(&a, "CONDA_PREFIX", "/c/envs/old");
	activate(&a, "/c/envs/new", "/c", false);
	is(&a, "PATH", "/first:/c/envs/new/bin:/c/condabin:/c/envs/old/bin:/bin");
	is(&a, "CONDA_SHLVL", "2");
	is(&a, "CONDA_PREFIX_1", "/c/envs/old");
	isnt_set(&a, "CONDA_STACKED_2");
	act_done(&a);
	/* Not in PATH any more: in front, and no condabin above level 0. */
	a = (struct act){ 0 };
	set(&a, "PATH", "/bin");
	set(&a, "CONDA_SHLVL", "3");
	set(&a, "CONDA_PREFIX", "/c/envs/old");
	activate(&a, "/c/envs/new", "/c", false);
	is(&a, "PATH", "/c/envs/new/bin:/bin");
	is(&a, "CONDA_PREFIX_3", "/c/envs/old");
	is(&a, "CONDA_SHLVL", "4");
	act_done(&a);
}

static void stacking_keeps_the_old_one(void **state)
{
	struct act a = { 0 };

	(void)state;
	put("old/etc/conda/deactivate.d/a.sh", "");
	set(&a, "PATH", "/old/bin:/bin");
	set(&a, "CONDA_SHLVL", "1");
	set(&a, "CONDA_PREFIX", below("old"));
	activate(&a, "/c/envs/new", "/c", true);
	is(&a, "PATH", "/c/envs/new/bin:/old/bin:/bin");
	is(&a, "CONDA_STACKED_2", "true");
	is(&a, "CONDA_PREFIX_1", below("old"));
	assert_int_equal(a.scripts.n, 0); /* nothing is deactivated */
	act_done(&a);
}

static void the_same_again_is_no_new_level(void **state)
{
	struct act a = { 0 };

	(void)state;
	put("c/envs/e/etc/conda/activate.d/on.sh", "");
	put("c/envs/e/etc/conda/deactivate.d/off.sh", "");
	set(&a, "PATH", "/x:/bin");
	set(&a, "CONDA_SHLVL", "2");
	set(&a, "CONDA_PREFIX", below("c/envs/e"));
	activate(&a, below("c/envs/e"), NULL, false);
	is(&a, "CONDA_SHLVL", "2");
	isnt_set(&a, "CONDA_PREFIX_2");
	assert_int_equal(a.scripts.n, 2);
	assert_string_equal(a.scripts.v[0],
			    below("c/envs/e/etc/conda/deactivate.d/off.sh"));
	assert_string_equal(a.scripts.v[1], below("c/envs/e/etc/conda/activate.d/on.sh"));
	act_done(&a);
}

static void variables_in_order_and_state_wins(void **state)
{
	struct act a = { 0 };

	(void)state;
	put("e/etc/conda/env_vars.d/b.json", "{\"A\": \"b\", \"ONLY_B\": \"x\"}");
	put("e/etc/conda/env_vars.d/a.json",
	    "{\"A\": \"a\", \"Q\": \"it's \\\"quoted\\\"\\n$(x) ü\"}");
	put("e/conda-meta/state",
	    "{\"version\": 1, \"env_vars\": {\"S\": \"state\", \"A\": \"won\", "
	    "\"GONE\": \"***unset***\", \"PATH\": \"/evil\"}}");
	set(&a, "PATH", "/bin");
	set(&a, "GONE", "here");
	activate(&a, below("e"), NULL, false);
	is(&a, "A", "won");
	is(&a, "ONLY_B", "x");
	is(&a, "Q", "it's \"quoted\"\n$(x) ü");
	is(&a, "S", "state");
	is(&a, "GONE", "here"); /* not exported, not removed */
	assert_string_not_equal(forge_strv_getenv(&a.env, "PATH"), "/evil");
	assert_true(a.warnings.n >= 3); /* A twice, PATH */
	act_done(&a);
}

static void clobbered_values_are_kept_aside(void **state)
{
	struct act a = { 0 };

	(void)state;
	put("e/conda-meta/state",
	    "{\"env_vars\": {\"FOO\": \"new\", \"SAME\": \"same\"}}");
	set(&a, "FOO", "old");
	set(&a, "SAME", "same");
	set(&a, "CONDA_SHLVL", "1");
	set(&a, "CONDA_PREFIX", "/other");
	activate(&a, below("e"), NULL, false);
	is(&a, "FOO", "new");
	is(&a, "__CONDA_SHLVL_1_FOO", "old");
	isnt_set(&a, "__CONDA_SHLVL_1_SAME");
	act_done(&a);
}

static void scripts_are_sorted_and_shell_only(void **state)
{
	struct act a = { 0 };

	(void)state;
	put("e/etc/conda/activate.d/b.sh", "");
	put("e/etc/conda/activate.d/a.sh", "");
	put("e/etc/conda/activate.d/c.csh", "");
	put("e/etc/conda/activate.d/d.fish", "");
	put("old/etc/conda/deactivate.d/1.sh", "");
	put("old/etc/conda/deactivate.d/2.sh", "");
	set(&a, "CONDA_SHLVL", "1");
	set(&a, "CONDA_PREFIX", below("old"));
	activate(&a, below("e"), NULL, false);
	assert_int_equal(a.scripts.n, 4);
	assert_string_equal(a.scripts.v[0], below("old/etc/conda/deactivate.d/2.sh"));
	assert_string_equal(a.scripts.v[1], below("old/etc/conda/deactivate.d/1.sh"));
	assert_string_equal(a.scripts.v[2], below("e/etc/conda/activate.d/a.sh"));
	assert_string_equal(a.scripts.v[3], below("e/etc/conda/activate.d/b.sh"));
	act_done(&a);
}

static void damaged_variables_are_told(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct act a = { 0 };
	struct forge_conda_spec spec = { .prefix = below("e") };

	(void)state;
	put("e/conda-meta/state", "{\"env_vars\": {");
	assert_true(forge_conda_activate(&spec, &a.env, &a.scripts, &a.warnings, &err) <
		    0);
	assert_non_null(strstr(err.msg, "conda-meta/state"));
	act_done(&a);
}

/* ---- packages ---- */

static void make_env(const char *name, const char *numpy_build)
{
	char path[256], text[1024];

	(void)snprintf(path, sizeof(path), "%s/conda-meta/history", name);
	put(path, "");
	(void)snprintf(path, sizeof(path), "%s/conda-meta/numpy-1.26.4.json", name);
	(void)snprintf(
		text, sizeof(text),
		"{\"name\": \"numpy\", \"version\": \"1.26.4\", \"build\": \"%s\", "
		"\"url\": "
		"\"https://me:secret@h.example/t/to-ken/c/linux-64/"
		"numpy-1.26.4-%s.conda\", "
		"\"md5\": \"aaaa\", \"sha256\": \"bbbb\", \"subdir\": \"linux-64\", "
		"\"depends\": [\"python >=3.9,<3.13\", \"libblas >=3\"]}",
		numpy_build, numpy_build);
	put(path, text);
	(void)snprintf(path, sizeof(path), "%s/conda-meta/python-3.11.json", name);
	put(path,
	    "{\"name\": \"python\", \"version\": \"3.11\", \"build\": \"0\", \"url\": "
	    "\"https://h.example/c/linux-64/python-3.11-0.conda\", \"md5\": \"cccc\", "
	    "\"subdir\": \"linux-64\", \"depends\": []}");
	(void)snprintf(path, sizeof(path), "%s/conda-meta/libblas-3.json", name);
	put(path,
	    "{\"name\": \"libblas\", \"version\": \"3\", \"build\": \"0\", \"fn\": "
	    "\"libblas-3-0.conda\", \"depends\": [\"numpy\"]}"); /* a circle, no URL */
	(void)snprintf(path, sizeof(path),
		       "%s/lib/python3.11/site-packages/numpy-1.26.4.dist-info/INSTALLER",
		       name);
	put(path, "conda\n");
	(void)snprintf(path, sizeof(path),
		       "%s/lib/python3.11/site-packages/tqdm-4.66.dist-info/METADATA",
		       name);
	put(path, "Metadata-Version: 2.1\nName: tqdm\nVersion: 4.66\n\nName: not this\n");
	(void)snprintf(path, sizeof(path),
		       "%s/lib/python3.11/site-packages/tqdm-4.66.dist-info/RECORD",
		       name);
	put(path, "tqdm/__init__.py,sha256=abc,12\n");
}

static void digest_of(const char *name, char digest[FORGE_DIGEST_MAX])
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(forge_conda_packages(below(name), &p, &err), 0);
	assert_int_equal(p.n, 4); /* three of conda's, one of pip's; numpy is conda's */
	forge_packages_digest(&p, digest);
	forge_packages_done(&p);
}

static void the_digest_is_of_the_content(void **state)
{
	char a[FORGE_DIGEST_MAX], b[FORGE_DIGEST_MAX];

	(void)state;
	make_env("one", "py_0");
	make_env("two", "py_0");
	digest_of("one", a);
	digest_of("two", b);
	assert_string_equal(a, b); /* in another place */
	make_env("two", "py_1");
	digest_of("two", b);
	assert_string_not_equal(a, b); /* another build */
	make_env("two", "py_0");
	put("two/lib/python3.11/site-packages/tqdm-4.66.dist-info/RECORD", "changed\n");
	digest_of("two", b);
	assert_string_not_equal(a, b); /* pip installed something else */
}

static void damaged_metadata_is_told(void **state)
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	make_env("one", "py_0");
	put("one/conda-meta/python-3.11.json", "{\"name\": \"pyth");
	assert_int_equal(forge_conda_packages(below("one"), &p, &err), -EUCLEAN);
	assert_non_null(strstr(err.msg, "python-3.11.json"));
	forge_packages_done(&p);
}

static void the_lock_is_condas(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	make_env("one", "py_0");
	assert_int_equal(forge_conda_lock(below("one"), out, &err), 0);
	fclose(out);
	const char *explicit = strstr(text, "@EXPLICIT\n");
	assert_non_null(explicit);
	assert_non_null(strstr(text, "# platform: linux-64\n"));
	assert_null(strstr(text, "secret"));
	assert_null(strstr(text, "to-ken"));
	const char *python = strstr(
		explicit, "https://h.example/c/linux-64/python-3.11-0.conda#cccc\n");
	const char *numpy = strstr(
		explicit, "https://h.example/c/linux-64/numpy-1.26.4-py_0.conda#aaaa\n");
	assert_non_null(python);
	assert_non_null(numpy);
	assert_true(python < numpy); /* what it needs comes first */
	assert_non_null(strstr(explicit, "# no URL for: libblas-3-0.conda\n"));
	assert_non_null(strstr(explicit, "# pip: tqdm==4.66 sha256:"));
	free(text);
}

static void environments_are_found(void **state)
{
	forge_auto_strv struct forge_strv pairs = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	char *prefix = NULL, *root = NULL, text[512];
	bool has_named = false, has_listed = false;

	(void)state;
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	put("home/miniconda3/envs/ml/conda-meta/history", "");
	put("home/miniconda3/envs/junk/file", "");
	put("home/elsewhere/conda-meta/history", "");
	put("mine/x/conda-meta/history", "");
	(void)snprintf(text, sizeof(text), "%s\n/stale/path\n", below("home/elsewhere"));
	put("home/.conda/environments.txt", text);
	(void)snprintf(text, sizeof(text), "envs_dirs:\n  - %s\n", below("mine"));
	put("home/.condarc", text);
	assert_int_equal(setenv("HOME", below("home"), 1), 0);
	assert_int_equal(unsetenv("CONDA_EXE"), 0);
	assert_int_equal(forge_conda_discover(&pairs, &err), 0);
	for (size_t i = 0; i + 1 < pairs.n; i += 2) {
		has_named |= strcmp(pairs.v[i], "ml") == 0;
		has_listed |= strcmp(pairs.v[i + 1], below("home/elsewhere")) == 0 &&
			      !*pairs.v[i];
		assert_string_not_equal(pairs.v[i], "junk");
	}
	assert_true(has_named);
	assert_true(has_listed);
	assert_int_equal(pairs.n, 8); /* base, ml, x, elsewhere */
	assert_int_equal(forge_conda_resolve("ml", &prefix, &root, &err), 0);
	assert_string_equal(prefix, below("home/miniconda3/envs/ml"));
	assert_string_equal(root, below("home/miniconda3"));
	free(prefix);
	free(root);
	assert_int_equal(forge_conda_resolve("base", &prefix, &root, &err), 0);
	assert_string_equal(prefix, below("home/miniconda3"));
	free(prefix);
	free(root);
	assert_int_equal(forge_conda_resolve("nope", &prefix, &root, &err), -ENOENT);
	assert_int_equal(forge_conda_resolve(below("home/miniconda3/envs/junk"), &prefix,
					     &root, &err),
			 -ENOENT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(level_0_puts_it_in_front),
		TEST(condabin_is_there_once),
		TEST(odd_paths),
		TEST(names_follow_the_place),
		TEST(above_level_0_the_old_place_is_taken),
		TEST(stacking_keeps_the_old_one),
		TEST(the_same_again_is_no_new_level),
		TEST(variables_in_order_and_state_wins),
		TEST(clobbered_values_are_kept_aside),
		TEST(scripts_are_sorted_and_shell_only),
		TEST(damaged_variables_are_told),
		TEST(the_digest_is_of_the_content),
		TEST(damaged_metadata_is_told),
		TEST(the_lock_is_condas),
		TEST(environments_are_found),
	};

	return cmocka_run_group_tests_name("conda", tests, NULL, NULL);
}
