/* SPDX-License-Identifier: Apache-2.0 */
/* Guarded files: which they are, what differs between two looks at them, and lists of changes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "health/change.h"
#include "health/guard_set.h"
#include "health/snapshot.h"
#include "unit.h"

/* A set of one check; patterns are separated by blanks. */
static void make_set(const char *patterns, const char *exclude,
		     struct forge_guard_set *ret)
{
	struct forge_check_decl decl = { .kind = (char *)"files",
					 .severity = (char *)"block" };
	const struct forge_health_config h = { .checks = &decl, .n_checks = 1 };
	const struct forge_guard_own own = { .home = "/nowhere/home",
					     .workdirs = "/nowhere/work/{id}",
					     .workdir = "/nowhere/work/7" };
	char text[512];

	(void)snprintf(text, sizeof(text), "%s", patterns);
	for (char *rest = text, *one; (one = strsep(&rest, " "));)
		assert_int_equal(forge_strv_add(&decl.paths, one), 0);
	(void)snprintf(text, sizeof(text), "%s", exclude);
	for (char *rest = text, *one; (one = strsep(&rest, " "));)
		if (*one)
			assert_int_equal(forge_strv_add(&decl.exclude, one), 0);
	assert_int_equal(forge_guard_set_make(&h, &own, ret, NULL), 0);
	forge_strv_done(&decl.paths);
	forge_strv_done(&decl.exclude);
}

static void patterns_and_excludes(void **state)
{
	static const struct {
		const char *patterns, *exclude, *path;
		bool is_guarded;
	} rows[] = {
		{ "/nowhere/a", "", "/nowhere/a", true },
		{ "/nowhere/a", "", "/nowhere/a/b/c", true },
		{ "/nowhere/a", "", "/nowhere/ab", false },
		{ "/nowhere/a", "", "/nowhere", false },
		{ "/nowhere/*.csv", "", "/nowhere/x.csv", true },
		{ "/nowhere/*.csv", "", "/nowhere/d/x.csv", false },
		{ "/nowhere/**/*.csv", "", "/nowhere/d/e/x.csv", true },
		{ "/nowhere/a", "/nowhere/a/b", "/nowhere/a/b", false },
		{ "/nowhere/a", "/nowhere/a/b", "/nowhere/a/b/c", false },
		{ "/nowhere/a", "/nowhere/a/b", "/nowhere/a/bc", true },
		{ "/nowhere/a", "/nowhere/a/**/*.log", "/nowhere/a/x/y.log", false },
		/* What forge changes. */
		{ "/nowhere/**", "", "/nowhere/home/runs/x", false },
		{ "/nowhere/**", "", "/nowhere/work/7/work/f", false },
		{ "/nowhere/**", "", "/nowhere/work/8/work/f", false },
		{ "/nowhere/**", "", "/nowhere/works", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		forge_auto_guard_set struct forge_guard_set s = { 0 };
		make_set(rows[i].patterns, rows[i].exclude, &s);
		if (forge_guard_has(&s, rows[i].path) != rows[i].is_guarded)
			fail_msg("%s without '%s': %s", rows[i].patterns, rows[i].exclude,
				 rows[i].path);
	}
}

static void tops_contain_no_tops(void **state)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };

	(void)state;
	make_set("/nowhere/a/b /nowhere/a /nowhere/c/*/d /nowhere/c/e/f /nowhere/a/b/c",
		 "", &s);
	assert_int_equal(s.tops.n, 2);
	assert_string_equal(s.tops.v[0], "/nowhere/a");
	assert_string_equal(s.tops.v[1], "/nowhere/c");
	assert_true(forge_guard_is_above(&s, "/nowhere"));
	assert_true(forge_guard_is_above(&s, "/nowhere/a"));
	assert_false(forge_guard_is_above(&s, "/nowhere/a/b"));
}

static void directories_that_may_have_guarded_files(void **state)
{
	static const struct {
		const char *pattern, *dir;
		bool reaches;
	} rows[] = {
		{ "/a/*/c", "/a", true },      { "/a/*/c", "/a/x", true },
		{ "/a/*/c", "/b", false },     { "/a/*/c", "/a/x/c", true },
		{ "/a/*/c", "/a/x/d", false }, { "/a/**/c", "/a/x/y/z", true },
		{ "/a", "/a/b/c", true },      { "/a/b", "/", true },
		{ "/a/b*", "/a/bc", true },    { "/a/b*", "/a/c", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (forge_pattern_reaches(rows[i].pattern, rows[i].dir) !=
		    rows[i].reaches)
			fail_msg("%s in %s", rows[i].pattern, rows[i].dir);
}

static void everything_in_it_is_guarded(void **state)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };

	(void)state;
	make_set("/nowhere/a /nowhere/b/*", "/nowhere/a/x", &s);
	assert_false(forge_guard_has_all(&s, "/nowhere/a"));
	assert_true(forge_guard_has_all(&s, "/nowhere/a/y"));
	assert_false(forge_guard_has_all(&s, "/nowhere/a/x"));
	assert_false(forge_guard_has_all(&s, "/nowhere/b"));
	assert_true(forge_guard_has_all(&s, "/nowhere/b/c"));
}

static void a_set_survives_json(void **state)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 }, t = { 0 }, bad = { 0 };

	(void)state;
	make_set("/nowhere/a\xff /nowhere/b/*.csv", "/nowhere/b/c.csv", &s);
	forge_auto_json json_t *j = forge_guard_set_json(&s);
	assert_int_equal(forge_guard_set_parse(j, &t), 0);
	assert_int_equal(t.tops.n, 2);
	assert_true(forge_guard_has(&t, "/nowhere/a\xff/x"));
	assert_false(forge_guard_has(&t, "/nowhere/b/c.csv"));
	assert_true(forge_guard_is_severe(&t, "/nowhere/b/d.csv"));
	forge_auto_json json_t *relative = json_pack("{s:[], s:[{s:[s], s:[]}]}", "own",
						     "parts", "patterns", "a", "exclude");
	assert_int_equal(forge_guard_set_parse(relative, &bad), -EINVAL);
}

static void links_are_resolved(void **state)
{
	char dir[] = "/tmp/test-guard-XXXXXX", pattern[128], path[128];
	forge_auto_guard_set struct forge_guard_set s = { 0 };

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/link", dir);
	assert_int_equal(symlink("real/../real", path), 0);
	(void)snprintf(pattern, sizeof(pattern), "%s/link/x*/y", dir);
	make_set(pattern, "", &s);
	assert_true(forge_guard_has(&s, path));
	(void)snprintf(pattern, sizeof(pattern), "%s/real/x1/y", dir);
	assert_true(forge_guard_has(&s, pattern));
	assert_int_equal(s.tops.n, 2);
	/* One that leads to itself. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("link", path), 0);
	struct forge_check_decl decl = { .kind = (char *)"files" };
	const struct forge_health_config h = { .checks = &decl, .n_checks = 1 };
	const struct forge_guard_own own = { .home = "/nowhere" };
	struct forge_guard_set none = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;
	assert_int_equal(forge_strv_add(&decl.paths, path), 0);
	assert_int_equal(forge_guard_set_make(&h, &own, &none, &err), -ELOOP);
	assert_non_null(strstr(err.msg, path));
	forge_strv_done(&decl.paths);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* ---- two snapshots ---- */

/* Each row changes one field of a file, or of a directory. */
static void each_field_is_compared(void **state)
{
	const struct forge_seen_file file = { .mode = S_IFREG | 0644,
					      .nlink = 1,
					      .ino = 7,
					      .size = 3,
					      .modified = 100,
					      .changed = 100,
					      .digest = NULL },
				     dir = { .mode = S_IFDIR | 0755,
					     .nlink = 2,
					     .ino = 8,
					     .modified = 100,
					     .changed = 100 };
	static char digest[] = "sha256:1";
	struct {
		struct forge_seen_file a, b;
		const char *what;
	} rows[] = {
		{ file, file, NULL },
		{ file, file, "modified" },	      /* ino */
		{ file, file, "modified" },	      /* dev */
		{ file, file, "modified" },	      /* size */
		{ file, file, "modified" },	      /* modified */
		{ file, file, "modified" },	      /* type */
		{ file, file, "modified" },	      /* digest */
		{ file, file, "attributes changed" }, /* mode */
		{ file, file, "attributes changed" }, /* uid */
		{ file, file, "attributes changed" }, /* gid */
		{ file, file, "attributes changed" }, /* nlink */
		{ file, file, "attributes changed" }, /* changed */
		{ dir, dir, NULL },		      /* entries: seen in it */
		{ dir, dir, "attributes changed" },   /* changed alone */
		{ dir, dir, "attributes changed" },   /* mode */
		{ dir, dir, "modified" },	      /* ino */
	};
	size_t i = 1;

	(void)state;
	rows[i++].b.ino = 9;
	rows[i++].b.dev = 1;
	rows[i++].b.size = 4;
	rows[i++].b.modified = 101;
	rows[i++].b.mode = S_IFLNK | 0644;
	rows[i++].b.digest = digest;
	rows[i++].b.mode = S_IFREG | 0600;
	rows[i++].b.uid = 1;
	rows[i++].b.gid = 1;
	rows[i++].b.nlink = 2;
	rows[i++].b.changed = 101;
	rows[i].b.modified = rows[i].b.changed = 101;
	i++;
	rows[i++].b.changed = 101;
	rows[i++].b.mode = S_IFDIR | 0700;
	rows[i++].b.ino = 9;
	for (i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct forge_seen_dir a = { .path = (char *)"/d",
					    .names = (char *)"f",
					    .files = &rows[i].a,
					    .n = 1 },
				      b = a, *pa = &a, *pb = &b;
		struct forge_snapshot before = { .dirs = &pa, .n = 1 },
				      after = { .dirs = &pb, .n = 1 };
		forge_auto_changes struct forge_changes c = { 0 };
		b.files = &rows[i].b;
		assert_int_equal(forge_changes_init(&c), 0);
		forge_snapshot_compare(&before, &after, FORGE_AUTHOR_UNKNOWN, &c);
		const char *what = forge_json_string(json_array_get(c.files, 0), "what");
		if ((what == NULL) != (rows[i].what == NULL) ||
		    (what && strcmp(what, rows[i].what) != 0))
			fail_msg("row %zu: %s", i, what ? what : "nothing");
	}
}

/* What came and went leaves the time of its directory. */
static void traces_of_what_came_and_went(void **state)
{
	struct forge_seen_file old = { .mode = S_IFDIR | 0755,
				       .ino = 8,
				       .modified = 1,
				       .changed = 1 },
			       new = old;
	struct forge_seen_dir outer = {
		.path = (char *)"/o", .names = (char *)"d", .files = &old, .n = 1
	};
	char path[] = "/o/d";
	struct forge_seen_dir inner = { .path = path, .is_whole = true }, later = outer;
	struct forge_seen_dir *a[] = { &outer, &inner }, *b[] = { &later, &inner };
	const struct forge_snapshot before = { .dirs = a, .n = 2 },
				    after = { .dirs = b, .n = 2 };

	(void)state;
	new.modified = new.changed = 2;
	later.files = &new;
	for (int is_whole = 0; is_whole < 2; is_whole++) {
		forge_auto_changes struct forge_changes c = { 0 };
		assert_int_equal(forge_changes_init(&c), 0);
		inner.is_whole = is_whole;
		forge_snapshot_compare(&before, &after, FORGE_AUTHOR_UNKNOWN, &c);
		assert_int_equal(c.n[FORGE_AUTHOR_UNKNOWN], is_whole);
		if (is_whole)
			assert_string_equal(
				forge_json_string(json_array_get(c.files, 0), "what"),
				"entries changed");
	}
}

/* ---- lists ---- */

static void a_path_counts_once_for_each_author(void **state)
{
	forge_auto_changes struct forge_changes c = { 0 };

	(void)state;
	assert_int_equal(forge_changes_init(&c), 0);
	forge_changes_add(&c, "/a", FORGE_CHANGE_CREATED, FORGE_AUTHOR_RUN, "sh (1)");
	forge_changes_add(&c, "/a", FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_RUN, "sh (1)");
	forge_changes_add(&c, "/a", FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_OTHER, NULL);
	assert_int_equal(c.n[FORGE_AUTHOR_RUN], 1);
	assert_int_equal(c.n[FORGE_AUTHOR_OTHER], 1);
	assert_int_equal(json_array_size(c.files), 2);
	assert_true(forge_changes_has(&c, "/a", FORGE_AUTHOR_RUN));
	assert_false(forge_changes_has(&c, "/a", FORGE_AUTHOR_UNKNOWN));
}

static void lists_are_merged(void **state)
{
	forge_auto_changes struct forge_changes a = { 0 }, b = { 0 };
	char path[32];

	(void)state;
	assert_int_equal(forge_changes_init(&a), 0);
	assert_int_equal(forge_changes_init(&b), 0);
	for (int i = 0; i < 250; i++) {
		(void)snprintf(path, sizeof(path), "/f%d", i);
		forge_changes_add(&a, path, FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_UNKNOWN,
				  NULL);
	}
	forge_auto_json json_t *found = forge_changes_json(&a);
	assert_int_equal(json_array_size(json_object_get(found, "files")),
			 FORGE_CHANGES_MAX);
	forge_changes_add(&b, "/f3", FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_RUN, NULL);
	forge_changes_add(&b, "/f4", FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_OTHER, NULL);
	forge_changes_add_unknown(&b, found);
	/* Two of them are known by now, and those that have no name are counted. */
	assert_int_equal(b.n[FORGE_AUTHOR_UNKNOWN], 248);
	assert_int_equal(b.n[FORGE_AUTHOR_RUN], 1);
	forge_changes_add_unknown(&b, NULL);
	assert_int_equal(b.n[FORGE_AUTHOR_UNKNOWN], 248);
}

static void one_that_is_severe_is_named(void **state)
{
	forge_auto_guard_set struct forge_guard_set s = { 0 };
	forge_auto_changes struct forge_changes c = { 0 };
	char path[32];

	(void)state;
	make_set("/nowhere/bad", "", &s);
	assert_int_equal(forge_changes_init(&c), 0);
	c.set = &s;
	for (int i = 0; i < 250; i++) {
		(void)snprintf(path, sizeof(path), "/f%d", i);
		forge_changes_add(&c, path, FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_RUN,
				  NULL);
	}
	forge_changes_add(&c, "/nowhere/bad", FORGE_CHANGE_MODIFIED, FORGE_AUTHOR_RUN,
			  NULL);
	assert_int_equal(json_array_size(c.files), FORGE_CHANGES_MAX + 1);
	assert_string_equal(
		forge_json_string(json_array_get(c.files, FORGE_CHANGES_MAX), "path"),
		"/nowhere/bad");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_and_excludes),
		cmocka_unit_test(tops_contain_no_tops),
		cmocka_unit_test(directories_that_may_have_guarded_files),
		cmocka_unit_test(everything_in_it_is_guarded),
		cmocka_unit_test(a_set_survives_json),
		cmocka_unit_test(links_are_resolved),
		cmocka_unit_test(each_field_is_compared),
		cmocka_unit_test(traces_of_what_came_and_went),
		cmocka_unit_test(a_path_counts_once_for_each_author),
		cmocka_unit_test(lists_are_merged),
		cmocka_unit_test(one_that_is_severe_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
