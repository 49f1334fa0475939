/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners are closed one after the other. Link with -Wl,--wrap=close: it says when, and with which lock. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "sandbox/socket_count.h"

#define LOCK "ending.lock"

int __real_close(int fd);
int __wrap_close(int fd);
static int listener = -1, turns = -1;
static bool was_locked;

static bool is_locked(void)
{
	int fd = openat(turns, LOCK, O_RDONLY | O_CLOEXEC);
	bool is = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;

	if (fd >= 0)
		(void)__real_close(fd);
	return is;
}

int __wrap_close(int fd)
{
	if (fd >= 0 && fd == listener)
		was_locked = is_locked();
	return __real_close(fd);
}

static char top[64];

static int make(void **state)
{
	(void)state;
	(void)snprintf(top, sizeof(top), "/tmp/forge-unit-XXXXXX");
	assert_non_null(mkdtemp(top));
	turns = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return turns < 0;
}

static int unmake(void **state)
{
	(void)state;
	listener = -1;
	(void)unlinkat(turns, LOCK, 0);
	close(turns);
	return rmdir(top);
}

static void close_listener(int fd, int dir)
{
	struct forge_socket_count c;

	listener = fd;
	forge_socket_count_open(&c, fd, getpid(), 1);
	forge_socket_count_close(&c, dir);
	assert_int_equal(c.listener, -1);
}

static void the_lock_is_held_meanwhile(void **state)
{
	(void)state;
	close_listener(open("/dev/null", O_RDONLY | O_CLOEXEC), turns);
	assert_true(was_locked);
	assert_false(is_locked());
	/* Nothing to take turns by. */
	close_listener(open("/dev/null", O_RDONLY | O_CLOEXEC), -1);
	assert_false(was_locked);
}

/* A process that closes its listener. *ret_end reports POLLHUP when it has done so. */
static pid_t start(int *ret_end)
{
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close_listener(ends[1], turns);
		_exit(0);
	}
	(void)__real_close(ends[1]);
	*ret_end = ends[0];
	return pid;
}

static bool has_closed(int end, int msec)
{
	struct pollfd p = { .fd = end };

	return poll(&p, 1, msec) == 1;
}

static void another_waits_for_its_turn(void **state)
{
	int end, lock = openat(turns, LOCK, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)state;
	assert_int_equal(flock(lock, LOCK_EX), 0);
	pid_t pid = start(&end);
	assert_false(has_closed(end, 300));
	assert_int_equal(flock(lock, LOCK_UN), 0);
	assert_true(has_closed(end, 30000));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(lock);
	close(end);
}

static void nobody_waits_for_ever(void **state)
{
	int end, lock = openat(turns, LOCK, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	uint64_t begin = forge_now_usec();

	(void)state;
	assert_int_equal(flock(lock, LOCK_EX), 0);
	pid_t pid = start(&end);
	bool has_ended = has_closed(end, 30000);
	uint64_t took = forge_now_usec() - begin;
	(void)kill(pid, SIGKILL); /* or it would wait for a test that has failed */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(has_ended);
	assert_true(took >= 3000000);
	close(lock);
	close(end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_lock_is_held_meanwhile, make, unmake),
		cmocka_unit_test_setup_teardown(another_waits_for_its_turn, make, unmake),
		cmocka_unit_test_setup_teardown(nobody_waits_for_ever, make, unmake),
	};

	return cmocka_run_group_tests_name("socket count", tests, NULL, NULL);
}
