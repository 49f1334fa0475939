/* SPDX-License-Identifier: Apache-2.0 */
/* Runtimes that somebody else wrote: whatever lies there, forge answers, soon and with its name. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rmtree.h"
#include "run/runtime_identity.h"
#include "runtime/conda.h"
#include "runtime/dpkg.h"
#include "runtime/lockfile.h"
#include "unit.h"

static char top[64];
static struct forge_config *cfg;
static struct forge_catalog catalog;
static struct forge_home home = { NULL, -1, -1, -1, 0 };

static const char *below(const char *path)
{
	static char full[4][512];
	static int n;

	n = (n + 1) % 4;
	(void)snprintf(full[n], sizeof(full[n]), "%s/%s", top, path);
	return full[n];
}

/* A test that waits for a fifo is ended, and has failed. */
static int enter(void **state)
{
	(void)state;
	(void)alarm(60);
	(void)snprintf(top, sizeof(top), "/tmp/test-runtime-XXXXXX");
	return mkdtemp(top) && setenv("HOME", below("user"), 1) == 0 &&
	       setenv("FORGE_DATADIR", below("none"), 1) == 0 &&
			       setenv("FORGE_HOME", below("home"), 1) == 0
		       ? 0
		       : -1;
}

static int leave(void **state)
{
	struct stat st;

	(void)state;
	forge_catalog_close(&catalog);
	forge_config_free(cfg);
	cfg = NULL;
	forge_home_close(&home);
	home = FORGE_HOME_INIT;
	return stat(top, &st) < 0 ? -1
				  : forge_rmtree(top, st.st_dev, st.st_ino, NULL, NULL);
}

static void make_parent(const char *path)
{
	char full[512];

	(void)snprintf(full, sizeof(full), "%s", below(path));
	*strrchr(full, '/') = '\0';
	assert_int_equal(forge_mkdirs(full, 0755), 0);
}

/* A file below top, with its directories; it is written in place. */
static void put(const char *path, const char *text)
{
	make_parent(path);
	FILE *f = fopen(below(path), "we");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void put_fifo(const char *path)
{
	make_parent(path);
	(void)unlink(below(path));
	assert_int_equal(mkfifo(below(path), 0644), 0);
}

static void put_link(const char *path, const char *target)
{
	make_parent(path);
	(void)unlink(below(path));
	assert_int_equal(symlink(target, below(path)), 0);
}

/* All holes. */
static void put_giant(const char *path, off_t size)
{
	put(path, "");
	assert_int_equal(truncate(below(path), size), 0);
}

/* The runtime "x" of a declaration; the catalog stays open until the test ends. */
static int open_runtime(const char *text, struct forge_runtime *ret,
			struct forge_error *err)
{
	char yaml[2048];

	forge_catalog_close(&catalog);
	forge_config_free(cfg);
	cfg = NULL;
	(void)snprintf(yaml, sizeof(yaml), "version: 1\nruntimes:\n  x: {%s}\n", text);
	if (forge_config_parse(yaml, strlen(yaml), "test", top, &cfg, err) < 0)
		fail_msg("%s", err->msg);
	assert_int_equal(forge_catalog_open(cfg, &catalog, err), 0);
	return forge_runtime_open(&catalog, "x", ret, err);
}

static void opened(const char *text, struct forge_runtime *ret)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (open_runtime(text, ret, &err) < 0)
		fail_msg("%s", err.msg);
}

static void digest_now(const struct forge_runtime *rt, char digest[FORGE_DIGEST_MAX])
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (home.fd < 0)
		assert_int_equal(forge_home_open(true, &home, &err), 0);
	if (forge_runtime_digest(&home, rt, digest, &err) < 0)
		fail_msg("%s", err.msg);
}

#define CONDA "e/conda-meta/"
#define SITE  "e/lib/python3.11/site-packages/"

static void make_conda(void)
{
	put(CONDA "history", "");
	put(CONDA "python-3.11-0.json",
	    "{\"name\": \"python\", \"version\": \"3.11\", \"build\": \"0\"}");
	put("e/bin/python", "");
}

/* What conda's packages are told to be: the error has this word. NULL: all is well. */
static void packages_say(const char *word)
{
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_conda_packages(below("e"), &p, &err);

	forge_packages_done(&p);
	if (!word) {
		if (rc < 0)
			fail_msg("%s", err.msg);
		return;
	}
	assert_true(rc < 0);
	if (!strstr(err.msg, word))
		fail_msg("'%s' is not in '%s'", word, err.msg);
}

static void records_that_are_none_are_told(void **state)
{
	char deep[20000];

	(void)state;
	make_conda();
	packages_say(NULL);
	put_fifo(CONDA "a.json");
	packages_say("a.json is damaged: it is no regular file");
	put("outside.json", "{\"name\": \"stolen\"}");
	put_link(CONDA "a.json", below("outside.json"));
	packages_say("a.json is damaged: a link leads out");
	put_link(CONDA "a.json", "nowhere");
	packages_say("a.json is damaged");
	(void)unlink(below(CONDA "a.json"));
	put_giant(CONDA "a.json", (off_t)1 << 40);
	packages_say("a.json is damaged: it is too large");
	put(CONDA "a.json", "");
	packages_say("a.json is damaged");
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	put(CONDA "a.json", deep);
	packages_say("a.json is damaged");
	put(CONDA "a.json", "{\"name\": \"a\\u0000b\"}");
	packages_say("a.json is damaged");
	put(CONDA "a.json",
	    "{\"name\": \"a\", \"url\": \"https://h/x\\nhttps://evil/y\"}");
	packages_say("a.json is damaged");
	put(CONDA "a.json", "{\"name\": \"a\\u001b[2J\"}");
	packages_say("a.json is damaged");
	put(CONDA "a.json", "{\"name\": 7}");
	packages_say("a.json is damaged");
	assert_int_equal(unlink(below(CONDA "a.json")), 0);
	assert_int_equal(mkdir(below(CONDA "a.json"), 0755), 0);
	packages_say("a.json is damaged: it is no regular file");
	assert_int_equal(rmdir(below(CONDA "a.json")), 0);
	/* A link that stays inside is what it leads to. */
	put_link(CONDA "a.json", "python-3.11-0.json");
	packages_say(NULL);
}

static void metadata_elsewhere_is_not_its_own(void **state)
{
	(void)state;
	make_conda();
	put("other/history", "");
	put("other/a.json", "{\"name\": \"a\"}");
	assert_int_equal(rename(below("e/conda-meta"), below("e/real")), 0);
	put_link("e/conda-meta", below("other"));
	packages_say("leads out");
}

static void too_many_packages_are_refused(void **state)
{
	char name[64];

	(void)state;
	make_conda();
	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), CONDA "l%d.json", i);
		assert_int_equal(link(below(CONDA "python-3.11-0.json"), below(name)), 0);
	}
	packages_say("more than 20000 packages");
}

static size_t count_pip(void)
{
	struct forge_packages p = { .v = NULL };
	size_t n = 0;

	assert_int_equal(forge_conda_packages(below("e"), &p, NULL), 0);
	for (size_t i = 0; i < p.n; i++)
		n += strcmp(p.v[i].source, "pip") == 0;
	forge_packages_done(&p);
	return n;
}

static void distributions_that_are_none_are_told(void **state)
{
	(void)state;
	make_conda();
	put_fifo(SITE "a-1.dist-info/INSTALLER");
	put_fifo(SITE "a-1.dist-info/METADATA");
	put(SITE "a-1.dist-info/RECORD",
	    "../../../../etc/passwd,sha256=x,1\n/etc/shadow,,\n");
	assert_int_equal(count_pip(), 1); /* by the name of its directory */
	put_fifo(SITE "a-1.dist-info/RECORD");
	packages_say("a-1.dist-info/RECORD is damaged: it is no regular file");
	(void)unlink(below(SITE "a-1.dist-info/RECORD"));
	put_giant(SITE "a-1.dist-info/RECORD", (off_t)1 << 42);
	packages_say("too large");
	put_link(SITE "a-1.dist-info/RECORD", "/etc/hostname");
	packages_say("leads out");
	put(SITE "a-1.dist-info/x", "");
	assert_int_equal(unlink(below(SITE "a-1.dist-info/RECORD")), 0);
	put_fifo(SITE "b.egg-info");
	put_link(SITE "c.egg-info", "/nowhere");
	assert_int_equal(count_pip(), 2);
	/* Not in the prefix, so not in a run. */
	assert_int_equal(rename(below("e/lib/python3.11"), below("moved")), 0);
	put("e/lib/python3.11/x", "");
	put_link("e/lib/python3.11/site-packages", below("moved/site-packages"));
	assert_int_equal(count_pip(), 0);
}

/* ---- activation ---- */

static void activation_says(const char *word)
{
	forge_auto_strv struct forge_strv env = { 0 }, scripts = { 0 }, warnings = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_conda_spec spec = { .prefix = below("e") };
	int rc = forge_conda_activate(&spec, &env, &scripts, &warnings, &err);

	if (!word)
		assert_int_equal(rc, 0);
	else if (rc == 0 || !strstr(err.msg, word))
		fail_msg("'%s' is not in '%s'", word, err.msg);
}

static void variables_that_are_none_are_told(void **state)
{
	static const char *const files[] = { CONDA "state", "e/etc/conda/env_vars.d/a" };

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(files); i++) {
		make_conda();
		put_fifo(files[i]);
		activation_says("no regular file");
		put_link(files[i], "/etc/hostname");
		activation_says("leads out");
		(void)unlink(below(files[i]));
		put_giant(files[i], 65 << 20);
		activation_says("too large");
		put(files[i],
		    "{\"env_vars\": {\"A\": \"x\\u0000y\"}, \"A\": \"x\\u0000y\"}");
		activation_says(NULL); /* that one is left out, with a warning */
		put(files[i], "{\"env_vars\": {\"A\": }}");
		activation_says("no JSON object");
		put(files[i], "{}");
		activation_says(NULL);
	}
}

static void directories_elsewhere_are_not_its_own(void **state)
{
	static const char *const dirs[] = { "e/etc/conda/activate.d",
					    "e/etc/conda/env_vars.d" };

	(void)state;
	put("elsewhere/a.sh", "{}");
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++) {
		make_conda();
		put_link(dirs[i], below("elsewhere"));
		activation_says("leads out");
		put_link(dirs[i], "inside");
		put("e/etc/conda/inside/a.sh", "{}");
		activation_says(NULL);
	}
}

static void too_many_scripts_are_refused(void **state)
{
	char name[64];

	(void)state;
	make_conda();
	for (int i = 0; i < 1001; i++) {
		(void)snprintf(name, sizeof(name), "e/etc/conda/activate.d/%d.sh", i);
		put(name, "");
	}
	activation_says("more than 1000");
}

/* ---- locks ---- */

/* Each needs the next; sorted by name, the first is asked for first. */
static void *lock_chain(void *arg)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	*(int *)arg = forge_conda_lock(below("e"), out, NULL);
	(void)fclose(out);
	free(text);
	return NULL;
}

static void a_long_chain_of_needs_is_no_long_stack(void **state)
{
	pthread_attr_t attr;
	pthread_t thread;
	char name[64], text[128];
	int rc = -1;

	(void)state;
	make_conda();
	for (int i = 0; i < 15000; i++) {
		(void)snprintf(name, sizeof(name), CONDA "p%05d.json", i);
		(void)snprintf(
			text, sizeof(text),
			"{\"name\": \"p%05d\", \"url\": \"u\", \"depends\": [\"p%05d\"]}",
			i, i + 1);
		put(name, text);
	}
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstacksize(&attr, 1 << 20), 0);
	assert_int_equal(pthread_create(&thread, &attr, lock_chain, &rc), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(rc, 0);
}

static void lock_to(const struct forge_runtime *rt, const char *path)
{
	FILE *out = fopen(below(path), "we");

	assert_non_null(out);
	assert_int_equal(forge_runtime_lock(rt, out, NULL), 0);
	assert_int_equal(fclose(out), 0);
}

static size_t drift(const struct forge_runtime *rt, const char *path)
{
	json_t *list = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_lock_compare(rt, below(path), &list, &err) < 0)
		fail_msg("%s", err.msg);
	size_t n = json_array_size(list);
	json_decref(list);
	return n;
}

/* Line breaks, tabs, escapes, bytes that are no text: one line each, and the same again. */
static void hostile_names_stay_one_line_in_a_lock(void **state)
{
	struct forge_runtime rt = { .kind = NULL };

	(void)state;
	put("t/bin/plain", "1");
	put("t/bin/a\nfile\tevil\t\t\tsha256:0", "1");
	put("t/bin/esc\033[2J", "1");
	put("t/bin/back\\x41slash", "1");
	put("t/bin/\xff\xfe", "1");
	opened("kind: prefix, prefix: t", &rt);
	lock_to(&rt, "lock");
	FILE *f = fopen(below("lock"), "re");
	char line[1024];
	size_t lines = 0;
	while (fgets(line, sizeof(line), f)) {
		lines++;
		assert_null(strchr(line, '\033'));
	}
	(void)fclose(f);
	assert_int_equal(lines, 2 + 5);
	assert_int_equal(drift(&rt, "lock"), 0);
	put("t/bin/esc\033[2J", "2");
	assert_int_equal(drift(&rt, "lock"), 1);
	forge_runtime_close(&rt);
}

/* Same version and build, other bytes: conda's own form has no line that differs. */
static void a_rebuilt_package_is_drift(void **state)
{
	struct forge_runtime rt = { .kind = NULL };

	(void)state;
	make_conda();
	put(CONDA "a.json", "{\"name\": \"a\", \"version\": \"1\", \"build\": \"0\", "
			    "\"url\": \"https://h/a-1-0.conda\", \"sha256\": \"1\"}");
	/* No URL: it is in the lock by its file's name. */
	put(CONDA "b.json", "{\"name\": \"b\", \"version\": \"1\", \"build\": \"0\", "
			    "\"fn\": \"b-1-0.conda\"}");
	put(CONDA "python-3.11-0.json",
	    "{\"name\": \"python\", \"version\": \"3.11\", "
	    "\"build\": \"0\", \"fn\": \"python-3.11-0.conda\"}");
	opened("kind: conda, prefix: ./e", &rt);
	lock_to(&rt, "lock");
	assert_int_equal(drift(&rt, "lock"), 0);
	put(CONDA "a.json", "{\"name\": \"a\", \"version\": \"1\", \"build\": \"0\", "
			    "\"url\": \"https://h/a-1-0.conda\", \"sha256\": \"2\"}");
	assert_int_equal(drift(&rt, "lock"), 1);
	forge_runtime_close(&rt);
}

/* ---- the digest ---- */

static void the_order_of_files_does_not_count(void **state)
{
	static const char *const builds[] = { "0", "1", "2" };
	struct forge_packages a = { .v = NULL }, b = { .v = NULL };
	char one[FORGE_DIGEST_MAX], two[FORGE_DIGEST_MAX];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(
			forge_packages_add(&a, "conda", "x", "1", builds[i], "", ""), 0);
		assert_int_equal(
			forge_packages_add(&b, "conda", "x", "1", builds[2 - i], "", ""),
			0);
	}
	assert_string_equal(forge_packages_digest(&a, one),
			    forge_packages_digest(&b, two));
	forge_packages_done(&a);
	forge_packages_done(&b);
}

/* Written again within one tick of the clock, a file looks as it did (before Linux 6.13). */
static void a_change_within_a_tick_is_seen(void **state)
{
	struct forge_runtime rt = { .kind = NULL };
	char before[FORGE_DIGEST_MAX], after[FORGE_DIGEST_MAX], text[64];

	(void)state;
	make_conda();
	opened("kind: conda, prefix: ./e", &rt);
	digest_now(&rt, before);
	for (int i = 10; i < 60; i++) {
		(void)snprintf(text, sizeof(text),
			       "{\"name\": \"a\", \"version\": \"%d\"}", i);
		put(CONDA "a.json", text);
		digest_now(&rt, after);
		assert_string_not_equal(before, after);
		memcpy(before, after, sizeof(before));
	}
	forge_runtime_close(&rt);
}

/* Installs something as soon as it was read, as often as left says. */
static int installs_left;

static int identify_and_install(const struct forge_runtime *rt,
				struct forge_packages *ret, struct forge_error *err)
{
	char text[64];
	int rc = forge_conda_packages(rt->real_prefix, ret, err);

	if (installs_left > 0) {
		(void)snprintf(text, sizeof(text),
			       "{\"name\": \"late\", \"version\": \"%d\"}",
			       installs_left--);
		put(CONDA "late.json", text);
	}
	return rc;
}

static void what_changes_while_it_is_read_is_read_again(void **state)
{
	const struct forge_runtime_kind kind = { .name = "conda",
						 .identify = identify_and_install };
	struct forge_runtime rt = { .kind = NULL };
	struct forge_error err = FORGE_ERROR_INIT;
	char first[FORGE_DIGEST_MAX], second[FORGE_DIGEST_MAX];

	(void)state;
	make_conda();
	opened("kind: conda, prefix: ./e", &rt);
	rt.kind = &kind;
	installs_left = 2;
	digest_now(&rt, first);
	assert_int_equal(installs_left, 0);
	digest_now(&rt, second);
	assert_string_equal(first, second); /* that of what is there now */
	/* Somebody who never stops. */
	installs_left = 1000;
	assert_int_equal(forge_runtime_digest(&home, &rt, first, &err), -EBUSY);
	assert_non_null(strstr(err.msg, "changes while it is looked at"));
	forge_runtime_close(&rt);
}

static size_t count_identities(void)
{
	size_t n = 0;
	forge_auto_dir DIR *d = opendir(below("home/cache"));

	for (struct dirent *e; d && (e = readdir(d));)
		n += strncmp(e->d_name, "identity-", 9) == 0;
	return n;
}

/* It may change once more within the tick, and look the same. */
static void what_is_as_young_as_the_clock_is_not_remembered(void **state)
{
	struct forge_runtime rt = { .kind = NULL };
	char digest[FORGE_DIGEST_MAX];
	bool was_young = false;

	(void)state;
	make_conda();
	opened("kind: conda, prefix: ./e", &rt);
	/* A machine that stalls between the two lines may be too late; not always. */
	for (int i = 0; i < 20 && !was_young; i++) {
		size_t before = count_identities();
		put(CONDA "a.json", i % 2 ? "{\"name\": \"a\"}" : "{\"name\": \"b\"}");
		digest_now(&rt, digest);
		was_young = count_identities() == before;
	}
	assert_true(was_young);
	/* Later it is. */
	while (count_identities() == 0)
		digest_now(&rt, digest);
	forge_runtime_close(&rt);
}

/* Changes path from one text to another of the same length, and says whether that was seen. */
static bool sees(const char *declaration, const char *path)
{
	struct forge_runtime rt = { .kind = NULL };
	char before[FORGE_DIGEST_MAX], after[FORGE_DIGEST_MAX], back[FORGE_DIGEST_MAX];

	put(path, "Version: 1\n");
	opened(declaration, &rt);
	digest_now(&rt, before);
	put(path, "Version: 2\n");
	digest_now(&rt, after);
	put(path, "Version: 1\n");
	digest_now(&rt, back);
	forge_runtime_close(&rt);
	assert_string_equal(before, back);
	return strcmp(before, after) != 0;
}

static void what_decides_is_in_the_digest(void **state)
{
	(void)state;
	put("root/usr/bin/sh", "");
	put("t/bin/x", "");
	put("lib/toy/DESCRIPTION", "");
	make_conda();
	assert_true(sees("kind: rootfs, prefix: root", "root/usr/lib/deep/er/file"));
	assert_true(sees("kind: rootfs, prefix: root", "root/sbin/tool"));
	assert_false(sees("kind: rootfs, prefix: root", "root/var/cache/file"));
	assert_true(sees("kind: prefix, prefix: t", "t/share/deep/er/file"));
	assert_false(sees("kind: prefix, prefix: t", "t/lib/__pycache__/x.pyc"));
	assert_true(sees("kind: conda, prefix: ./e", SITE "a-1.dist-info/RECORD"));
	assert_false(sees("kind: conda, prefix: ./e", "e/share/data"));
	if (access("/usr/bin/Rscript", X_OK) == 0) {
		assert_true(sees("kind: r, libraries: [lib]", "lib/toy/DESCRIPTION"));
		assert_true(sees("kind: r, libraries: [lib]", "lib/new/DESCRIPTION"));
	}
	/* With a package database that alone counts. */
	put("root/var/lib/dpkg/status",
	    "Package: a\nStatus: install ok installed\nVersion: 1\n\n");
	assert_false(sees("kind: rootfs, prefix: root", "root/usr/lib/deep/er/file"));
}

static void the_same_file_in_another_place_is_another_content(void **state)
{
	struct forge_runtime rt = { .kind = NULL };
	char before[FORGE_DIGEST_MAX], after[FORGE_DIGEST_MAX];

	(void)state;
	put("root/usr/x", "");
	put("root/bin/tool", "1");
	put("root/sbin/y", "");
	opened("kind: rootfs, prefix: root", &rt);
	digest_now(&rt, before);
	assert_int_equal(rename(below("root/bin/tool"), below("root/sbin/tool")), 0);
	digest_now(&rt, after);
	assert_string_not_equal(before, after);
	forge_runtime_close(&rt);
}

static void identify_says(const char *declaration, const char *word)
{
	struct forge_runtime rt = { .kind = NULL };
	struct forge_packages p = { .v = NULL };
	struct forge_error err = FORGE_ERROR_INIT;

	opened(declaration, &rt);
	assert_true(forge_runtime_identify(&rt, &p, &err) < 0);
	if (!strstr(err.msg, word))
		fail_msg("'%s' is not in '%s'", word, err.msg);
	forge_packages_done(&p);
	forge_runtime_close(&rt);
}

static void trees_that_cannot_be_told_are_refused(void **state)
{
	char path[512];
	int len = snprintf(path, sizeof(path), "t/bin");

	(void)state;
	for (int i = 0; i < 66; i++)
		len += snprintf(path + len, sizeof(path) - (size_t)len, "/d");
	put(path, "");
	identify_says("kind: prefix, prefix: t", "more than 64 deep");
	put("root/usr/bin/sh", "");
	put_fifo("root/var/lib/dpkg/status");
	identify_says("kind: rootfs, prefix: root", "package database");
	put_link("root/var/lib/dpkg/status", "/var/lib/dpkg/status"); /* the host's */
	identify_says("kind: rootfs, prefix: root", "package database");
}

/* ---- other kinds ---- */

static void open_says(const char *declaration, const char *word)
{
	struct forge_runtime rt = { .kind = NULL };
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_strv struct forge_strv view = { 0 };
	char *root = NULL;
	int rc = open_runtime(declaration, &rt, &err);

	if (rc == 0)
		rc = forge_runtime_view(&rt, &view, &root, &err);
	forge_runtime_close(&rt);
	free(root);
	if (!word && rc < 0)
		fail_msg("%s", err.msg);
	if (word && (rc == 0 || !strstr(err.msg, word)))
		fail_msg("'%s' is not in '%s'", word, err.msg);
}

/* Who made a venv says where its python is; that must not show somebody's home. */
static void a_venv_shows_nothing_but_a_python(void **state)
{
	(void)state;
	put("v/pyvenv.cfg", "home = /somewhere\n");
	put("user/bin/tool", "");
	assert_int_equal(chmod(below("user/bin/tool"), 0755), 0);
	put_link("v/bin/python", below("user/bin/tool"));
	open_says("kind: venv, prefix: v", "in no tree that could be shown");
	/* Also when there is a Python: it is a home. */
	put("user/lib/python3.11/os.py", "");
	open_says("kind: venv, prefix: v", "in no tree that could be shown");
	put("py/bin/python3.11", "");
	assert_int_equal(chmod(below("py/bin/python3.11"), 0755), 0);
	put_link("v/bin/python", below("py/bin/python3.11"));
	open_says("kind: venv, prefix: v", "in no tree that could be shown");
	put("py/lib/python3.11/os.py", "");
	open_says("kind: venv, prefix: v", NULL);
	put_fifo("v/pyvenv.cfg");
	open_says("kind: venv, prefix: v", "no pyvenv.cfg");
}

static void a_colon_would_make_two_directories_of_one(void **state)
{
	(void)state;
	put("a:b/bin/x", "");
	put("a:b/conda-meta/history", "");
	open_says("kind: prefix, prefix: 'a:b'", "PATH cannot have a ':'");
	open_says("kind: conda, prefix: './a:b'", "PATH cannot have a ':'");
	if (access("/usr/bin/Rscript", X_OK) == 0)
		open_says("kind: r, libraries: ['a:b']", "R_LIBS cannot have a ':'");
}

static void libraries_of_r(void **state)
{
	struct forge_runtime rt = { .kind = NULL };
	forge_auto_strv struct forge_strv env = { 0 }, scripts = { 0 };
	struct forge_packages p = { .v = NULL };
	bool is_found = false;

	(void)state;
	if (access("/usr/bin/Rscript", X_OK) < 0)
		skip();
	put("real/toy/DESCRIPTION",
	    "Package: toy\nMinVersion: 9\nVersion: 1.5\nBuilt: R 4\n");
	put_link("link", below("real"));
	opened("kind: r, libraries: [link]", &rt);
	assert_int_equal(forge_runtime_activate(&rt, &env, &scripts, NULL, NULL), 0);
	assert_string_equal(forge_strv_getenv(&env, "R_LIBS"), below("real"));
	assert_int_equal(forge_runtime_identify(&rt, &p, NULL), 0);
	for (size_t i = 0; i < p.n; i++)
		is_found |= strcmp(p.v[i].name, "toy") == 0 &&
			    strcmp(p.v[i].version, "1.5") == 0;
	assert_true(is_found);
	forge_packages_done(&p);
	forge_runtime_close(&rt);
	put_fifo("real/bad/DESCRIPTION");
	identify_says("kind: r, libraries: [link]", "bad/DESCRIPTION is damaged");
}

/* ---- the catalog ---- */

static void count(const struct forge_runtime_decl *d, void *arg)
{
	const char **last = arg;

	assert_true(!*last || strcmp(*last, d->name) < 0); /* in order, each once */
	*last = d->name;
}

static void declared_ones_hide_those_found(void **state)
{
	struct forge_runtime rt = { .kind = NULL };
	const char *last = NULL;
	char path[128];

	(void)state;
	for (int i = 0; i < 300; i++) {
		(void)snprintf(path, sizeof(path),
			       "user/.conda/envs/e%d/conda-meta/history", i);
		put(path, "");
	}
	put("user/.conda/envs/x/conda-meta/history", "");
	put("user/.conda/envs/not an id/conda-meta/history", "");
	put("user/.conda/envs/moves\033[2J/conda-meta/history", "");
	put("user/.conda/envs/\xff\xfe/conda-meta/history", "");
	put("t/bin/tool", "");
	opened("kind: prefix, prefix: t", &rt);
	assert_string_equal(rt.decl->kind, "prefix");
	forge_catalog_each(&catalog, count, &last);
	assert_int_equal(catalog.n_sorted, 302);
	assert_string_equal(last, "x");
	forge_runtime_close(&rt);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(records_that_are_none_are_told),
		TEST(metadata_elsewhere_is_not_its_own),
		TEST(too_many_packages_are_refused),
		TEST(distributions_that_are_none_are_told),
		TEST(variables_that_are_none_are_told),
		TEST(directories_elsewhere_are_not_its_own),
		TEST(too_many_scripts_are_refused),
		TEST(a_long_chain_of_needs_is_no_long_stack),
		TEST(hostile_names_stay_one_line_in_a_lock),
		TEST(a_rebuilt_package_is_drift),
		TEST(the_order_of_files_does_not_count),
		TEST(a_change_within_a_tick_is_seen),
		TEST(what_changes_while_it_is_read_is_read_again),
		TEST(what_is_as_young_as_the_clock_is_not_remembered),
		TEST(what_decides_is_in_the_digest),
		TEST(the_same_file_in_another_place_is_another_content),
		TEST(trees_that_cannot_be_told_are_refused),
		TEST(a_venv_shows_nothing_but_a_python),
		TEST(a_colon_would_make_two_directories_of_one),
		TEST(libraries_of_r),
		TEST(declared_ones_hide_those_found),
	};

	return cmocka_run_group_tests_name("runtime", tests, NULL, NULL);
}
