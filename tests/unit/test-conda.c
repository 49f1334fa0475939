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
#include "runtime/conda_config.h"
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
					 .prompt = "({default_env}) " };
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
	is(&a, "PATH", "/c/envs/e/bin:/x/mycondabin:/bin"); /* conda looks no closer */
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
	is(&a, "PATH", "/c/envs/e/bin:.:.:/bin:."); /* each the current directory */
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
	is(&a, "__CONDA_SHLVL_1_SAME", "same"); /* kept too, but nothing to warn of */
	assert_int_equal(a.warnings.n, 1);
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

/* conda's own record of an environment has no limit; ours has one that is never met. */
static void a_large_state_is_read(void **state)
{
	struct act a = { 0 };
	const size_t size = 5u << 20;
	char *text = malloc(size + 64);

	(void)state;
	assert_non_null(text);
	int n = snprintf(text, 64, "{\"env_vars\": {\"V\": \"here\"}, \"note\": \"");
	memset(text + n, 'x', size);
	(void)snprintf(text + n + size, 8, "\"}");
	put("e/conda-meta/state", text);
	free(text);
	activate(&a, below("e"), NULL, false);
	is(&a, "V", "here");
	act_done(&a);
}

/* ---- every rule, as a table ---- */

#define STACK	  1u
#define MAMBA	  2u
#define KEEP_CASE 4u
#define NO_PROMPT 8u
#define AUTO_STACK_2 16u
#define SHOW_STACK   32u

/* In all strings '@' is the directory of the test. A name without '=' must not be set. */
struct rule {
	const char *what, *prefix, *root;
	unsigned flags;
	const char *files[6];	/* "path content" */
	const char *before[6];	/* "K=V" */
	const char *after[8];	/* "K=V" or "K" */
	const char *scripts[5]; /* in order */
	size_t warnings;
};

#define STATE(vars) "e/conda-meta/state {\"version\": 1, \"env_vars\": {" vars "}}"

static const struct rule rules[] = {
	/* PATH */
	{ "level 0: in front, conda's directory behind it", "@/e", "/c", 0, { NULL },
	  { "PATH=/usr/bin:/bin" },
	  { "PATH=@/e/bin:/c/condabin:/usr/bin:/bin", "CONDA_SHLVL=1", "CONDA_PREFIX=@/e" },
	  { NULL }, 0 },
	{ "an empty level is level 0", "@/e", "/c", 0, { NULL },
	  { "PATH=/bin", "CONDA_SHLVL=" },
	  { "PATH=@/e/bin:/c/condabin:/bin", "CONDA_SHLVL=1" }, { NULL }, 0 },
	{ "PATH that is not set", "@/e", "/c", 0, { NULL }, { "X=1" },
	  { "PATH=@/e/bin:/c/condabin:/usr/bin" }, { NULL }, 0 },
	{ "PATH that is empty", "@/e", NULL, 0, { NULL }, { "PATH=" }, { "PATH=@/e/bin:." },
	  { NULL }, 0 },
	{ "PATH is normalised", "@/e", NULL, 0, { NULL },
	  { "PATH=/usr/bin/:/a/../b//c/./d:../x/..:./y:///z:/.." },
	  { "PATH=@/e/bin:/usr/bin:/b/c/d:..:y:/z:/" }, { NULL }, 0 },
	{ "no duplicate is removed", "@/e", "/c", 0, { NULL },
	  { "PATH=@/e/bin:/bin:/bin:@/e/bin" },
	  { "PATH=@/e/bin:/c/condabin:@/e/bin:/bin:/bin:@/e/bin" }, { NULL }, 0 },
	{ "condabin of anybody's will do", "@/e", "/c", 0, { NULL },
	  { "PATH=/bin:/other/condabin" }, { "PATH=@/e/bin:/bin:/other/condabin" }, { NULL },
	  0 },
	{ "condabin/x is not condabin", "@/e", "/c", 0, { NULL }, { "PATH=/condabin/x" },
	  { "PATH=@/e/bin:/c/condabin:/condabin/x" }, { NULL }, 0 },
	{ "above level 0: in place of the old one", "@/e", "/c", 0, { NULL },
	  { "PATH=/a:/o/bin:/b:/o/bin", "CONDA_SHLVL=1", "CONDA_PREFIX=/o" },
	  { "PATH=/a:@/e/bin:/b:/o/bin", "CONDA_SHLVL=2", "CONDA_PREFIX_1=/o",
	    "CONDA_STACKED_2" }, { NULL }, 0 },
	{ "... also when it ends in a slash", "@/e", "/c", 0, { NULL },
	  { "PATH=/a:/o/bin/:/b", "CONDA_SHLVL=1", "CONDA_PREFIX=/o" },
	  { "PATH=/a:@/e/bin:/b" }, { NULL }, 0 },
	{ "... but not what only begins like it", "@/e", "/c", 0, { NULL },
	  { "PATH=/o/bin2:/o/bin/x", "CONDA_SHLVL=1", "CONDA_PREFIX=/o" },
	  { "PATH=@/e/bin:/o/bin2:/o/bin/x" }, { NULL }, 0 },
	{ "... in front when it is not there, without condabin", "@/e", "/c", 0, { NULL },
	  { "PATH=/bin", "CONDA_SHLVL=7", "CONDA_PREFIX=/o" },
	  { "PATH=@/e/bin:/bin", "CONDA_SHLVL=8", "CONDA_PREFIX_7=/o" }, { NULL }, 0 },
	{ "... and so are both of them", "@/e", "/c", 0, { NULL },
	  { "PATH=/a//b:/x/../o/bin:/bin/", "CONDA_SHLVL=1", "CONDA_PREFIX=/o/" },
	  { "PATH=/a/b:@/e/bin:/bin" }, { NULL }, 0 },
	{ "... and in front where nobody knows which it was", "@/e", "/c", 0, { NULL },
	  { "PATH=/a:/bin", "CONDA_SHLVL=1" }, { "PATH=@/e/bin:/a:/bin", "CONDA_PREFIX_1=" },
	  { NULL }, 0 },
	{ "stacked: in front, the old one stays", "@/e", "/c", STACK,
	  { "o/etc/conda/deactivate.d/x.sh " },
	  { "PATH=@/o/bin:/bin", "CONDA_SHLVL=1", "CONDA_PREFIX=@/o" },
	  { "PATH=@/e/bin:@/o/bin:/bin", "CONDA_STACKED_2=true", "CONDA_PREFIX_1=@/o" },
	  { NULL }, 0 },
	{ "stacked on nothing is not stacked", "@/e", "/c", STACK, { NULL }, { "PATH=/bin" },
	  { "PATH=@/e/bin:/c/condabin:/bin", "CONDA_STACKED_1", "CONDA_PREFIX_0" }, { NULL },
	  0 },
	{ "auto_stack: stacked up to that level", "@/e", "/c", AUTO_STACK_2, { NULL },
	  { "PATH=/o/bin:/bin", "CONDA_SHLVL=2", "CONDA_PREFIX=/o" },
	  { "PATH=@/e/bin:/o/bin:/bin", "CONDA_STACKED_3=true" }, { NULL }, 0 },
	{ "... and not above it", "@/e", "/c", AUTO_STACK_2, { NULL },
	  { "PATH=/o/bin:/bin", "CONDA_SHLVL=3", "CONDA_PREFIX=/o" },
	  { "PATH=@/e/bin:/bin", "CONDA_STACKED_4" }, { NULL }, 0 },
	{ "{stacked_env}: those whose directories are in PATH, the last first", "@/e", "/c",
	  STACK | SHOW_STACK, { NULL },
	  { "PATH=/bin", "CONDA_SHLVL=3", "CONDA_PREFIX=/c/envs/three",
	    "CONDA_PREFIX_1=/c", "CONDA_PREFIX_2=/c/envs/two", "CONDA_STACKED_2=true" },
	  { "CONDA_PROMPT_MODIFIER=@/e,three,base" }, { NULL }, 0 },
	{ "... of which one is replaced where nothing is stacked", "@/e", "/c", SHOW_STACK,
	  { NULL }, { "PATH=/bin", "CONDA_SHLVL=2", "CONDA_PREFIX=/c/envs/two",
		      "CONDA_PREFIX_1=/c", "CONDA_STACKED_2=true" },
	  { "CONDA_PROMPT_MODIFIER=@/e,base" }, { NULL }, 0 },
	{ "... and none is new when it is the same again", "@/e", "/c", SHOW_STACK, { NULL },
	  { "PATH=/bin", "CONDA_SHLVL=2", "CONDA_PREFIX=@/e", "CONDA_PREFIX_1=/c",
	    "CONDA_STACKED_2=true" },
	  { "CONDA_PROMPT_MODIFIER=@/e,base" }, { NULL }, 0 },
	/* the same once more */
	{ "again: the level stays, variables are not set again", "@/e", "/c", 0,
	  { STATE("\"V\": \"new\""), "e/etc/conda/activate.d/on.sh ",
	    "e/etc/conda/deactivate.d/off.sh " },
	  { "PATH=/a:@/e/bin:/b", "CONDA_SHLVL=2", "CONDA_PREFIX=@/e", "V=mine",
	    "CONDA_DEFAULT_ENV=called" },
	  { "PATH=/a:@/e/bin:/b", "CONDA_SHLVL=2", "V=mine", "__CONDA_SHLVL_2_V",
	    "CONDA_PREFIX_2", "CONDA_PROMPT_MODIFIER=(called) ",
	    "CONDA_DEFAULT_ENV=called" },
	  { "@/e/etc/conda/deactivate.d/off.sh", "@/e/etc/conda/activate.d/on.sh" }, 0 },
	{ "again: stacking makes no difference", "@/e", "/c", STACK, { NULL },
	  { "PATH=/a:@/e/bin", "CONDA_SHLVL=1", "CONDA_PREFIX=@/e" },
	  { "PATH=/a:@/e/bin", "CONDA_SHLVL=1", "CONDA_STACKED_2", "CONDA_PREFIX_1" },
	  { NULL }, 0 },
	{ "its prefix at level 0 is not again", "@/e", NULL, 0, { NULL },
	  { "PATH=/bin", "CONDA_PREFIX=@/e" },
	  { "PATH=@/e/bin:/bin", "CONDA_SHLVL=1" }, { NULL }, 0 },
	/* names */
	{ "the installation is base", "/c", "/c", 0, { NULL }, { NULL },
	  { "CONDA_DEFAULT_ENV=base", "CONDA_PROMPT_MODIFIER=(base) " }, { NULL }, 0 },
	{ "in envs/ its name", "/x y/envs/größe 1", "/c", 0, { NULL }, { NULL },
	  { "CONDA_DEFAULT_ENV=größe 1", "CONDA_PROMPT_MODIFIER=(größe 1) " }, { NULL }, 0 },
	{ "directly in /envs too", "/envs/e", NULL, 0, { NULL }, { NULL },
	  { "CONDA_DEFAULT_ENV=e" }, { NULL }, 0 },
	{ "elsewhere its path", "/srv/e", "/c", 0, { NULL }, { NULL },
	  { "CONDA_DEFAULT_ENV=/srv/e", "CONDA_PROMPT_MODIFIER=(/srv/e) " }, { NULL }, 0 },
	{ "no prompt when it is not wanted", "@/e", NULL, NO_PROMPT, { NULL }, { NULL },
	  { "CONDA_PROMPT_MODIFIER=" }, { NULL }, 0 },
	{ "of conda itself", "@/e", "/c", 0, { NULL }, { "_CE_M=x" },
	  { "CONDA_EXE=/c/bin/conda", "_CONDA_EXE=/c/bin/conda",
	    "CONDA_PYTHON_EXE=/c/bin/python", "_CONDA_ROOT=/c", "_CE_M=", "_CE_CONDA=" },
	  { NULL }, 0 },
	{ "... where there is one", "@/e", NULL, 0, { NULL }, { "PATH=/bin" },
	  { "PATH=@/e/bin:/bin", "CONDA_EXE", "_CONDA_ROOT", "_CE_M" }, { NULL }, 0 },
	/* variables */
	{ "files in order, the later wins", "@/e", NULL, 0,
	  { "e/etc/conda/env_vars.d/b {\"A\": \"b\"}", "e/etc/conda/env_vars.d/a.json {\"A\": "
	    "\"a\", \"ONLY\": \"a\"}",
	    "e/etc/conda/env_vars.d/.c {\"H\": \"hidden too\"}" },
	  { NULL }, { "A=b", "ONLY=a", "H=hidden too" }, { NULL }, 1 },
	{ "state wins, and is warned of", "@/e", NULL, 0,
	  { "e/etc/conda/env_vars.d/a {\"A\": \"a\"}", STATE("\"A\": \"s\"") }, { NULL },
	  { "A=s" }, { NULL }, 1 },
	{ "unset: not exported, and not removed", "@/e", NULL, 0,
	  { STATE("\"A\": \"***unset***\", \"B\": \"***unset***\"") }, { "B=here" },
	  { "A", "B=here", "__CONDA_SHLVL_0_B" }, { NULL }, 0 },
	{ "PATH is reserved", "@/e", NULL, 0, { STATE("\"PATH\": \"/evil\"") },
	  { "PATH=/bin" }, { "PATH=@/e/bin:/bin" }, { NULL }, 1 },
	{ "... in small letters too", "@/e", NULL, 0, { STATE("\"path\": \"/evil\"") },
	  { "PATH=/bin" }, { "PATH=@/e/bin:/bin", "path" }, { NULL }, 1 },
	{ "names are in capitals", "@/e", NULL, 0, { STATE("\"Path_x\": \"1\"") }, { NULL },
	  { "PATH_X=1", "Path_x" }, { NULL }, 0 },
	{ "... unless conda is told otherwise", "@/e", NULL, KEEP_CASE,
	  { STATE("\"Path_x\": \"1\"") }, { NULL }, { "Path_x=1", "PATH_X" }, { NULL }, 0 },
	{ "what was there is kept aside and warned of", "@/e", NULL, 0,
	  { STATE("\"A\": \"new\"") }, { "A=old" }, { "A=new", "__CONDA_SHLVL_0_A=old" },
	  { NULL }, 1 },
	{ "... kept aside but not warned of when it is the same", "@/e", NULL, 0,
	  { STATE("\"A\": \"same\"") }, { "A=same" }, { "__CONDA_SHLVL_0_A=same" }, { NULL },
	  0 },
	{ "... under the level it had", "@/e", NULL, 0, { STATE("\"A\": \"new\"") },
	  { "A=old", "CONDA_SHLVL=3", "CONDA_PREFIX=/o" }, { "__CONDA_SHLVL_3_A=old" },
	  { NULL }, 1 },
	{ "values are what they are", "@/e", NULL, 0,
	  { STATE("\"Q\": \"a'b\\\"c`d`$(e) \\\\n\\n\\tü\", \"E\": \"\"") }, { NULL },
	  { "Q=a'b\"c`d`$(e) \\n\n\tü", "E=" }, { NULL }, 0 },
	{ "numbers and truths are values, as Python writes them", "@/e", NULL, 0,
	  { STATE("\"N\": 4, \"T\": true, \"F\": false, \"R\": 1.50, \"E\": 1e16, \"M\": -0, "
		  "\"S\": 0.00001") },
	  { NULL }, { "N=4", "T=True", "F=False", "R=1.5", "E=1e+16", "M=0", "S=1e-05" },
	  { NULL }, 0 },
	{ "null is empty, and what was there is kept aside", "@/e", NULL, 0,
	  { STATE("\"Z\": null, \"Y\": null") }, { "Y=old" },
	  { "Z=", "Y=", "__CONDA_SHLVL_0_Y=old" }, { NULL }, 1 },
	{ "null goes before values, whatever the order", "@/e", NULL, 0,
	  { STATE("\"FOO\": \"x\", \"foo\": null") }, { "X=1" }, { "FOO=x" }, { NULL }, 0 },
	{ "what conda sets itself is conda's", "@/e", NULL, 0,
	  { STATE("\"CONDA_SHLVL\": 7, \"CONDA_PREFIX\": \"/evil\", \"CONDA_DEFAULT_ENV\": "
		  "\"x\", \"CONDA_PROMPT_MODIFIER\": \"x\", \"CONDA_OTHER\": 1") },
	  { "X=1" }, { "CONDA_SHLVL=1", "CONDA_PREFIX=@/e", "CONDA_OTHER=1" }, { NULL }, 4 },
	{ "a list or a map is no value, and told", "@/e", NULL, 0,
	  { STATE("\"L\": [1], \"O\": {\"A\": 1}, \"N\": 1") }, { NULL },
	  { "L", "O", "N=1" }, { NULL }, 2 },
	{ "numbers of any length, and those that are none", "@/e", NULL, 0,
	  { STATE("\"B\": 123456789012345678901234567890, \"N\": NaN, \"I\": Infinity, "
		  "\"J\": -Infinity, \"K\": 1e999, \"D\": 0.1") },
	  { NULL }, { "B=123456789012345678901234567890", "N=nan", "I=inf", "J=-inf",
		      "K=inf", "D=0.1" }, { NULL }, 0 },
	{ "text that looks like a number is text", "@/e", NULL, 0,
	  { STATE("\"A\": \"007\", \"B\": \"NaN\", \"C\": \"\\\\\\\"-1\"") }, { NULL },
	  { "A=007", "B=NaN", "C=\\\"-1" }, { NULL }, 0 },
	{ "two spellings of one name: the later one, and nothing is kept aside", "@/e",
	  NULL, 0, { STATE("\"foo\": 1, \"FOO\": 2") }, { "X=1" },
	  { "FOO=2", "foo", "__CONDA_SHLVL_0_FOO" }, { NULL }, 0 },
	{ "... but what was there", "@/e", NULL, 0, { STATE("\"foo\": 1, \"FOO\": 2") },
	  { "FOO=old" }, { "FOO=2", "__CONDA_SHLVL_0_FOO=old" }, { NULL }, 1 },
	{ "... also in small letters", "@/e", NULL, 0,
	  { STATE("\"foo\": 1, \"FOO\": 2") }, { "foo=old" },
	  { "FOO=2", "foo=old", "__CONDA_SHLVL_0_FOO=old" }, { NULL }, 1 },
	{ "state without variables", "@/e", NULL, 0, { "e/conda-meta/state {\"version\": 1}" },
	  { NULL }, { "CONDA_SHLVL=1" }, { NULL }, 0 },
	{ "variables that are none", "@/e", NULL, 0,
	  { "e/conda-meta/state {\"env_vars\": [\"A\"]}" }, { NULL }, { "CONDA_SHLVL=1" },
	  { NULL }, 1 },
	/* names that nobody can set */
	{ "what is no name is left out", "@/e", NULL, 0,
	  { STATE("\"A=B\": \"1\", \"\": \"2\", \"1X\": \"3\", \"a b\": \"4\", \"N\\nL\": \"5\"") },
	  { NULL }, { "A", "1X", "a b", "A B", "CONDA_SHLVL=1" }, { NULL }, 5 },
	{ "forge's own are forge's", "@/e", NULL, 0,
	  { STATE("\"FORGE_RUN_ID\": \"1\", \"forge_home\": \"2\"") }, { NULL },
	  { "FORGE_RUN_ID", "FORGE_HOME" }, { NULL }, 2 },
	/* scripts */
	{ "old ones backwards, then new ones; .sh alone, hidden ones too", "@/e", NULL, 0,
	  { "e/etc/conda/activate.d/b.sh ", "e/etc/conda/activate.d/.a.sh ",
	    "e/etc/conda/activate.d/c.fish ", "o/etc/conda/deactivate.d/1.sh ",
	    "o/etc/conda/deactivate.d/2.sh " },
	  { "CONDA_SHLVL=1", "CONDA_PREFIX=@/o" }, { "CONDA_SHLVL=2" },
	  { "@/o/etc/conda/deactivate.d/2.sh", "@/o/etc/conda/deactivate.d/1.sh",
	    "@/e/etc/conda/activate.d/.a.sh", "@/e/etc/conda/activate.d/b.sh" }, 0 },
	{ "names with blanks and line breaks are names", "@/e", NULL, 0,
	  { "e/etc/conda/activate.d/a\nb.sh " }, { NULL }, { "CONDA_SHLVL=1" },
	  { "@/e/etc/conda/activate.d/a\nb.sh" }, 0 },
	/* mamba */
	{ "mamba: level 0", "@/e", "/m", MAMBA, { NULL }, { "PATH=/bin" },
	  { "PATH=@/e/bin:/m/condabin:/bin", "CONDA_SHLVL=1", "CONDA_EXE", "_CONDA_EXE",
	    "CONDA_PYTHON_EXE", "_CONDA_ROOT", "_CE_M", "_CE_CONDA" }, { NULL }, 0 },
	{ "mamba: equal neighbours become one", "@/e", "/m", MAMBA, { NULL },
	  { "PATH=/m/condabin:/bin:/bin:/a:/bin" },
	  { "PATH=@/e/bin:/m/condabin:/bin:/a:/bin" }, { NULL }, 0 },
	{ "mamba: all of the old one go, the new one is in front", "@/e", "/m", MAMBA,
	  { NULL }, { "PATH=/a:/o/bin:/a:/o/bin:/b", "CONDA_SHLVL=1", "CONDA_PREFIX=/o" },
	  { "PATH=@/e/bin:/a:/b", "CONDA_SHLVL=2", "CONDA_PREFIX_1=/o" }, { NULL }, 0 },
	{ "mamba: stacked, the old one stays", "@/e", "/m", MAMBA | STACK, { NULL },
	  { "PATH=/o/bin:/b", "CONDA_SHLVL=1", "CONDA_PREFIX=/o" },
	  { "PATH=@/e/bin:/o/bin:/b", "CONDA_STACKED_2=true" }, { NULL }, 0 },
	{ "mamba: looks for the name that it sets", "@/e", "/m", MAMBA,
	  { STATE("\"low\": \"new\"") }, { "LOW=old" },
	  { "LOW=new", "__CONDA_SHLVL_0_LOW=old", "low" }, { NULL }, 1 },
};

/* The '@' of a rule. */
static const char *at(const char *text)
{
	static char out[4][1024];
	static int n;
	size_t len = 0;

	n = (n + 1) % 4;
	out[n][0] = '\0';
	for (; *text && len < sizeof(out[n]); text++)
		len += (size_t)snprintf(out[n] + len, sizeof(out[n]) - len, "%.*s",
					*text == '@' ? 64 : 1, *text == '@' ? top : text);
	return out[n];
}

static void prepare(const struct rule *r, struct act *a)
{
	char path[256];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(r->files) && r->files[i]; i++) {
		size_t len = strcspn(r->files[i], " ");
		(void)snprintf(path, sizeof(path), "%.*s", (int)len, r->files[i]);
		put(path, r->files[i] + len + 1);
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(r->before) && r->before[i]; i++)
		assert_int_equal(forge_strv_add(&a->env, at(r->before[i])), 0);
}

static bool holds(const struct act *a, const char *after)
{
	forge_auto_free char *name = strndup(after, strcspn(after, "="));
	const char *value = forge_strv_getenv(&a->env, name);
	bool ok = after[strlen(name)] ? value && strcmp(value, after + strlen(name) + 1) == 0
				      : !value;

	if (!ok)
		print_error("wanted %s, got %s=%s\n", after, name, value ? value : "(unset)");
	return ok;
}

/* True when all of it is as conda would have it. */
static bool follows(const struct rule *r)
{
	struct act a = { 0 };
	forge_auto_free char *prefix = strdup(at(r->prefix));
	struct forge_conda_spec spec = { .prefix = prefix,
					 .root_prefix = r->root,
					 .stack = r->flags & STACK,
					 .is_mamba = r->flags & MAMBA,
					 .keep_case = r->flags & KEEP_CASE,
					 .auto_stack = r->flags & AUTO_STACK_2 ? 2 : 0,
					 .prompt = r->flags & NO_PROMPT    ? ""
						   : r->flags & SHOW_STACK ? "{stacked_env}"
									   : "({default_env}) " };
	bool ok = true;
	size_t n = 0;

	prepare(r, &a);
	ok = forge_conda_activate(&spec, &a.env, &a.scripts, &a.warnings, NULL) == 0;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(r->after) && r->after[i]; i++)
		ok = holds(&a, at(r->after[i])) && ok;
	for (; n < FORGE_ARRAY_SIZE(r->scripts) && r->scripts[n]; n++)
		ok = n < a.scripts.n && strcmp(a.scripts.v[n], at(r->scripts[n])) == 0 && ok;
	ok = ok && n == a.scripts.n && a.warnings.n == r->warnings;
	if (a.warnings.n != r->warnings)
		print_error("%zu warnings\n", a.warnings.n);
	act_done(&a);
	return ok;
}

static void every_rule_holds(void **state)
{
	size_t broken = 0;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rules); i++) {
		if (!follows(&rules[i])) {
			print_error("broken: %s\n", rules[i].what);
			broken++;
		}
		assert_int_equal(leave(state), 0);
		assert_int_equal(enter(state), 0);
	}
	assert_int_equal(broken, 0);
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
		"\"files\": [\"lib/x-info.h\", \"lib/python3.11/site-packages/"
		"numpy-1.26.4.dist-info/METADATA\"], "
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

/* A package that only says that conda installed it is one that conda knows nothing of. */
static void the_installer_is_not_believed(void **state)
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	make_env("one", "py_0");
	put("one/lib/python3.11/site-packages/evil-1.dist-info/INSTALLER", "conda\n");
	put("one/lib/python3.11/site-packages/evil-1.dist-info/METADATA",
	    "Name: evil\nVersion: 1\n");
	assert_int_equal(forge_conda_packages(below("one"), &p, &err), 0);
	assert_int_equal(p.n, 5);
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

/* ---- finding ---- */

static void home_alone(void)
{
	static const char *const names[] = { "CONDA_EXE",	"CONDA_ROOT",
					     "MAMBA_ROOT_PREFIX", "CONDA_ENVS_DIRS",
					     "CONDA_ENVS_PATH",	"CONDARC",
					     "CONDA_PREFIX",	"XDG_CONFIG_HOME",
					     "XDG_DATA_HOME",	"CONDA_ENVVARS_FORCE_UPPERCASE" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(names); i++)
		assert_int_equal(unsetenv(names[i]), 0);
	assert_int_equal(setenv("HOME", below("home"), 1), 0);
}

/* name leads to the directory wanted below top, or nowhere (NULL). */
static void resolves(const char *name, const char *wanted)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_free char *prefix = NULL, *root = NULL;
	int rc = forge_conda_resolve(name, &prefix, &root, &err);

	if (!wanted) {
		assert_true(rc < 0);
		assert_true(err.msg[0]);
		return;
	}
	if (rc < 0)
		fail_msg("%s: %s", name, err.msg);
	assert_string_equal(prefix, below(wanted));
}

static void names_and_paths_are_resolved_as_conda_does(void **state)
{
	(void)state;
	home_alone();
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	put("home/miniconda3/envs/e/conda-meta/history", "");
	resolves("base", "home/miniconda3");
	resolves("root", "home/miniconda3");
	resolves("e", "home/miniconda3/envs/e");
	/* A path needs conda-meta, not its history. */
	put("made/conda-meta/x.json", "{}");
	resolves(below("made"), "made");
	put("made2/bin/x", "");
	resolves(below("made2"), NULL);
	resolves(below("nowhere"), NULL);
	/* What conda makes no environment by, but activates. */
	put("home/miniconda3/envs/a b/conda-meta/history", "");
	put("home/miniconda3/envs/a:b/conda-meta/history", "");
	put("home/miniconda3/envs/a#b/conda-meta/history", "");
	resolves("a b", "home/miniconda3/envs/a b");
	resolves("a:b", "home/miniconda3/envs/a:b");
	resolves("a#b", "home/miniconda3/envs/a#b");
	resolves("no b", NULL);
	resolves("..", NULL);
	resolves("", NULL);
	/* Paths are expanded. */
	resolves("~/miniconda3/envs/e", "home/miniconda3/envs/e");
	assert_int_equal(setenv("SOMEWHERE", below("home/miniconda3"), 1), 0);
	resolves("$SOMEWHERE/envs/e", "home/miniconda3/envs/e");
	resolves("${SOMEWHERE}/envs/../envs/e/", "home/miniconda3/envs/e");
	/* The first directory of that name counts, also when it is none. */
	put("first/e/bin/x", "");
	assert_int_equal(setenv("CONDA_ENVS_DIRS", below("first"), 1), 0);
	resolves("e", NULL);
	put("first/e/conda-meta/history", "");
	resolves("e", "first/e");
}

/* Every place of a condarc; each later one goes before those before it. */
static void every_condarc_is_read_the_last_first(void **state)
{
	static const char *const places[] = {
		"home/miniconda3/.condarc", "home/miniconda3/condarc",
		"home/miniconda3/condarc.d/a.yml", "xdg/conda/.condarc",
		"xdg/conda/condarc", "xdg/conda/condarc.d/a.yaml",
		"home/.config/conda/.condarc", "home/.config/conda/condarc",
		"home/.config/conda/condarc.d/b.yml", "home/.conda/.condarc",
		"home/.conda/condarc", "home/.conda/condarc.d/c.yml", "home/.condarc",
		"active/.condarc", "active/condarc", "active/condarc.d/d.yml", "explicit.yml",
	};
	char text[600], dir[64], env[96];

	(void)state;
	home_alone();
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	assert_int_equal(setenv("XDG_CONFIG_HOME", below("xdg"), 1), 0);
	assert_int_equal(setenv("CONDA_PREFIX", below("active"), 1), 0);
	assert_int_equal(setenv("CONDARC", below("explicit.yml"), 1), 0);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(places); i++) {
		(void)snprintf(dir, sizeof(dir), "dirs/%zu", i);
		(void)snprintf(env, sizeof(env), "%s/e/conda-meta/history", dir);
		put(env, "");
		(void)snprintf(text, sizeof(text), "envs_dirs:\n  - %s\n", below(dir));
		put(places[i], text);
		(void)snprintf(env, sizeof(env), "%s/e", dir);
		resolves("e", env);
	}
	/* The environment goes before all files. */
	put("env/e/conda-meta/history", "");
	assert_int_equal(setenv("CONDA_ENVS_PATH", below("env"), 1), 0);
	resolves("e", "env/e");
}

static void directories_are_expanded(void **state)
{
	(void)state;
	home_alone();
	put("home/mine/e/conda-meta/history", "");
	put("home/.condarc", "envs_dirs: [no/such, '~/mine', '$NOT_SET/x']\n");
	resolves("e", "home/mine/e");
	put("other/f/conda-meta/history", "");
	assert_int_equal(setenv("SOMEWHERE", below("other"), 1), 0);
	put("home/.condarc", "envs_dirs: ['${SOMEWHERE}']\n");
	resolves("f", "other/f");
	put("home/.condarc", "envs_dirs: [$SOMEWHERE/]\n");
	resolves("f", "other/f");
}

static void ones_own_come_after_a_root_that_one_may_write(void **state)
{
	(void)state;
	home_alone();
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	put("home/miniconda3/envs/e/conda-meta/history", "");
	put("home/.conda/envs/e/conda-meta/history", "");
	resolves("e", "home/miniconda3/envs/e");
	/* Which is one whose history one may write, says conda. */
	assert_int_equal(chmod(below("home/miniconda3/conda-meta/history"), 0444), 0);
	/* Root may write everywhere. */
	resolves("e", geteuid() == 0 ? "home/miniconda3/envs/e" : "home/.conda/envs/e");
}

/* Pairs as "name=path below top" words, in the order found. */
static void discovers(const char *const *wanted)
{
	forge_auto_strv struct forge_strv pairs = { 0 };
	char text[600];
	size_t n = 0;

	assert_int_equal(forge_conda_discover(&pairs, NULL), 0);
	for (size_t i = 0; i + 1 < pairs.n; i += 2)
		print_message("# %s=%s\n", pairs.v[i], pairs.v[i + 1]);
	for (; wanted[n]; n++) {
		bool is_found = false;
		for (size_t i = 0; i + 1 < pairs.n; i += 2) {
			(void)snprintf(text, sizeof(text), "%s=%s", pairs.v[i],
				       pairs.v[i + 1] + strlen(top) + 1);
			is_found |= strcmp(text, wanted[n]) == 0;
		}
		if (!is_found)
			fail_msg("%s is not found", wanted[n]);
	}
	assert_int_equal(pairs.n, 2 * n);
}

static void garbage_in_environments_txt_is_passed_over(void **state)
{
	char text[2000];

	(void)state;
	home_alone();
	put("home/.conda/envs/named/conda-meta/history", "");
	put("plain/conda-meta/history", "");
	put("fake/conda-meta/history/x", "");
	put("rel/conda-meta/history", "");
	assert_int_equal(chdir(top), 0);
	(void)snprintf(text, sizeof(text),
		       "\n\n  \nrel\n./rel\n%s/plain\r\n%s/plain\n%s/fake\n/\n\x01\xff\n%0900d\n"
		       "/dev/null\n%s/home/.conda/envs/named\nlast without an end",
		       top, top, top, 0, top);
	put("home/.conda/environments.txt", text);
	discovers((const char *const[]){ "named=home/.conda/envs/named", "=plain", NULL });
	assert_int_equal(chdir("/"), 0);
	/* A fifo in its place is not waited for. */
	assert_int_equal(unlink(below("home/.conda/environments.txt")), 0);
	assert_int_equal(mkfifo(below("home/.conda/environments.txt"), 0600), 0);
	assert_int_equal(mkfifo(below("home/.condarc"), 0600), 0);
	discovers((const char *const[]){ "named=home/.conda/envs/named", NULL });
}

static void micromamba_has_a_root_without_conda(void **state)
{
	forge_auto_free char *prefix = NULL, *root = NULL;

	(void)state;
	home_alone();
	put("home/micromamba/envs/m/conda-meta/history", "");
	put("home/micromamba/pkgs/urls.txt", "");
	discovers((const char *const[]){ "m=home/micromamba/envs/m", NULL });
	assert_int_equal(forge_conda_resolve("m", &prefix, &root, NULL), 0);
	assert_string_equal(prefix, below("home/micromamba/envs/m"));
	assert_string_equal(root, below("home/micromamba"));
	assert_true(forge_conda_is_mamba(root));
	/* Beside a conda both are found, and each has its own root. */
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	put("home/miniconda3/envs/c/conda-meta/history", "");
	discovers((const char *const[]){ "base=home/miniconda3", "c=home/miniconda3/envs/c",
					 "m=home/micromamba/envs/m", NULL });
	free(prefix);
	free(root);
	prefix = root = NULL;
	assert_int_equal(forge_conda_resolve("m", &prefix, &root, NULL), 0);
	assert_string_equal(root, below("home/micromamba"));
	assert_false(forge_conda_is_mamba(below("home/miniconda3")));
	/* Where it is said to be, and where version 2 puts it. */
	put("m2/envs/n/conda-meta/history", "");
	put("m2/pkgs/x", "");
	assert_int_equal(setenv("MAMBA_ROOT_PREFIX", below("m2"), 1), 0);
	resolves("n", "m2/envs/n");
	assert_int_equal(unsetenv("MAMBA_ROOT_PREFIX"), 0);
	assert_int_equal(rename(below("home/micromamba"), below("gone")), 0);
	put("home/.local/share/mamba/envs/o/conda-meta/history", "");
	put("home/.local/share/mamba/pkgs/x", "");
	resolves("o", "home/.local/share/mamba/envs/o");
}

static void pixi_has_no_root_at_all(void **state)
{
	forge_auto_free char *prefix = NULL, *root = NULL;

	(void)state;
	home_alone();
	put("home/miniconda3/condabin/conda", "");
	put("home/miniconda3/conda-meta/history", "");
	put("p/.pixi/envs/default/conda-meta/pixi", "{\"environment_name\": \"default\"}");
	put("p/.pixi/envs/default/conda-meta/x-1-0.json", "{\"name\": \"x\"}");
	assert_int_equal(forge_conda_resolve(below("p/.pixi/envs/default"), &prefix, &root,
					     NULL),
			 0);
	assert_null(root);
}

/* The configuration as it is now, and how many things it could not make sense of. */
static size_t read_config(struct forge_conda_config *ret)
{
	forge_auto_strv struct forge_strv warnings = { 0 };

	assert_int_equal(forge_conda_config_read(NULL, ret, &warnings), 0);
	forge_strv_foreach (w, &warnings)
		print_message("# %s\n", w);
	return warnings.n;
}

static void keeps_case(bool want)
{
	forge_auto_conda_config struct forge_conda_config c = { 0 };

	(void)read_config(&c);
	assert_int_equal(c.keeps_case, want);
}

static void the_case_of_names_is_condas_to_say(void **state)
{
	(void)state;
	home_alone();
	keeps_case(false);
	put("home/.condarc", "envvars_force_uppercase: false\n");
	keeps_case(true);
	put("home/.condarc", "envvars_force_uppercase: true\n");
	keeps_case(false);
	assert_int_equal(setenv("CONDA_ENVVARS_FORCE_UPPERCASE", "false", 1), 0);
	keeps_case(true);
}

static void configured_prompt_is(const char *want)
{
	forge_auto_conda_config struct forge_conda_config c = { 0 };

	(void)read_config(&c);
	assert_string_equal(c.env_prompt, want);
}

static void the_prompt_is_condas_to_say(void **state)
{
	(void)state;
	home_alone();
	configured_prompt_is("({default_env}) ");
	put("home/.condarc", "env_prompt: '<{name}> '\n");
	configured_prompt_is("<{name}> ");
	put("home/.condarc", "env_prompt: '<{name}> '\nchangeps1: no\n");
	configured_prompt_is("");
	put("home/.condarc", "changeps1: maybe\n");
	configured_prompt_is("({default_env}) ");
	assert_int_equal(setenv("CONDA_CHANGEPS1", "false", 1), 0);
	configured_prompt_is("");
	assert_int_equal(setenv("CONDA_CHANGEPS1", "true", 1), 0);
	assert_int_equal(setenv("CONDA_ENV_PROMPT", "  [{prefix}]  ", 1), 0);
	configured_prompt_is("[{prefix}]"); /* of a variable: without the blanks around it */
	assert_int_equal(setenv("CONDA_ENV_PROMPT", "{name} !important", 1), 0);
	configured_prompt_is("{name}");
	assert_int_equal(unsetenv("CONDA_CHANGEPS1"), 0);
	assert_int_equal(unsetenv("CONDA_ENV_PROMPT"), 0);
}

static void conda_has_its_own_falsehoods(void **state)
{
	static const char *const no[] = { "false", "FALSE", "no",  "off", "n",	 "none", "non",
					  "0",	   "00",    "0.0", "-0",  "0e3", "0j",	 "~",
					  "null",  "",	    "''",  "' false '" };
	static const char *const yes[] = { "true", "yes", "on", "y", "1", "2.5", "-1", "' y '" };
	static const char *const odd[] = { "maybe", "'null'", "0x0", "[]" };
	char text[80];

	(void)state;
	home_alone();
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(no); i++) {
		(void)snprintf(text, sizeof(text), "changeps1: %s\n", no[i]);
		put("home/.condarc", text);
		print_message("# %s", text);
		configured_prompt_is("");
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(yes); i++) {
		(void)snprintf(text, sizeof(text), "changeps1: %s\n", yes[i]);
		put("home/.condarc", text);
		configured_prompt_is("({default_env}) ");
	}
	/* conda refuses these; they are told, and are nothing. */
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(odd); i++) {
		forge_auto_conda_config struct forge_conda_config c = { 0 };
		(void)snprintf(text, sizeof(text), "changeps1: %s\n", odd[i]);
		put("home/.condarc", text);
		assert_int_equal(read_config(&c), 1);
		assert_string_equal(c.env_prompt, "({default_env}) ");
	}
	put("home/.condarc", "");
	assert_int_equal(setenv("CONDA_CHANGEPS1", " none ", 1), 0);
	configured_prompt_is("");
	assert_int_equal(unsetenv("CONDA_CHANGEPS1"), 0);
}

/* "a b" of envs_dirs, each below top. */
static void envs_dirs_are(const char *want)
{
	forge_auto_conda_config struct forge_conda_config c = { 0 };
	char text[1000] = "";
	size_t len = 0;

	(void)read_config(&c);
	forge_strv_foreach (dir, &c.envs_dirs) {
		assert_memory_equal(dir, top, strlen(top));
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
					len ? " " : "", dir + strlen(top) + 1);
	}
	assert_string_equal(text, want);
}

/* path below top gets text, in which every '@' is top. */
static void put_at(const char *path, const char *text)
{
	put(path, at(text));
}

static void lists_are_merged_as_conda_does(void **state)
{
	(void)state;
	home_alone();
	put_at("home/.config/conda/.condarc", "envs_dirs: ['@/one', '@/both']\n");
	put_at("home/.condarc", "envs_path:\n  - @/two\n  - @/both\n");
	envs_dirs_are("two both one");
	/* marks */
	put_at("home/.config/conda/.condarc", "envs_dirs:\n  - @/one   #!top\n  - '@/x#y' # !top\n");
	envs_dirs_are("one two both x#y");
	put_at("home/.condarc", "envs_dirs:\n  - @/two #!bottom\n  - @/both\n");
	envs_dirs_are("one both x#y two");
	put_at("home/.config/conda/.condarc", "envs_dirs:  #!final\n  - @/one\n");
	envs_dirs_are("one");
	assert_int_equal(setenv("CONDA_ENVS_DIRS", at("@/v"), 1), 0);
	envs_dirs_are("one");
	put("home/.config/conda/.condarc", "");
	put("home/.condarc", "");
	/* variables: blanks, and what is relative is below the current directory */
	assert_int_equal(setenv("CONDA_ENVS_DIRS", at(" @/a : : @/b/../c/ "), 1), 0);
	envs_dirs_are("a c");
	assert_int_equal(unsetenv("CONDA_ENVS_DIRS"), 0);
	assert_int_equal(chdir(top), 0);
	put("home/.condarc", "envs_dirs: [rel/envs, ./rel/envs, '~/own', '$HOME/own']\n");
	envs_dirs_are("rel/envs home/own");
	assert_int_equal(chdir("/"), 0);
	/* a scalar of #!final goes before later files and the environment */
	put("home/.config/conda/.condarc", "changeps1: false #!final\n");
	put("home/.condarc", "changeps1: true\n");
	assert_int_equal(setenv("CONDA_CHANGEPS1", "true", 1), 0);
	configured_prompt_is("");
	assert_int_equal(unsetenv("CONDA_CHANGEPS1"), 0);
}

static void any_yaml_will_do(void **state)
{
	static const char *const forms[] = {
		"%YAML 1.2\n---\nenvs_dirs: ['@/one']\n",
		"base: &b ['@/one']\nenvs_dirs: *b\n",
		"base: &b {envs_dirs: ['@/one']}\n<<: *b\n",
		"envs_dirs: !!seq [!!str '@/one']\n",
		"d: &d '@/one'\nenvs_dirs: [*d]\nchannels: !mine [x]\n",
	};
	static const char *const bad[] = { "envs_dirs: [", "a: &a [*a]\n", "a: *none\n",
					   "- list\n",	   "a: 1\n---\nb: 1\n" };
	char *text = malloc(400000);

	(void)state;
	home_alone();
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(forms); i++) {
		put_at("home/.condarc", forms[i]);
		envs_dirs_are("one");
	}
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bad); i++) {
		forge_auto_conda_config struct forge_conda_config c = { 0 };
		put("home/.condarc", bad[i]);
		assert_int_equal(read_config(&c), 1);
	}
	/* More than 64 KiB. */
	assert_non_null(text);
	size_t len = 0;
	for (int i = 0; i < 20000; i++)
		len += (size_t)snprintf(text + len, 400000 - len, "%s  - c%d\n",
					i ? "" : "channels:\n", i);
	(void)snprintf(text + len, 400000 - len, "envs_dirs:\n  - %s/one\n", top);
	put("home/.condarc", text);
	envs_dirs_are("one");
	/* Copies of copies end. */
	len = (size_t)snprintf(text, 400000, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
	for (int i = 1; i < 10; i++)
		len += (size_t)snprintf(text + len, 400000 - len,
					"a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i,
					i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
	put("home/.condarc", text);
	free(text);
	forge_auto_conda_config struct forge_conda_config c = { 0 };
	assert_int_equal(read_config(&c), 1);
}

static void condarc_by_a_variable(void **state)
{
	(void)state;
	home_alone();
	put_at("home/my.yml", "envs_dirs: ['@/one']\n");
	put_at("d/b.yaml", "envs_dirs: ['@/two']\n");
	put_at("d/a.yml", "envs_dirs: ['@/one']\n");
	put_at("d/c.txt", "envs_dirs: ['@/three']\n");
	put_at("plain", "envs_dirs: ['@/three']\n");
	put_at("condarc", "envs_dirs: ['@/four']\n");
	static const struct {
		const char *said, *want;
	} cases[] = {
		{ "~/my.yml", "one" }, { "$HOME/my.yml", "one" }, { "@/d", "two one" },
		{ "@/d/", "two one" }, { "@/condarc", "four" },	  { "@/plain", "" },
		{ "@/nowhere", "" },   { "", "" },		  { "condarc", "four" },
	};
	assert_int_equal(chdir(top), 0);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(cases); i++) {
		print_message("# CONDARC=%s\n", cases[i].said);
		assert_int_equal(setenv("CONDARC", at(cases[i].said), 1), 0);
		envs_dirs_are(cases[i].want);
	}
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(unsetenv("CONDARC"), 0);
}

/* prompt, as it is for an environment <dir>/envs/a b */
static void prompt_becomes(const char *prompt, const char *want)
{
	forge_auto_strv struct forge_strv env = { 0 }, scripts = { 0 }, warnings = { 0 };
	forge_auto_free char *prefix = strdup(below("envs/a b"));
	struct forge_conda_spec spec = { .prefix = prefix, .prompt = prompt };

	put("envs/a b/conda-meta/history", "");
	assert_int_equal(forge_conda_activate(&spec, &env, &scripts, &warnings, NULL), 0);
	assert_string_equal(forge_strv_getenv(&env, "CONDA_PROMPT_MODIFIER"), want);
}

static void the_prompt_is_filled_in(void **state)
{
	char want[PATH_MAX];

	(void)state;
	prompt_becomes("", "");
	prompt_becomes("({default_env}) ", "(a b) ");
	prompt_becomes("{name}|{stacked_env}|{{x}}|{other", "a b|a b|{x}|{other");
	(void)snprintf(want, sizeof(want), "%s$", below("envs/a b"));
	prompt_becomes("{prefix}$", want);
	/* as Python's format() */
	prompt_becomes("{name!r}|{name!s}|{name!a}", "'a b'|a b|'a b'");
	prompt_becomes("{name:>10}|{name:<5}|{name:^6}|{name:5}|{name:}", "       a b|a b  | a b  |a b  |a b");
	prompt_becomes("{name:*>6}|{name:ü^5}|{name:.2}|{name!r:>8s}|{name:05}",
		       "***a b|üa bü|a |   'a b'|a b00");
	/* what conda refuses stays */
	prompt_becomes("{name!x}|{name:>99999}|{name.x}|{nope}|{name:d}|{0}|}",
		       "{name!x}|{name:>99999}|{name.x}|{nope}|{name:d}|{0}|}");
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
		TEST(a_large_state_is_read),
		TEST(every_rule_holds),
		TEST(the_digest_is_of_the_content),
		TEST(the_installer_is_not_believed),
		TEST(damaged_metadata_is_told),
		TEST(the_lock_is_condas),
		TEST(environments_are_found),
		TEST(names_and_paths_are_resolved_as_conda_does),
		TEST(every_condarc_is_read_the_last_first),
		TEST(directories_are_expanded),
		TEST(ones_own_come_after_a_root_that_one_may_write),
		TEST(garbage_in_environments_txt_is_passed_over),
		TEST(micromamba_has_a_root_without_conda),
		TEST(pixi_has_no_root_at_all),
		TEST(the_case_of_names_is_condas_to_say),
		TEST(the_prompt_is_condas_to_say),
		TEST(conda_has_its_own_falsehoods),
		TEST(lists_are_merged_as_conda_does),
		TEST(any_yaml_will_do),
		TEST(condarc_by_a_variable),
		TEST(the_prompt_is_filled_in),
	};

	return cmocka_run_group_tests_name("conda", tests, NULL, NULL);
}
