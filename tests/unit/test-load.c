/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding forge.yaml and trusting it. Link with -Wl,--wrap=geteuid: who asks is ours to
 * say, so both answers are tested whoever runs this.
 */
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "torture.h"

uid_t __real_geteuid(void);
uid_t __wrap_geteuid(void);

static uid_t claimed_uid;

uid_t __wrap_geteuid(void)
{
	return claimed_uid;
}

/* Each test stands in a new directory, which is also its home. */
static char home[64];

static int enter_home(void **state)
{
	(void)state;
	(void)snprintf(home, sizeof(home), "/tmp/forge-test-load-XXXXXX");
	if (!mkdtemp(home) || chdir(home) < 0 || setenv("HOME", home, 1) < 0)
		return -1;
	claimed_uid = 1000;
	return unsetenv("FORGE_CONFIG");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int leave_home(void **state)
{
	(void)state;
	if (chdir("/") < 0)
		return -1;
	return nftw(home, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	forge_auto_file FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fchmod(fileno(f), mode), 0);
}

static struct forge_config *load_ok(const char *path)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct forge_config *c = NULL;

	if (forge_config_load(path, &c, &err) != 0)
		fail_msg("refused: %s", err.msg);
	assert_untouched(err);
	return c;
}

static void refused(const char *path, int rc, const char *part, const char *hint)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_config *c = NULL;

	assert_int_equal(forge_config_load(path, &c, &err), rc);
	assert_null(c);
	assert_int_equal(err.code, -rc);
	assert_contains(err.msg, part);
	assert_contains(err.hint, hint);
	assert_int_equal(forge_config_load(path, &c, NULL), rc);
}

static void without_a_file_all_is_built_in(void **state)
{
	(void)state;
	if (access("/etc/forge/forge.yaml", F_OK) == 0)
		skip(); /* this host has one, and it is found */
	forge_auto_config struct forge_config *c = load_ok(NULL);
	assert_null(c->path);
	assert_int_equal(c->n_profiles, 4);
}

/* Where a link lies decides nothing: not what is relative in the file, nor what is beside it. */
static void a_link_is_judged_where_it_leads(void **state)
{
	char real[128], want[192];

	(void)state;
	assert_int_equal(mkdir("real", 0755), 0);
	assert_int_equal(mkdir("real/data", 0755), 0);
	assert_int_equal(mkdir("here", 0755), 0);
	assert_int_equal(mkdir("here/data", 0755), 0);
	write_file("real/forge.yaml", "read_only: [data]\n", 0644);
	(void)snprintf(real, sizeof(real), "%s/real", home);
	const char *const texts[] = { "../real/forge.yaml", real, "other.yaml" };
	assert_int_equal(symlink("../real/forge.yaml", "here/other.yaml"), 0);
	assert_int_equal(chdir("here"), 0);
	for (size_t i = 0; i < 3; i++) {
		char target[192];
		(void)snprintf(target, sizeof(target), "%s%s", texts[i],
			       i == 1 ? "/forge.yaml" : "");
		(void)unlink("forge.yaml");
		assert_int_equal(symlink(target, "forge.yaml"), 0);
		forge_auto_config struct forge_config *c = load_ok(NULL);
		(void)snprintf(want, sizeof(want), "%s/data", real);
		assert_int_equal(c->read_only.n, 1);
		assert_string_equal(c->read_only.v[0], want);
		(void)snprintf(want, sizeof(want), "%s/forge.yaml", real);
		assert_string_equal(c->path, want);
	}
	/* Another's file is not made ours by a link of ours. */
	assert_int_equal(chmod("../real/forge.yaml", 0666), 0);
	refused(NULL, -EPERM, "can be written by", "chmod");
	assert_int_equal(chdir(".."), 0);
}

static void a_link_of_somebody_else_is_refused(void **state)
{
	(void)state;
	write_file("real.yaml", "workdir: /x/{id}\n", 0644);
	assert_int_equal(symlink("real.yaml", "forge.yaml"), 0);
	if (lchown("forge.yaml", 65533, 65533) < 0)
		skip(); /* only root can */
	refused(NULL, -EPERM, "a link that somebody else made", "Make your own");
	/* In a chain as well. */
	assert_int_equal(rename("forge.yaml", "evil.yaml"), 0);
	assert_int_equal(symlink("evil.yaml", "forge.yaml"), 0);
	refused(NULL, -EPERM, "a link that somebody else made", "Make your own");
	assert_int_equal(unlink("evil.yaml"), 0);
	assert_int_equal(symlink("forge.yaml", "evil.yaml"), 0);
	refused(NULL, -ELOOP, "open config", "");
}

static void a_file_that_others_could_have_put_there_is_refused(void **state)
{
	(void)state;
	write_file("real.yaml", "workdir: /x/{id}\n", 0644);
	assert_int_equal(mkdir("open", 0700), 0);
	assert_int_equal(chmod("open", 0777), 0);
	assert_int_equal(link("real.yaml", "open/forge.yaml"), 0);
	refused("open/forge.yaml", -EPERM, "others could have put", "directory");
	/* As in /tmp: nobody can rename it there, but link it. */
	assert_int_equal(chmod("open", 01777), 0);
	refused("open/forge.yaml", -EPERM, "others could have put", "directory");
	assert_int_equal(unlink("real.yaml"), 0);
	forge_config_free(load_ok("open/forge.yaml"));
	assert_int_equal(chmod("open", 0777), 0);
	refused("open/forge.yaml", -EPERM, "others could have put", "directory");
}

static void the_search_has_an_order(void **state)
{
	(void)state;
	assert_int_equal(mkdir(".config", 0700), 0);
	assert_int_equal(mkdir(".config/forge", 0700), 0);
	write_file(".config/forge/forge.yaml", "workdir: /user/{id}\n", 0600);
	forge_auto_config struct forge_config *user = load_ok(NULL);
	assert_string_equal(user->workdir, "/user/{id}");

	write_file("forge.yaml", "workdir: /here/{id}\n", 0600);
	forge_auto_config struct forge_config *here = load_ok(NULL);
	assert_string_equal(here->workdir, "/here/{id}");

	write_file("env.yaml", "workdir: /env/{id}\n", 0600);
	assert_int_equal(setenv("FORGE_CONFIG", "env.yaml", 1), 0);
	forge_auto_config struct forge_config *env = load_ok(NULL);
	assert_string_equal(env->workdir, "/env/{id}");

	write_file("named.yaml", "workdir: /named/{id}\n", 0600);
	forge_auto_config struct forge_config *named = load_ok("named.yaml");
	assert_string_equal(named->workdir, "/named/{id}");

	/* Set but empty is the same as not set. */
	assert_int_equal(setenv("FORGE_CONFIG", "", 1), 0);
	forge_auto_config struct forge_config *again = load_ok(NULL);
	assert_string_equal(again->workdir, "/here/{id}");
}

static uint64_t cap(const struct forge_config *c) { return c->caps.memory_bytes; }

/* What an inner file does not mention is as the outer one has it. */
static void files_are_layers(void **state)
{
	(void)state;
	assert_int_equal(mkdir(".config", 0700), 0);
	assert_int_equal(mkdir(".config/forge", 0700), 0);
	write_file(".config/forge/forge.yaml",
		   "store: sqlite:/team.db\nhost: {max: {memory: 4G}, budget: {runs: 8}}\n"
		   "env: {set: {A: outer, B: outer}}\n"
		   "profiles: {default: {memory: 1G, pids: 50}, big: {memory: 4G}}\n"
		   "runtimes: {one: {kind: system, description: outer}, two: {kind: system}}\n",
		   0600);
	write_file("forge.yaml",
		   "analysis: {profile: big}\nenv: {set: {B: inner}}\n"
		   "profiles: {default: {memory: 2G}}\n"
		   "runtimes: {one: {kind: system, description: inner}}\n",
		   0600);
	forge_auto_config struct forge_config *c = load_ok(NULL);
	assert_string_equal(c->store, "sqlite:/team.db");
	assert_int_equal(cap(c), 4ULL << 30);
	assert_int_equal(c->budget_runs, 8);
	assert_int_equal(c->env_set.n, 2);
	assert_string_equal(forge_strv_getenv(&c->env_set, "A"), "outer");
	assert_string_equal(forge_strv_getenv(&c->env_set, "B"), "inner");
	assert_int_equal(c->profiles[0].limits.memory_bytes, 2ULL << 30);
	assert_int_equal(c->profiles[0].limits.pids, 50);
	assert_int_equal(c->n_runtimes, 2);
	assert_string_equal(c->runtimes[0].description, "inner");
	assert_int_equal(c->files.n, 2);
	assert_string_equal(c->path, c->files.v[1]);
	/* One file under two names is one layer. */
	forge_auto_config struct forge_config *twice = load_ok("forge.yaml");
	assert_int_equal(twice->files.n, 2);
}

/* Lowered they can be, raised they cannot; what was asked for is told. */
static void caps_hold_for_inner_files(void **state)
{
	static const struct {
		const char *inner;
		uint64_t memory, runs;
		bool unlimited;
		unsigned missing;
		size_t held_back;
	} rows[] = {
		{ "version: 1\n", 4ULL << 30, 8, false, 0, 0 },
		{ "host: {max: {memory: 2G}}\n", 2ULL << 30, 8, false, 0, 0 },
		{ "host: {max: {memory: 8G}}\n", 4ULL << 30, 8, false, 0, 1 },
		{ "host: {max: {memory: unlimited}}\n", 4ULL << 30, 8, false, 0, 1 },
		{ "host: {budget: {runs: 9}}\n", 4ULL << 30, 8, false, 0, 1 },
		{ "host: {budget: {runs: 2}}\n", 4ULL << 30, 2, false, 0, 0 },
		{ "host: {allow_unlimited: true}\n", 4ULL << 30, 8, false, 0, 1 },
		{ "sandbox: {allow_missing: [landlock]}\n", 4ULL << 30, 8, false, 0, 1 },
	};

	(void)state;
	assert_int_equal(mkdir(".config", 0700), 0);
	assert_int_equal(mkdir(".config/forge", 0700), 0);
	write_file(".config/forge/forge.yaml",
		   "host: {max: {memory: 4G}, budget: {runs: 8}, allow_unlimited: false}\n"
		   "sandbox: {allow_missing: []}\n",
		   0600);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		write_file("forge.yaml", rows[i].inner, 0600);
		forge_auto_config struct forge_config *c = load_ok(NULL);
		if (cap(c) != rows[i].memory || c->budget_runs != rows[i].runs ||
		    c->allow_unlimited != rows[i].unlimited ||
		    c->allow_missing != rows[i].missing ||
		    c->held_back.n != rows[i].held_back)
			fail_msg("%s", rows[i].inner);
	}
	/* A profile above an outer cap is a mistake, and is pointed at. */
	write_file("forge.yaml", "profiles: {default: {memory: 8G}}\n", 0600);
	refused(NULL, -EINVAL, "profiles.default", "");
	/* An outer profile above an inner cap gives way. */
	write_file(".config/forge/forge.yaml", "profiles: {default: {memory: 8G}}\n", 0600);
	write_file("forge.yaml", "host: {max: {memory: 1G}}\n", 0600);
	forge_auto_config struct forge_config *c = load_ok(NULL);
	assert_int_equal(c->profiles[0].limits.memory_bytes, 1ULL << 30);
}

static void a_named_file_must_be_there(void **state)
{
	(void)state;
	refused("no.yaml", -ENOENT, "config no.yaml (named by --config) does not exist",
		"");
	assert_int_equal(setenv("FORGE_CONFIG", "/no/such.yaml", 1), 0);
	refused(NULL, -ENOENT, "config /no/such.yaml (named by $FORGE_CONFIG) does not",
		"");
}

static void paths_are_below_the_file(void **state)
{
	(void)state;
	assert_int_equal(mkdir("sub", 0700), 0);
	write_file("sub/forge.yaml", "read_only: [data, ../up]\n", 0600);
	forge_auto_config struct forge_config *c = load_ok("./sub//forge.yaml");
	forge_auto_free char *path = forge_asprintf("%s/sub/forge.yaml", home);
	forge_auto_free char *data = forge_asprintf("%s/sub/data", home);
	forge_auto_free char *up = forge_asprintf("%s/up", home);
	assert_string_equal(c->path, path);
	assert_string_equal(c->read_only.v[0], data);
	assert_string_equal(c->read_only.v[1], up);
}

static void errors_name_the_file_as_it_was_found(void **state)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_config *c = NULL;

	(void)state;
	write_file("forge.yaml", "# one\nworkdirs: x\n", 0600);
	assert_int_equal(forge_config_load(NULL, &c, &err), -EINVAL);
	assert_string_equal(err.file, "./forge.yaml");
	assert_int_equal(err.line, 2);
	assert_int_equal(err.column, 1);
	assert_contains(err.msg, "did you mean 'workdir'?");
}

static void only_small_regular_files_are_read(void **state)
{
	(void)state;
	refused(".", -EINVAL, "config . is not a regular file", "");
	refused("/dev/null", -EINVAL, "config /dev/null is not a regular file", "");
	assert_int_equal(mkfifo("fifo", 0600), 0);
	refused("fifo", -EINVAL, "config fifo is not a regular file", "");
	write_file("big", "", 0600);
	assert_int_equal(truncate("big", (1 << 20) + 1), 0);
	refused("big", -EFBIG, "config big is larger than 1 MiB", "");
	write_file("linked", "version: 1\n", 0600);
	assert_int_equal(symlink("linked", "link"), 0);
	forge_auto_config struct forge_config *c = load_ok("link");
	assert_non_null(c);
	assert_int_equal(symlink("loop", "loop"), 0);
	refused("loop", -ELOOP, "open config loop: ", "");
}

static void a_search_does_not_pass_over_what_it_cannot_read(void **state)
{
	(void)state;
	assert_int_equal(symlink("forge.yaml", "forge.yaml"), 0);
	refused(NULL, -ELOOP, "open config ./forge.yaml: ", "");
}

static void root_trusts_only_root(void **state)
{
	(void)state;
	write_file("forge.yaml", "version: 1\n", 0644);
	claimed_uid = 0;
	if (__real_geteuid() == 0) {
		forge_auto_config struct forge_config *c = load_ok(NULL);
		assert_non_null(c);
		assert_int_equal(chown("forge.yaml", 1234, (gid_t)-1), 0);
		refused(NULL, -EPERM, "config ./forge.yaml belongs to user 1234",
			"chown root");
	} else {
		refused(NULL, -EPERM, "config ./forge.yaml belongs to user",
			"chown root");
	}
	refused("forge.yaml", -EPERM, "belongs to user", "chown root ./forge.yaml");
}

/* A file that somebody else left in the directory one happens to be in opens nothing. */
static void a_user_trusts_himself_and_root(void **state)
{
	(void)state;
	if (__real_geteuid() != 0)
		skip(); /* the file would have to change its owner */
	write_file("forge.yaml", "version: 1\n", 0664);
	claimed_uid = 1000;
	forge_auto_config struct forge_config *of_root = load_ok(NULL);
	assert_non_null(of_root);
	assert_int_equal(chown("forge.yaml", 1000, (gid_t)-1), 0);
	forge_auto_config struct forge_config *own = load_ok(NULL);
	assert_non_null(own);
	assert_int_equal(chown("forge.yaml", 1234, (gid_t)-1), 0);
	refused(NULL, -EPERM, "belongs to user 1234, and you or root must own", "chown $USER");
}

static void root_trusts_no_file_that_others_can_write(void **state)
{
	static const struct {
		mode_t mode;
		bool is_for_users; /* a group of one's own may write */
	} rows[] = { { 0664, true }, { 0646, false }, { 0620, true }, { 0602, false } };

	(void)state;
	if (__real_geteuid() != 0)
		skip(); /* the file would have to be root's */
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++) {
		write_file("forge.yaml", "version: 1\n", rows[i].mode);
		claimed_uid = 0;
		refused(NULL, -EPERM, "can be written by its group or by others",
			"chmod go-w ./forge.yaml");
		claimed_uid = 1000;
		if (rows[i].is_for_users) {
			forge_auto_config struct forge_config *c = load_ok(NULL);
			assert_non_null(c);
		} else {
			refused(NULL, -EPERM, "can be written by", "chmod go-w ./forge.yaml");
		}
	}
}

static int load_once(void *arg)
{
	forge_auto_config struct forge_config *c = NULL;

	(void)arg;
	return forge_config_load(NULL, &c, NULL);
}

static void memory_may_run_out_anywhere(void **state)
{
	(void)state;
	write_file("forge.yaml", "read_only: [data]\n", 0600);
	assert_true(torture(load_once, NULL) > 10);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_home, leave_home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_link_is_judged_where_it_leads),
		TEST(a_link_of_somebody_else_is_refused),
		TEST(a_file_that_others_could_have_put_there_is_refused),
		TEST(without_a_file_all_is_built_in),
		TEST(the_search_has_an_order),
		TEST(files_are_layers),
		TEST(caps_hold_for_inner_files),
		TEST(a_named_file_must_be_there),
		TEST(paths_are_below_the_file),
		TEST(errors_name_the_file_as_it_was_found),
		TEST(only_small_regular_files_are_read),
		TEST(a_search_does_not_pass_over_what_it_cannot_read),
		TEST(root_trusts_only_root),
		TEST(a_user_trusts_himself_and_root),
		TEST(root_trusts_no_file_that_others_can_write),
		TEST(memory_may_run_out_anywhere),
	};

	return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
