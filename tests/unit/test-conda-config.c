/* SPDX-License-Identifier: Apache-2.0 */
/* Conda without conda: condarc, where environments are found, and the prompt. */
#include "conda-scratch.h"

#include "runtime/conda.h"
#include "runtime/conda_config.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
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

	return cmocka_run_group_tests_name("conda-config", tests, NULL, NULL);
}
