/* SPDX-License-Identifier: Apache-2.0 */
/* The one door: what it leaves of the caller's signals, and errors of a dry run. Link with -Wl,--wrap=realpath. */
#include "unit.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "run/run.h"
#include "run/signals.h"

char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
static int realpath_error;

char *__wrap_realpath(const char *path, char *resolved)
{
	if (!realpath_error)
		return __real_realpath(path, resolved);
	errno = realpath_error;
	return NULL;
}

static char *argv[] = { (char *)"true", NULL };
static struct forge_config *config;

static int make(void **state)
{
	(void)state;
	/* Nothing is made there: every request below is refused before. */
	assert_int_equal(setenv("FORGE_HOME", "/nonexistent/forge", 1), 0);
	return forge_config_parse("", 0, "test", "/", &config, NULL);
}

static int unmake(void **state)
{
	(void)state;
	realpath_error = 0;
	forge_config_free(config);
	return 0;
}

static void nothing(int sig)
{
	(void)sig;
}

static const int signals[] = { SIGINT,	SIGTERM, SIGHUP,  SIGPIPE,
			       SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU };

static void each_has(void (*handler)(int))
{
	struct sigaction now;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(signals); i++) {
		assert_int_equal(sigaction(signals[i], NULL, &now), 0);
		assert_ptr_equal(now.sa_handler, handler);
	}
}

static bool is_blocked(int sig)
{
	sigset_t set;

	assert_int_equal(sigprocmask(SIG_BLOCK, NULL, &set), 0);
	return sigismember(&set, sig);
}

/* One that is pending was answered by the verdict; it must not arrive afterwards. */
static void signals_are_restored(void **state)
{
	struct forge_signals before;

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(signals); i++)
		assert_true(signal(signals[i], nothing) != SIG_ERR);
	forge_signals_catch(&before);
	assert_true(is_blocked(SIGTERM));
	assert_int_equal(raise(SIGTERM), 0);
	forge_signals_release(&before);
	each_has(nothing);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(signals); i++)
		assert_false(is_blocked(signals[i]));
}

static void a_run_restores_signals(void **state)
{
	struct forge_run_request req = { .argv = argv, .profile = "nope", .stdout_fd = -1, .stderr_fd = -1 };
	struct forge_run_result result = { 0 };
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(signals); i++)
		assert_true(signal(signals[i], nothing) != SIG_ERR);
	assert_true(forge_run(config, &req, &result, &err) < 0);
	assert_contains(err.msg, "nope");
	each_has(nothing);
	assert_false(is_blocked(SIGTERM));
}

/* That user ids are in use is -EAGAIN too, and no error of a dry run. */
static void a_dry_run_reports_what_cannot_be_looked_at(void **state)
{
	char *input = (char *)"/etc/passwd";
	struct forge_run_request req = { .argv = argv,
					 .inputs = { .v = &input, .n = 1 },
					 .stdout_fd = -1,
					 .stderr_fd = -1 };
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *plan = NULL;

	(void)state;
	realpath_error = EAGAIN;
	assert_int_equal(forge_run_explain(config, &req, &plan, &err), -EAGAIN);
	assert_int_equal(err.code, EAGAIN);
	assert_contains(err.msg, "/etc/passwd");
	assert_null(plan);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(signals_are_restored, make, unmake),
		cmocka_unit_test_setup_teardown(a_run_restores_signals, make, unmake),
		cmocka_unit_test_setup_teardown(a_dry_run_reports_what_cannot_be_looked_at, make, unmake),
	};

	return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
