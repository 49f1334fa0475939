/* SPDX-License-Identifier: Apache-2.0 */
/* Conda without conda: activation rule by rule. */
#include "conda-scratch.h"

#include "runtime/conda.h"
#include "runtime/conda_config.h"

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
	};

	return cmocka_run_group_tests_name("conda", tests, NULL, NULL);
}
