/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step-clock.so, to be preloaded: the time of day that a program reads jumps an hour forward
 * and two back, at every look. The monotonic clock is the kernel's.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *ts);

static time_t step(void)
{
	static unsigned looks;

	return ++looks % 2 ? 3600 : -7200;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	static int (*real)(clockid_t, struct timespec *);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(clock, ts);
	if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		ts->tv_sec += step();
	return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec ts;
	int rc = clock_gettime(CLOCK_REALTIME, &ts);

	(void)zone;
	*tv = (struct timeval){ ts.tv_sec, ts.tv_nsec / 1000 };
	return rc;
}

time_t time(time_t *ret)
{
	struct timespec ts = { 0 };

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}
