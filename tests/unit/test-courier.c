/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The courier between a supervisor and an SQLite store. Where the order of two things matters, the courier is
 * stopped by SIGSTOP meanwhile. The test opens the store itself only while no courier is to be forked: a
 * connection does not survive a fork.
 */
#include "unit.h"

#include <jansson.h>
#include <sys/prctl.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "record/courier.h"
#include "scratch.h"
#include "store/store.h"

#define LONG_USEC ((uint64_t)SCRATCH_MSEC * 1000)

static char url[128];

static int make(void **state)
{
	(void)state;
	scratch_make();
	(void)snprintf(url, sizeof(url), "sqlite:%s", scratch("forge.db"));
	/* Couriers end up below us also when their supervisor is gone. */
	return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static int unmake(void **state)
{
	(void)state;
	/* Couriers whose batches were answered end on their own; until then they have files open. */
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	scratch_remove();
	return 0;
}

static struct forge_courier courier(void)
{
	struct forge_courier c = FORGE_COURIER_INIT;

	c.url = url;
	return c;
}

/* ---- batches */

static json_t *record_of(const char *id, const char *status)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "run_id", id,
			 "analysis_id", id, "status", status, "executor", "local", "host",
			 "here", "user", "me", "created_at", "2026-01-01T00:00:00.000Z");
}

static json_t *batch_of(json_t *record, int seq, const char *status)
{
	json_t *b = json_pack("{s:o, s:[{s:i, s:s, s:s, s:s, s:s}]}", "record", record,
			      "events", "seq", seq, "time", "2026-01-01T00:00:00.000Z",
			      "actor", "test", "event", "status", "status", status);

	assert_non_null(b);
	return b;
}

/* The record has this status, and so has the event. */
static void send_batch(struct forge_courier *c, const char *id, int seq,
		       const char *status, bool durable)
{
	json_t *b = batch_of(record_of(id, status), seq, status);

	forge_courier_send(c, b, durable, false, LONG_USEC);
	json_decref(b);
}

static void answered(struct forge_courier *c)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	if (forge_courier_wait(c, LONG_USEC, &err) < 0)
		fail_msg("%s", err.msg);
	assert_untouched(err);
	assert_int_equal(c->in_flight, 0);
}

/* The status of a run and the number of its events; "" when the store has no such run. */
static size_t look(const char *id, char status[16])
{
	forge_auto_store struct forge_store *st = NULL;
	json_t *record = NULL, *events = NULL;

	assert_int_equal(forge_store_open(url, &st, NULL), 0);
	int rc = forge_store_get(st, id, &record, NULL);
	assert_true(rc == 0 || rc == -ENOENT);
	(void)snprintf(status, 16, "%s",
		       rc == 0 ? forge_json_string(record, "status") : "");
	assert_int_equal(forge_store_events(st, id, &events, NULL), 0);
	size_t n = json_array_size(events);
	json_decref(record);
	json_decref(events);
	return n;
}

static void stored(const char *id, const char *status, size_t n_events)
{
	char have[16];

	assert_int_equal(look(id, have), n_events);
	assert_string_equal(have, status);
}

/* ---- processes */

/* Returns when it has stopped. */
static void stop_process(pid_t pid)
{
	int status = 0;

	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}

/* Returns when it is dead. It is not reaped: forge_courier_stop() does that. */
static void kill_process(pid_t pid)
{
	siginfo_t info = { .si_pid = 0 };

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static bool is_reaped(pid_t pid)
{
	return kill(pid, 0) < 0 && errno == ESRCH;
}

static void assert_none(const struct forge_courier *c)
{
	assert_int_equal(c->pid, 0);
	assert_int_equal(c->fd, -1);
	assert_int_equal(c->in_flight, 0);
}

/* ---- the tests */

static void a_batch_reaches_the_store(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	forge_courier_start(&c);
	pid_t pid = c.pid;
	assert_true(pid > 0);
	forge_courier_start(&c); /* there is one already */
	assert_int_equal(c.pid, pid);
	send_batch(&c, "a", 0, "preparing", true);
	assert_int_equal(c.in_flight, 1);
	answered(&c);
	send_batch(&c, "a", 1, "running", false);
	answered(&c);
	assert_int_equal(c.pid, pid);
	forge_courier_stop(&c);
	assert_none(&c);
	stored("a", "running", 2);
}

static void sending_starts_a_courier(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	send_batch(&c, "a", 0, "preparing", false);
	assert_true(c.pid > 0);
	answered(&c);
	forge_courier_stop(&c);
	stored("a", "preparing", 1);
}

static void nothing_sent_is_nothing_to_wait_for(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	answered(&c);
	forge_courier_stop(&c);
	assert_none(&c);
}

/* The second is illegal. One transaction has both, so the store has neither. */
static void held_batches_are_one_transaction(void **state)
{
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	forge_courier_start(&c);
	stop_process(c.pid);
	send_batch(&c, "a", 0, "queued", false);
	send_batch(&c, "a", 1, "collecting", false);
	assert_int_equal(c.in_flight, 2);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	assert_int_equal(forge_courier_wait(&c, LONG_USEC, &err), -EPROTO);
	stored("a", "", 0);
}

static void held_batches_are_applied_together(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	forge_courier_start(&c);
	stop_process(c.pid);
	send_batch(&c, "a", 0, "preparing", false);
	send_batch(&c, "a", 1, "running", false);
	send_batch(&c, "a", 2, "collecting", true);
	assert_int_equal(c.in_flight, 3);
	assert_int_equal(kill(c.pid, SIGCONT), 0);
	answered(&c);
	forge_courier_stop(&c);
	stored("a", "collecting", 3);
}

static void waiting_returns_the_error_of_the_store(void **state)
{
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	send_batch(&c, "a", 0, "queued", true);
	answered(&c);
	send_batch(&c, "a", 1, "collecting", true);
	pid_t pid = c.pid;
	assert_int_equal(forge_courier_wait(&c, LONG_USEC, &err), -EPROTO);
	assert_int_equal(err.code, EPROTO);
	assert_true(err.msg[0] != '\0');
	assert_none(&c);
	/* After a failure nothing more is sent, and the error stays. */
	send_batch(&c, "a", 1, "preparing", true);
	assert_none(&c);
	assert_int_equal(forge_courier_wait(&c, LONG_USEC, NULL), -EPROTO);
	(void)waitpid(pid, NULL, 0);
	stored("a", "queued", 1);
}

static void a_store_that_cannot_be_opened_is_an_error(void **state)
{
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	(void)snprintf(url, sizeof(url), "sqlite:%s", scratch("no/directory/forge.db"));
	forge_courier_start(&c);
	assert_true(c.pid > 0);
	send_batch(&c, "a", 0, "queued", true);
	int rc = forge_courier_wait(&c, LONG_USEC, &err);
	assert_true(rc < 0);
	assert_int_equal(err.code, -rc);
	assert_contains(err.msg, "no/directory/forge.db");
	assert_none(&c);
}

static void a_killed_courier_is_replaced(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	send_batch(&c, "a", 0, "preparing", true);
	answered(&c);
	pid_t first = c.pid;
	kill_process(first);
	send_batch(&c, "a", 1, "running", true);
	assert_true(c.pid > 0 && c.pid != first);
	assert_true(is_reaped(first));
	answered(&c);
	forge_courier_stop(&c);
	stored("a", "running", 2);
}

static void a_courier_killed_with_a_batch_is_an_error(void **state)
{
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	forge_courier_start(&c);
	pid_t pid = c.pid;
	stop_process(pid);
	send_batch(&c, "a", 0, "preparing", true);
	kill_process(pid);
	int rc = forge_courier_wait(&c, LONG_USEC, &err);
	/* Unread data in the socket of the dead: the kernel answers with a reset. */
	assert_true(rc == -EPIPE || rc == -ECONNRESET);
	assert_contains(err.msg, "the store's courier");
	assert_none(&c);
	assert_true(is_reaped(pid));
	stored("a", "", 0);
}

/* The same, noticed by the next batch. */
static void a_batch_after_a_lost_one_is_not_sent(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	forge_courier_start(&c);
	stop_process(c.pid);
	send_batch(&c, "a", 0, "preparing", false);
	kill_process(c.pid);
	send_batch(&c, "a", 1, "running", true);
	assert_none(&c);
	assert_contains(c.error.msg, "the store's courier");
	stored("a", "", 0);
}

static void a_courier_goes_home_after_the_last_batch(void **state)
{
	struct forge_courier c = courier();
	json_t *b = batch_of(record_of("a", "preparing"), 0, "preparing");
	siginfo_t info = { .si_pid = 0 };

	(void)state;
	forge_courier_send(&c, b, true, true, LONG_USEC);
	json_decref(b);
	answered(&c);
	pid_t first = c.pid;
	assert_int_equal(waitid(P_PID, (id_t)first, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(info.si_code, CLD_EXITED);
	assert_int_equal(info.si_status, 0);
	send_batch(&c, "a", 1, "running", true);
	assert_int_not_equal(c.pid, first);
	answered(&c);
	forge_courier_stop(&c);
	stored("a", "running", 2);
}

static json_t *with_key(const char *id, const char *key, const char *request)
{
	json_t *r = record_of(id, "queued");

	assert_int_equal(json_object_set_new(r, "idempotency_key", json_string(key)), 0);
	assert_int_equal(json_object_set_new(r, "request", json_string(request)), 0);
	return r;
}

static void the_key_belongs_to(const char *id, const char *request, bool is_same)
{
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *b = batch_of(with_key(id, "key", request), 0, "queued");

	forge_courier_send(&c, b, true, false, LONG_USEC);
	json_decref(b);
	pid_t pid = c.pid;
	assert_int_equal(forge_courier_wait(&c, LONG_USEC, &err), -EEXIST);
	assert_string_equal(c.other_run, "a");
	assert_int_equal(c.is_same, is_same);
	(void)waitpid(pid, NULL, 0);
	stored(id, "", 0);
}

static void the_key_of_another_run_names_that_run(void **state)
{
	struct forge_courier c = courier();
	json_t *b = batch_of(with_key("a", "key", "digest"), 0, "queued");

	(void)state;
	forge_courier_send(&c, b, true, true, LONG_USEC);
	json_decref(b);
	answered(&c);
	assert_string_equal(c.other_run, "");
	forge_courier_stop(&c);
	the_key_belongs_to("b", "digest", true);
	the_key_belongs_to("c", "another", false);
}

static void stopping_ends_what_is_in_flight(void **state)
{
	struct forge_courier c = courier();

	(void)state;
	forge_courier_start(&c);
	pid_t pid = c.pid;
	stop_process(pid);
	send_batch(&c, "a", 0, "preparing", true);
	forge_courier_stop(&c);
	assert_none(&c);
	assert_true(is_reaped(pid));
	assert_int_equal(c.error.code, 0);
	stored("a", "", 0);
}

static void a_courier_that_does_not_answer_is_not_waited_for(void **state)
{
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	forge_courier_start(&c);
	pid_t pid = c.pid;
	stop_process(pid);
	send_batch(&c, "a", 0, "preparing", true);
	assert_int_equal(forge_courier_wait(&c, 1000, &err), -ETIMEDOUT);
	assert_contains(err.msg, "the store does not answer");
	assert_none(&c);
	assert_true(is_reaped(pid));
}

/* The socket holds some hundred KiB; the courier does not read. */
static void a_batch_that_is_not_taken_times_out(void **state)
{
	enum { HUGE_TEXT = 16 << 20 };
	struct forge_courier c = courier();
	struct forge_error err = FORGE_ERROR_INIT;
	char *text = malloc(HUGE_TEXT + 1);

	(void)state;
	memset(text, 'x', HUGE_TEXT);
	text[HUGE_TEXT] = '\0';
	json_t *record = record_of("a", "preparing");
	assert_int_equal(json_object_set_new(record, "notes", json_string(text)), 0);
	json_t *b = batch_of(record, 0, "preparing");
	forge_courier_start(&c);
	pid_t pid = c.pid;
	stop_process(pid);
	forge_courier_send(&c, b, true, false, 20000);
	assert_none(&c);
	assert_true(is_reaped(pid));
	assert_int_equal(forge_courier_wait(&c, LONG_USEC, &err), -ETIMEDOUT);
	assert_contains(err.msg, "report to the store");
	stored("a", "", 0);
	/* A courier that reads takes it. */
	c = courier();
	forge_courier_send(&c, b, true, false, LONG_USEC);
	answered(&c);
	forge_courier_stop(&c);
	stored("a", "preparing", 1);
	json_decref(b);
	free(text);
}

/* Sends, and ends without waiting for the answer. */
static void send_and_die(const struct child *ch, void *arg)
{
	struct forge_courier c = courier();

	(void)arg;
	forge_courier_start(&c);
	if (c.pid <= 0 || kill(c.pid, SIGSTOP) < 0)
		_exit(7);
	send_batch(&c, "a", 0, "preparing", false);
	if (write(ch->to, &c.pid, sizeof(c.pid)) != sizeof(c.pid))
		_exit(9);
}

static void a_courier_finishes_for_a_dead_supervisor(void **state)
{
	struct child c = child_start(send_and_die, NULL);
	pid_t pid = 0;
	int status = 0;

	(void)state;
	assert_int_equal(read(c.from, &pid, sizeof(pid)), sizeof(pid));
	assert_int_equal(child_end(&c), 0);
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	stored("a", "preparing", 1);
}

/* ---- a courier for many runs ---- */

static struct forge_courier connected(struct forge_shared_courier *s)
{
	struct forge_courier c = courier();

	c.fd = forge_courier_connect(s);
	assert_true(c.fd >= 0);
	return c;
}

static void ended(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void runs_share_a_courier(void **state)
{
	struct forge_shared_courier s = FORGE_SHARED_COURIER_INIT;

	(void)state;
	assert_int_equal(forge_courier_connect(&s), -ENOTCONN);
	assert_int_equal(forge_courier_share(url, &s), 0);
	pid_t pid = s.pid;
	struct forge_courier a = connected(&s), b = connected(&s);
	send_batch(&a, "a", 0, "preparing", false);
	send_batch(&b, "b", 0, "preparing", true);
	answered(&a);
	answered(&b);
	/* The launcher is gone, and one of the runs. */
	forge_courier_unshare(&s);
	forge_courier_stop(&a);
	assert_none(&a);
	send_batch(&b, "b", 1, "running", true);
	answered(&b);
	assert_int_equal(b.pid, 0);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	forge_courier_stop(&b);
	ended(pid);
	stored("a", "preparing", 1);
	stored("b", "running", 2);
}

/* What arrives together is one transaction; a batch that is refused takes no other one with it. */
static void a_refused_batch_does_not_hurt_another_run(void **state)
{
	struct forge_shared_courier s = FORGE_SHARED_COURIER_INIT;

	(void)state;
	assert_int_equal(forge_courier_share(url, &s), 0);
	pid_t pid = s.pid;
	struct forge_courier a = connected(&s), b = connected(&s), c = connected(&s);
	send_batch(&b, "b", 0, "queued", true);
	answered(&b);
	stop_process(pid);
	send_batch(&a, "a", 0, "preparing", true);
	send_batch(&b, "b", 1, "collecting", true); /* illegal */
	send_batch(&c, "c", 0, "preparing", true);
	assert_int_equal(kill(pid, SIGCONT), 0);
	answered(&a);
	assert_int_equal(forge_courier_wait(&b, LONG_USEC, NULL), -EPROTO);
	answered(&c);
	forge_courier_stop(&a);
	forge_courier_stop(&c);
	forge_courier_unshare(&s);
	ended(pid);
	stored("a", "preparing", 1);
	stored("b", "queued", 1);
	stored("c", "preparing", 1);
}

static void a_run_without_its_shared_courier_has_its_own(void **state)
{
	struct forge_shared_courier s = FORGE_SHARED_COURIER_INIT;

	(void)state;
	assert_int_equal(forge_courier_share(url, &s), 0);
	struct forge_courier a = connected(&s);
	send_batch(&a, "a", 0, "preparing", true);
	answered(&a);
	kill_process(s.pid);
	send_batch(&a, "a", 1, "running", true);
	assert_true(a.pid > 0);
	answered(&a);
	forge_courier_stop(&a);
	assert_true(forge_courier_connect(&s) < 0);
	forge_courier_unshare(&s);
	stored("a", "running", 2);
}

/* Half a batch of a supervisor that does not go on, and a whole one of a supervisor that is gone. */
static void a_shared_courier_waits_for_no_supervisor(void **state)
{
	struct forge_shared_courier s = FORGE_SHARED_COURIER_INIT;
	const uint32_t half[2] = { 1000, 0 };

	(void)state;
	assert_int_equal(forge_courier_share(url, &s), 0);
	pid_t pid = s.pid;
	struct forge_courier stuck = connected(&s), dead = connected(&s),
			     a = connected(&s);
	assert_int_equal(write(stuck.fd, half, sizeof(half)), sizeof(half));
	assert_int_equal(write(stuck.fd, "{", 1), 1);
	stop_process(pid);
	send_batch(&dead, "dead", 0, "preparing", false);
	close(dead.fd);
	assert_int_equal(kill(pid, SIGCONT), 0);
	send_batch(&a, "a", 0, "preparing", true);
	answered(&a);
	forge_courier_stop(&a);
	forge_courier_stop(&stuck);
	forge_courier_unshare(&s);
	ended(pid);
	stored("a", "preparing", 1);
	stored("dead", "preparing", 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_batch_reaches_the_store),
		TEST(sending_starts_a_courier),
		TEST(nothing_sent_is_nothing_to_wait_for),
		TEST(held_batches_are_one_transaction),
		TEST(held_batches_are_applied_together),
		TEST(waiting_returns_the_error_of_the_store),
		TEST(a_store_that_cannot_be_opened_is_an_error),
		TEST(a_killed_courier_is_replaced),
		TEST(a_courier_killed_with_a_batch_is_an_error),
		TEST(a_batch_after_a_lost_one_is_not_sent),
		TEST(a_courier_goes_home_after_the_last_batch),
		TEST(the_key_of_another_run_names_that_run),
		TEST(stopping_ends_what_is_in_flight),
		TEST(a_courier_that_does_not_answer_is_not_waited_for),
		TEST(a_batch_that_is_not_taken_times_out),
		TEST(a_courier_finishes_for_a_dead_supervisor),
		TEST(runs_share_a_courier),
		TEST(a_refused_batch_does_not_hurt_another_run),
		TEST(a_run_without_its_shared_courier_has_its_own),
		TEST(a_shared_courier_waits_for_no_supervisor),
	};

	return cmocka_run_group_tests_name("courier", tests, NULL, NULL);
}
