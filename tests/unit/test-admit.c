/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: shares of the host's budget, and the order in which waiting runs get them. The children of a
 * test are other supervisors. They report over pipes, and inotify reports their tickets.
 */
#include "unit.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/inotify.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "config/config.h"
#include "run/admit.h"
#include "scratch.h"
#include "state/queue.h"

#define GIB (UINT64_C(1) << 30)

static struct forge_home home = FORGE_HOME_INIT;
static struct forge_config *config;
static int queue_dir = -1, tickets = -1;

/* A home whose budget is 4 GiB and 4 CPUs. */
static int make(void **state)
{
	static const char text[] = "host: {budget: {memory: 4G, cpus: 4}}\n";

	(void)state;
	scratch_make();
	assert_int_equal(forge_home_open(true, &home, NULL), 0);
	assert_int_equal(
		forge_config_parse(text, strlen(text), "test", "/", &config, NULL), 0);
	queue_dir = forge_home_subdir(&home, "queue", NULL);
	tickets = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	assert_true(queue_dir >= 0 && tickets >= 0);
	assert_true(inotify_add_watch(tickets, scratch("home/queue"),
				      IN_CREATE | IN_MOVED_TO) >= 0);
	return 0;
}

static int unmake(void **state)
{
	(void)state;
	close(tickets);
	close(queue_dir);
	forge_config_free(config);
	config = NULL;
	forge_home_close(&home);
	home = FORGE_HOME_INIT;
	scratch_remove();
	return 0;
}

/* Every run has a slot of its own. */
static struct forge_need need(const char *run_id, uint64_t gib, uint64_t cpus)
{
	static unsigned slot;

	return (struct forge_need){ .memory_bytes = gib * GIB,
				    .cpus_milli = cpus * 1000,
				    .run_id = run_id,
				    .slot = slot++ };
}

/* Tries to get a share: 0 it is held, 1 there is no room. */
static int try(const char *run_id, uint64_t gib, uint64_t cpus, struct forge_share *ret)
{
	struct forge_need n = need(run_id, gib, cpus);
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	int rc = forge_admit_try(&home, config, &n, ret, &err);

	assert_untouched(err);
	return rc;
}

static void no_room(const char *run_id, uint64_t gib, uint64_t cpus)
{
	struct forge_share s = FORGE_SHARE_INIT;

	assert_int_equal(try(run_id, gib, cpus, &s), 1);
	assert_int_equal(s.fd, -1);
}

static struct forge_share taken(const char *run_id, uint64_t gib, uint64_t cpus)
{
	struct forge_share s = FORGE_SHARE_INIT;

	assert_int_equal(try(run_id, gib, cpus, &s), 0);
	assert_true(s.fd >= 0);
	return s;
}

/* Whether the queue has a file with this beginning. */
static bool has_file(const char *prefix)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	assert_int_equal(forge_entries_open(&d, home.fd, "queue"), 0);
	for (const char *name; (name = forge_entries_next(&d));)
		if (strncmp(name, prefix, strlen(prefix)) == 0)
			return true;
	assert_int_equal(d.error, 0);
	return false;
}

static bool names_ticket(const char *events, size_t len, const char *run_id)
{
	for (size_t at = 0; at < len;) {
		const struct inotify_event *e = (const void *)(events + at);
		const char *dash = e->len ? strrchr(e->name, '-') : NULL;

		if (dash && e->name[0] == 'w' && strcmp(dash + 1, run_id) == 0)
			return true;
		at += sizeof(*e) + e->len;
	}
	return false;
}

/* Waits until the run has its ticket, and has locked it. */
static void wait_for_ticket(const char *run_id)
{
	_Alignas(struct inotify_event) char events[8192];
	struct pollfd p = { .fd = tickets, .events = POLLIN };

	for (;;) {
		if (poll(&p, 1, SCRATCH_MSEC) != 1)
			fail_msg("%s has no ticket", run_id);
		ssize_t n = read(tickets, events, sizeof(events));
		assert_true(n > 0);
		if (names_ticket(events, (size_t)n, run_id))
			break;
	}
	/* The file is made and locked under the lock of the queue. */
	int lock = forge_queue_lock(&home, NULL);
	assert_true(lock >= 0);
	close(lock);
}

/* ---- shares */

static void a_share_is_taken_and_released(void **state)
{
	struct forge_share s = taken("a", 1, 1);

	(void)state;
	assert_string_equal(s.name, "s-1073741824-1000-a");
	assert_true(has_file("s-1073741824-1000-a"));
	assert_true(forge_queue_is_locked(queue_dir, s.name));
	forge_admit_release(&s);
	assert_int_equal(s.fd, -1);
	assert_int_equal(s.dir_fd, -1);
	assert_false(has_file("s-"));
	forge_admit_release(&s); /* there is none any more */
}

static void shares_stay_within_the_memory(void **state)
{
	struct forge_share a = taken("a", 3, 1);

	(void)state;
	no_room("b", 2, 1);
	struct forge_share b = taken("b", 1, 1);
	no_room("c", 1, 1);
	forge_admit_release(&a);
	a = taken("a", 3, 1);
	forge_admit_release(&a);
	forge_admit_release(&b);
}

static void shares_stay_within_the_cpus(void **state)
{
	struct forge_share a = taken("a", 1, 3);

	(void)state;
	no_room("b", 1, 2);
	struct forge_share b = taken("b", 1, 1);
	no_room("c", 1, 1);
	forge_admit_release(&a);
	forge_admit_release(&b);
}

static void shares_stay_within_the_runs(void **state)
{
	(void)state;
	config->budget_runs = 2;
	struct forge_share a = taken("a", 1, 1), b = taken("b", 1, 1);
	no_room("c", 1, 1);
	forge_admit_release(&a);
	a = taken("c", 1, 1);
	forge_admit_release(&a);
	forge_admit_release(&b);
}

static void unlimited_is_the_whole_budget(void **state)
{
	struct forge_need n = need("all", 0, 0);
	struct forge_share s = FORGE_SHARE_INIT, small = taken("small", 1, 1);
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)state;
	n.memory_bytes = n.cpus_milli = FORGE_UNLIMITED;
	assert_int_equal(forge_admit_check(config, &n, &err), 0);
	assert_int_equal(forge_admit_try(&home, config, &n, &s, &err), 1);
	forge_admit_release(&small);
	assert_int_equal(forge_admit_try(&home, config, &n, &s, &err), 0);
	assert_untouched(err);
	assert_string_equal(s.name, "s-4294967296-4000-all");
	no_room("small", 1, 1);
	forge_admit_release(&s);
}

static void refused_for_ever(const struct forge_need *n, const char *message,
			     const char *hint)
{
	struct forge_share s = FORGE_SHARE_INIT;
	struct forge_error err = FORGE_ERROR_INIT;

	assert_int_equal(forge_admit_try(&home, config, n, &s, &err), -E2BIG);
	assert_string_equal(err.msg, message);
	assert_string_equal(err.hint, hint);
	assert_int_equal(s.fd, -1);
	err = FORGE_ERROR_INIT;
	assert_int_equal(forge_admit_check(config, n, &err), -E2BIG);
	assert_string_equal(err.msg, message);
	assert_int_equal(forge_admit_check(config, n, NULL), -E2BIG);
}

static void what_can_never_fit_is_refused(void **state)
{
	struct forge_need n = need("a", 5, 1);

	(void)state;
	refused_for_ever(
		&n,
		"memory 5.00 GiB is more than all analyses on this host may have "
		"together, 4.00 GiB",
		"Ask for less, or raise host.budget.memory");
	n = need("a", 1, 5);
	refused_for_ever(&n,
			 "5 CPUs are more than all analyses on this host may have "
			 "together, 4",
			 "Ask for fewer, or raise host.budget.cpus");
	n = need("a", 4, 4);
	assert_int_equal(forge_admit_check(config, &n, NULL), 0);
}

static void take_all(const struct child *c, void *arg)
{
	struct forge_share s = FORGE_SHARE_INIT;
	struct forge_need n = need("dead", 4, 4);

	(void)arg;
	child_say(c, forge_admit_try(&home, config, &n, &s, NULL) == 0 ? 's' : '?');
	child_wait(c);
}

static void the_share_of_a_dead_run_is_free(void **state)
{
	struct child c = child_start(take_all, NULL);

	(void)state;
	assert_int_equal(scratch_read(c.from), 's');
	no_room("a", 1, 1);
	child_kill(&c);
	assert_true(has_file("s-4294967296-4000-dead"));
	struct forge_share s = taken("a", 4, 4);
	assert_false(has_file("s-4294967296-4000-dead"));
	forge_admit_release(&s);
}

/* ---- tickets */

/* A supervisor that gets in line, takes a share, and keeps it until child_go(). */
struct waiter {
	struct forge_need need;
	int served; /* where it reports that it has its share */
};

static void get_in_line(const struct child *c, void *arg)
{
	const struct waiter *w = arg;
	struct forge_ticket t = FORGE_TICKET_INIT;
	struct forge_share s = FORGE_SHARE_INIT;
	int rc = forge_admit_queue(&home, config, &w->need, -1, &t, NULL);

	if (rc == 0)
		rc = forge_admit_take(&t, -1, &s, NULL);
	/* Before it leaves: then the run behind it cannot report first. */
	char letter = rc == 0 ? w->need.run_id[0] : '?';
	if (write(w->served, &letter, 1) != 1)
		_exit(9);
	forge_admit_leave(&t);
	child_wait(c);
	forge_admit_release(&s);
}

/* Starts one, and returns when it is in line. */
static struct child start_waiter(const char *run_id, uint64_t cpus, int priority,
				 int served)
{
	struct waiter w = { .need = need(run_id, 1, cpus), .served = served };

	w.need.priority = priority;
	struct child c = child_start(get_in_line, &w);
	wait_for_ticket(run_id);
	return c;
}

static void end_waiter(struct child *c)
{
	child_go(c);
	assert_int_equal(child_end(c), 0);
}

static void tickets_are_served_by_priority_then_time(void **state)
{
	int served[2];

	(void)state;
	config->budget_runs = 1;
	assert_int_equal(pipe2(served, O_CLOEXEC), 0);
	struct forge_share s = taken("now", 1, 1);
	/* Of the same priority, the earlier one has the later name. */
	struct child third = start_waiter("y", 1, 0, served[1]);
	struct child last = start_waiter("b", 1, -5, served[1]);
	struct child fourth = start_waiter("x", 1, 0, served[1]);
	struct child first = start_waiter("z", 1, 5, served[1]);
	struct child second = start_waiter("a", 1, 5, served[1]);
	forge_admit_release(&s);
	struct child *const order[] = { &first, &second, &third, &fourth, &last };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(order); i++) {
		assert_int_equal(scratch_read(served[0]), "zayxb"[i]);
		end_waiter(order[i]);
	}
	assert_false(has_file("w-"));
	assert_false(has_file("s-"));
	close(served[0]);
	close(served[1]);
}

static void a_big_run_is_not_overtaken(void **state)
{
	struct forge_need urgent = need("u", 1, 1);
	struct forge_share u = FORGE_SHARE_INIT;
	int served[2];

	(void)state;
	assert_int_equal(pipe2(served, O_CLOEXEC), 0);
	struct forge_share s = taken("now", 1, 2);
	struct child big = start_waiter("b", 3, 0, served[1]);
	/* One CPU would fit, but not before the one that waits for three. */
	no_room("s", 1, 1);
	struct child small = start_waiter("s", 1, 0, served[1]);
	/* A higher priority goes first. */
	urgent.priority = 1;
	assert_int_equal(forge_admit_try(&home, config, &urgent, &u, NULL), 0);
	forge_admit_release(&u);
	forge_admit_release(&s);
	assert_int_equal(scratch_read(served[0]), 'b');
	assert_int_equal(scratch_read(served[0]), 's'); /* beside it: 3 of 4 are in use */
	end_waiter(&big);
	end_waiter(&small);
	close(served[0]);
	close(served[1]);
}

static bool has_said(const struct child *c)
{
	struct pollfd p = { .fd = c->from, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* Gets in line, says when it is one of the first, and takes no share. */
static void hold_ticket(const struct child *c, void *arg)
{
	struct forge_ticket t = FORGE_TICKET_INIT;
	const struct forge_need *n = arg;

	child_say(c, forge_admit_queue(&home, config, n, -1, &t, NULL) == 0 ? 't' : '?');
	child_wait(c);
}

static struct child start_holder(void)
{
	struct forge_need n = need("first", 1, 1);
	struct child c = child_start(hold_ticket, &n);

	assert_int_equal(scratch_read(c.from), 't');
	return c;
}

/* Of four CPUs, two are for the commands. */
static void two_runs_prepare_and_the_third_waits(void **state)
{
	struct forge_need n = need("third", 1, 1), low = need("low", 1, 1);
	struct child first = start_holder(), second = start_holder();

	(void)state;
	low.priority = -1;
	struct child third = child_start(hold_ticket, &n);
	wait_for_ticket("third");
	struct child last = child_start(hold_ticket, &low);
	wait_for_ticket("low");
	assert_false(has_said(&third));
	child_kill(&first);
	assert_int_equal(scratch_read(third.from), 't');
	assert_false(has_said(&last));
	child_kill(&second);
	assert_int_equal(scratch_read(last.from), 't');
	child_kill(&third);
	child_kill(&last);
}

static void the_ticket_of_a_dead_run_is_removed(void **state)
{
	struct child c = start_holder();

	(void)state;
	no_room("a", 1, 1);
	assert_true(has_file("w-"));
	child_go(&c);
	assert_int_equal(child_end(&c), 0); /* it exits, and does not leave the line */
	assert_true(has_file("w-"));
	struct forge_share s = taken("a", 1, 1);
	assert_false(has_file("w-"));
	forge_admit_release(&s);
}

static void a_run_behind_a_dead_one_goes_on(void **state)
{
	struct child first = start_holder();
	int served[2];

	(void)state;
	assert_int_equal(pipe2(served, O_CLOEXEC), 0);
	struct child next = start_waiter("n", 1, 0, served[1]);
	child_kill(&first);
	assert_int_equal(scratch_read(served[0]), 'n');
	end_waiter(&next);
	close(served[0]);
	close(served[1]);
}

static void the_first_in_line_takes_its_share(void **state)
{
	struct forge_ticket t = FORGE_TICKET_INIT;
	struct forge_share s = FORGE_SHARE_INIT;
	struct forge_need n = need("a", 1, 1);
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	(void)state;
	assert_int_equal(forge_admit_queue(&home, config, &n, -1, &t, &err), 0);
	assert_true(forge_queue_is_locked(queue_dir, t.name));
	assert_int_equal(forge_admit_take(&t, -1, &s, &err), 0);
	assert_untouched(err);
	forge_admit_leave(&t);
	assert_int_equal(t.fd, -1);
	assert_false(has_file("w-"));
	assert_true(has_file("s-1073741824-1000-a"));
	forge_admit_release(&s);
	forge_admit_leave(&t); /* it has left already */
}

/* ---- what ends the wait */

/* Waits in line behind another ticket, or as the first for a share that is in use. */
static void wait_ends(bool is_first, int signal_fd, int code, const char *message)
{
	struct forge_ticket t = FORGE_TICKET_INIT;
	struct forge_share s = FORGE_SHARE_INIT;
	struct forge_need n = need("a", 4, 4);
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_admit_queue(&home, config, &n, signal_fd, &t, &err);

	if (is_first) {
		assert_int_equal(rc, 0);
		rc = forge_admit_take(&t, signal_fd, &s, &err);
	}
	assert_int_equal(rc, -code);
	assert_string_equal(err.msg, message);
	assert_int_equal(s.fd, -1);
	forge_admit_leave(&t);
}

static void waits_end(int signal_fd, int code, const char *message)
{
	struct forge_share s = taken("now", 1, 1);

	wait_ends(true, signal_fd, code, message);
	forge_admit_release(&s);
	assert_false(has_file("w-"));
	struct child a = start_holder(), b = start_holder();
	wait_ends(false, signal_fd, code, message);
	child_kill(&a);
	child_kill(&b);
}

static void a_signal_cancels(void **state)
{
	int signals[2];

	(void)state;
	assert_int_equal(pipe2(signals, O_CLOEXEC), 0);
	assert_int_equal(write(signals[1], "", 1), 1);
	waits_end(signals[0], ECANCELED, "cancelled while queued");
	close(signals[0]);
	close(signals[1]);
}

static void the_wait_has_a_bound(void **state)
{
	int signals[2];

	(void)state;
	config->queue_usec = 1000;
	assert_int_equal(pipe2(signals, O_CLOEXEC), 0);
	waits_end(signals[0], ETIMEDOUT, "no room within queue.max_wait");
	close(signals[0]);
	close(signals[1]);
}

/* ---- why it waits */

static void why(const char *run_id, uint64_t gib, uint64_t cpus, const char *sentence)
{
	struct forge_need n = need(run_id, gib, cpus);
	char buf[FORGE_WHY_MAX];

	assert_string_equal(forge_admit_why(&home, config, &n, buf), sentence);
}

static void the_reason_is_a_sentence(void **state)
{
	(void)state;
	struct forge_share s = taken("now", 3, 2);
	why("a", 1, 3, "waits for 3 CPUs: 2 of 4 in use");
	why("a", 2, 1, "waits for 2.00 GiB: 3.00 GiB of 4.00 GiB in use");
	config->budget_runs = 1;
	why("a", 1, 1, "waits: 1 of 1 runs at once");
	config->budget_runs = 0;
	struct forge_share t = taken("more", 1, 2);
	why("a", 1, 1, "waits for 1 CPU: 4 of 4 in use");
	forge_admit_release(&t);
	forge_admit_release(&s);
	struct child c = start_holder();
	why("a", 1, 1, "waits for its turn, with 1 others");
	why("first", 1, 1, "waits for its turn, with 0 others"); /* its own is none */
	child_kill(&c);
	/* A dead run waits no more, and asking removes nothing. */
	why("a", 1, 1, "waits for its turn, with 0 others");
	assert_true(has_file("w-"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_share_is_taken_and_released),
		TEST(shares_stay_within_the_memory),
		TEST(shares_stay_within_the_cpus),
		TEST(shares_stay_within_the_runs),
		TEST(unlimited_is_the_whole_budget),
		TEST(what_can_never_fit_is_refused),
		TEST(the_share_of_a_dead_run_is_free),
		TEST(tickets_are_served_by_priority_then_time),
		TEST(a_big_run_is_not_overtaken),
		TEST(the_ticket_of_a_dead_run_is_removed),
		TEST(a_run_behind_a_dead_one_goes_on),
		TEST(two_runs_prepare_and_the_third_waits),
		TEST(the_first_in_line_takes_its_share),
		TEST(a_signal_cancels),
		TEST(the_wait_has_a_bound),
		TEST(the_reason_is_a_sentence),
	};

	return cmocka_run_group_tests_name("admit", tests, NULL, NULL);
}
