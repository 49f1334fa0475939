/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks and restores the signals of a supervisor. */
#include "run/signals.h"

#include <sys/signalfd.h>
#include <time.h>

#include "base/cleanup.h"

static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
static const int ignored[] = { SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU };
_Static_assert(FORGE_ARRAY_SIZE(ignored) ==
		       FORGE_ARRAY_SIZE(((struct forge_signals *)0)->ignored),
	       "one to restore for each that is ignored");

/*
 * Signals are read from a descriptor; a broken pipe, or a log at the caller's file size
 * limit, is an error code. The supervisor must not be stopped by the terminal, because it
 * enforces the limits. Signals that the caller ignores (nohup) stay ignored.
 */
void forge_signals_catch(struct forge_signals *ret_before)
{
	struct sigaction ign = { .sa_handler = SIG_IGN }, now;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ends); i++)
		if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
			sigaddset(&set, ends[i]);
	(void)sigprocmask(SIG_BLOCK, &set, &ret_before->mask);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ignored); i++)
		(void)sigaction(ignored[i], &ign, &ret_before->ignored[i]);
}

/*
 * A signal that was only polled (in the queue, while hashing) or that came too late is
 * answered by the verdict. If it stayed pending it would kill this process before the
 * verdict is reported.
 */
void forge_signals_release(const struct forge_signals *before)
{
	const struct timespec at_once = { 0 };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ends); i++)
		if (!sigismember(&before->mask, ends[i]))
			sigaddset(&set, ends[i]);
	while (sigtimedwait(&set, NULL, &at_once) > 0)
		;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ignored); i++)
		(void)sigaction(ignored[i], &before->ignored[i], NULL);
	(void)sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

int forge_signals_fd(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(ends); i++)
		sigaddset(&set, ends[i]);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
