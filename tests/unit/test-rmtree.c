/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile trees are removed whole, and nothing outside of them is touched. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rmtree.h"

struct tree {
	char top[64];     /* holds victim and outside */
	char victim[80];
	char outside[80];
	struct stat st;
};

static int make(void **state)
{
	struct tree *t = calloc(1, sizeof(*t));

	(void)snprintf(t->top, sizeof(t->top), "/tmp/forge-unit-XXXXXX");
	assert_non_null(mkdtemp(t->top));
	(void)snprintf(t->victim, sizeof(t->victim), "%s/victim", t->top);
	(void)snprintf(t->outside, sizeof(t->outside), "%s/outside", t->top);
	assert_int_equal(mkdir(t->victim, 0700), 0);
	int fd = open(t->outside, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(stat(t->victim, &t->st), 0);
	*state = t;
	return 0;
}

static int unmake(void **state)
{
	struct tree *t = *state;

	(void)unlink(t->outside);
	(void)rmdir(t->victim);
	assert_int_equal(rmdir(t->top), 0);
	free(t);
	return 0;
}

static void remove_it(struct tree *t, struct forge_rmtree_stats *stats)
{
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(forge_rmtree(t->victim, t->st.st_dev, t->st.st_ino, stats, &err), 0);
	assert_int_equal(err.code, 0);
	assert_int_equal(access(t->victim, F_OK), -1);
	assert_int_equal(access(t->outside, F_OK), 0);
}

static void links_fifos_and_odd_names_go(void **state)
{
	struct tree *t = *state;
	struct forge_rmtree_stats stats;
	int dir = open(t->victim, O_RDONLY | O_DIRECTORY);

	assert_int_equal(symlinkat(t->outside, dir, "link"), 0);
	assert_int_equal(symlinkat(t->top, dir, "up"), 0);
	assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
	assert_int_equal(mkdirat(dir, "new\nline", 0700), 0);
	assert_int_equal(linkat(AT_FDCWD, t->outside, dir, "hard", 0), 0);
	close(dir);
	remove_it(t, &stats);
	assert_int_equal(stats.files, 4);
	assert_int_equal(stats.dirs, 2);
}

static void directories_without_permissions_go(void **state)
{
	struct tree *t = *state;
	struct forge_rmtree_stats stats;
	int dir = open(t->victim, O_RDONLY | O_DIRECTORY);

	assert_int_equal(mkdirat(dir, "a", 0700), 0);
	assert_int_equal(mkdirat(dir, "a/b", 0700), 0);
	assert_int_equal(fchmodat(dir, "a/b", 0, 0), 0);
	assert_int_equal(fchmodat(dir, "a", 0, 0), 0);
	close(dir);
	remove_it(t, &stats);
}

/* Far deeper than descriptors or PATH_MAX allow at once. */
static void depth_does_not_matter(void **state)
{
	struct tree *t = *state;
	struct forge_rmtree_stats stats;
	int dir = open(t->victim, O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < 5000; i++) {
		assert_int_equal(mkdirat(dir, "d", 0700), 0);
		int next = openat(dir, "d", O_RDONLY | O_DIRECTORY);
		assert_true(next >= 0);
		close(dir);
		dir = next;
	}
	close(dir);
	remove_it(t, &stats);
	assert_int_equal(stats.dirs, 5001);
}

/* A chain of directories below dir, which is closed. */
static void dig(int dir, unsigned depth)
{
	for (unsigned i = 0; i < depth; i++) {
		assert_int_equal(mkdirat(dir, "d", 0700), 0);
		int next = openat(dir, "d", O_RDONLY | O_DIRECTORY);
		assert_true(next >= 0);
		close(dir);
		dir = next;
	}
	close(dir);
}

/* Whoever made the tree knows this program: the names that deep directories were moved to are taken. */
static void names_of_ours_can_be_taken(void **state)
{
	struct tree *t = *state;
	struct forge_rmtree_stats stats;
	int dir = open(t->victim, O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < 30; i++) {
		char name[64];
		(void)snprintf(name, sizeof(name), ".forge-removing-%d", i);
		assert_int_equal(mkdirat(dir, name, 0700), 0);
		dig(openat(dir, name, O_RDONLY | O_DIRECTORY), 40);
	}
	dig(dir, 200);
	remove_it(t, &stats);
	assert_int_equal(stats.dirs, 1 + 30 * 41 + 200);
}

/* Link with -Wl,--wrap=renameat2: as on a full disk, or where a directory is encrypted. */
int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
static bool cannot_move;

int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	if (!cannot_move)
		return __real_renameat2(from_dir, from, to_dir, to, flags);
	errno = ENOSPC;
	return -1;
}

static void nothing_need_be_moved(void **state)
{
	struct tree *t = *state;
	struct forge_rmtree_stats stats;
	int dir = open(t->victim, O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < 3; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(mkdirat(dir, name, 0700), 0);
		dig(openat(dir, name, O_RDONLY | O_DIRECTORY), 150);
	}
	/* Branches at every level below the limit, with files, and without permissions. */
	for (int i = 0; i < 100; i++) {
		assert_int_equal(mkdirat(dir, "a", 0700), 0);
		assert_int_equal(mkdirat(dir, "b", 0700), 0);
		assert_int_equal(mkdirat(dir, "b/c", 0700), 0);
		int fd = openat(dir, "b/c/file", O_CREAT | O_WRONLY, 0600);
		assert_true(fd >= 0);
		close(fd);
		int next = openat(dir, "a", O_RDONLY | O_DIRECTORY);
		assert_int_equal(fchmodat(dir, "b", 0, 0), 0);
		close(dir);
		dir = next;
	}
	close(dir);
	cannot_move = true;
	remove_it(t, &stats);
	cannot_move = false;
	assert_int_equal(stats.dirs, 1 + 3 * 151 + 300);
	assert_int_equal(stats.files, 100);
}

/* What cannot go keeps nothing else. */
static void the_rest_goes(void **state)
{
	struct tree *t = *state;
	struct forge_error err = FORGE_ERROR_INIT;
	int dir = open(t->victim, O_RDONLY | O_DIRECTORY);

	if (geteuid() != 0) {
		close(dir);
		skip();
	}
	for (int i = 0; i < 50; i++) {
		char name[64];
		(void)snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(mkdirat(dir, name, 0700), 0);
	}
	assert_int_equal(mkdirat(dir, "mounted", 0700), 0);
	char place[128];
	(void)snprintf(place, sizeof(place), "%s/mounted", t->victim);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", place, "tmpfs", 0, NULL) < 0) {
		close(dir);
		skip();
	}
	assert_int_equal(forge_rmtree(t->victim, t->st.st_dev, t->st.st_ino, NULL, &err), -EXDEV);
	assert_int_equal(faccessat(dir, "49", F_OK, 0), -1);
	assert_int_equal(faccessat(dir, "0", F_OK, 0), -1);
	assert_int_equal(umount(place), 0);
	close(dir);
	remove_it(t, NULL);
}

static void something_else_at_the_path_is_left_alone(void **state)
{
	struct tree *t = *state;
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(forge_rmtree(t->victim, t->st.st_dev, t->st.st_ino + 1, NULL, &err), -ESTALE);
	assert_int_equal(access(t->victim, F_OK), 0);
	assert_int_equal(rmdir(t->victim), 0);
	assert_int_equal(symlink(t->top, t->victim), 0);
	assert_int_equal(forge_rmtree(t->victim, t->st.st_dev, t->st.st_ino, NULL, &err), -ELOOP);
	assert_int_equal(access(t->outside, F_OK), 0);
	assert_int_equal(unlink(t->victim), 0);
}

static void nothing_there_is_fine(void **state)
{
	struct tree *t = *state;

	assert_int_equal(rmdir(t->victim), 0);
	assert_int_equal(forge_rmtree(t->victim, t->st.st_dev, t->st.st_ino, NULL, NULL), 0);
}

#define WITH_TREE(f) cmocka_unit_test_setup_teardown(f, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_TREE(links_fifos_and_odd_names_go),
		WITH_TREE(directories_without_permissions_go),
		WITH_TREE(depth_does_not_matter),
		WITH_TREE(names_of_ours_can_be_taken),
		WITH_TREE(nothing_need_be_moved),
		WITH_TREE(the_rest_goes),
		WITH_TREE(something_else_at_the_path_is_left_alone),
		WITH_TREE(nothing_there_is_fine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
