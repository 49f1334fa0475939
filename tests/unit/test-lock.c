/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on files: which exclude each other, how long a caller waits, and what ends the wait. */
#include "unit.h"

#include <sys/time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "scratch.h"

static int dir = -1;

static int make(void **state)
{
	(void)state;
	scratch_make();
	dir = open(scratch_top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0 ? -1 : 0;
}

static int unmake(void **state)
{
	(void)state;
	close(dir);
	scratch_remove();
	return 0;
}

/* Each call opens the file anew, and flock(2) belongs to the open file: one process is enough. */
static int lock(enum forge_lock_kind kind, int wait_msec, int stop_fd)
{
	return forge_lock_file(dir, "lock", kind, wait_msec, stop_fd);
}

static unsigned count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void an_exclusive_lock_excludes_all(void **state)
{
	(void)state;
	int held = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);

	assert_true(held >= 0);
	assert_int_equal(lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1),
			 -EWOULDBLOCK);
	assert_int_equal(lock(FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1), -EWOULDBLOCK);
	close(held);
	forge_auto_close int next = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);
	assert_true(next >= 0);
}

static void shared_locks_exclude_exclusive_ones_only(void **state)
{
	(void)state;
	int first = lock(FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1);
	int second = lock(FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1);

	assert_true(first >= 0 && second >= 0);
	assert_int_equal(lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1),
			 -EWOULDBLOCK);
	close(first);
	assert_int_equal(lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1),
			 -EWOULDBLOCK);
	close(second);
	forge_auto_close int last = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);
	assert_true(last >= 0);
}

static void an_open_file_can_be_locked(void **state)
{
	(void)state;
	__attribute__((unused)) forge_auto_close int held = lock(FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1);
	forge_auto_close int fd = openat(dir, "lock", O_RDONLY | O_CLOEXEC);

	assert_true(held >= 0 && fd >= 0);
	assert_int_equal(forge_lock_fd(fd, FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1), 0);
	assert_int_equal(forge_lock_fd(fd, FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1),
			 -EWOULDBLOCK);
	assert_int_equal(
		forge_lock_fd(-1, FORGE_LOCK_SHARED, FORGE_LOCK_WAIT_FOREVER, -1),
		-EBADF);
}

static void a_bounded_wait_ends_at_its_bound(void **state)
{
	(void)state;
	__attribute__((unused)) forge_auto_close int held = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);
	uint64_t before = forge_now_usec();

	assert_int_equal(lock(FORGE_LOCK_SHARED, 30, -1), -EWOULDBLOCK);
	assert_true(forge_now_usec() - before >= 30000);
}

static void hold_until_told(const struct child *c, void *arg)
{
	(void)arg;
	if (lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1) < 0)
		return;
	child_say(c, 'l');
	child_wait(c);
}

static void a_bounded_wait_gets_what_is_released(void **state)
{
	(void)state;
	struct child c = child_start(hold_until_told, NULL);

	assert_int_equal(scratch_read(c.from), 'l');
	assert_int_equal(lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1),
			 -EWOULDBLOCK);
	child_go(&c);
	forge_auto_close int fd = lock(FORGE_LOCK_EXCLUSIVE, SCRATCH_MSEC, -1);
	assert_true(fd >= 0);
	assert_int_equal(child_end(&c), 0);
}

static struct child holder;

static void let_go(int signal)
{
	(void)signal;
	(void)!write(holder.to, "", 1);
}

/* The lock is released from a signal handler: a wait that is interrupted has to go on. */
static void a_wait_for_ever_survives_signals(void **state)
{
	(void)state;
	struct sigaction act = { .sa_handler = let_go }, old;
	const struct itimerval soon = { .it_value = { .tv_usec = 20000 } };

	holder = child_start(hold_until_told, NULL);
	assert_int_equal(scratch_read(holder.from), 'l');
	assert_int_equal(sigaction(SIGALRM, &act, &old), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
	forge_auto_close int fd = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_WAIT_FOREVER, -1);
	assert_true(fd >= 0);
	assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
	assert_int_equal(child_end(&holder), 0);
}

static void a_lock_ends_with_its_process(void **state)
{
	(void)state;
	struct child c = child_start(hold_until_told, NULL);

	assert_int_equal(scratch_read(c.from), 'l');
	child_kill(&c);
	forge_auto_close int fd = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);
	assert_true(fd >= 0);
}

static void a_readable_descriptor_ends_the_wait(void **state)
{
	(void)state;
	__attribute__((unused)) forge_auto_close int held = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);
	int stop[2];

	assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
	/* Not readable yet: the bound is what ends it. */
	assert_int_equal(lock(FORGE_LOCK_SHARED, 1, stop[0]), -EWOULDBLOCK);
	assert_int_equal(write(stop[1], "", 1), 1);
	assert_int_equal(lock(FORGE_LOCK_SHARED, FORGE_LOCK_WAIT_FOREVER, stop[0]),
			 -ECANCELED);
	assert_int_equal(lock(FORGE_LOCK_EXCLUSIVE, SCRATCH_MSEC, stop[0]), -ECANCELED);
	close(stop[0]);
	close(stop[1]);
}

static void the_file_is_made_for_its_owner(void **state)
{
	(void)state;
	forge_auto_close int fd = lock(FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
}

static void links_are_not_followed(void **state)
{
	(void)state;
	assert_int_equal(symlinkat("target", dir, "lock"), 0);
	assert_int_equal(lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1), -ELOOP);
	assert_int_equal(faccessat(dir, "target", F_OK, 0), -1);
}

static void failures_leave_no_descriptor(void **state)
{
	(void)state;
	__attribute__((unused)) forge_auto_close int held = lock(FORGE_LOCK_EXCLUSIVE, FORGE_LOCK_NO_WAIT, -1);
	unsigned before = count_fds();

	assert_int_equal(lock(FORGE_LOCK_SHARED, FORGE_LOCK_NO_WAIT, -1), -EWOULDBLOCK);
	assert_int_equal(lock(FORGE_LOCK_SHARED, 1, -1), -EWOULDBLOCK);
	assert_int_equal(forge_lock_file(dir, "no/lock", FORGE_LOCK_SHARED, 0, -1),
			 -ENOENT);
	assert_int_equal(count_fds(), before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_exclusive_lock_excludes_all),
		TEST(shared_locks_exclude_exclusive_ones_only),
		TEST(an_open_file_can_be_locked),
		TEST(a_bounded_wait_ends_at_its_bound),
		TEST(a_bounded_wait_gets_what_is_released),
		TEST(a_wait_for_ever_survives_signals),
		TEST(a_lock_ends_with_its_process),
		TEST(a_readable_descriptor_ends_the_wait),
		TEST(the_file_is_made_for_its_owner),
		TEST(links_are_not_followed),
		TEST(failures_leave_no_descriptor),
	};

	return cmocka_run_group_tests_name("lock", tests, NULL, NULL);
}
