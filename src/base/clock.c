/* SPDX-License-Identifier: Apache-2.0 */
/* Wall-clock text and run ids. */
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char *format_time(char buf[FORGE_TIME_MAX], struct timespec ts)
{
	struct tm tm;

	gmtime_r(&ts.tv_sec, &tm);
	(void)snprintf(buf, FORGE_TIME_MAX, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ",
		       (tm.tm_year + 1900) % 10000, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
		       tm.tm_min, tm.tm_sec, ts.tv_nsec / 1000000);
	return buf;
}

const char *forge_format_now(char buf[FORGE_TIME_MAX])
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return format_time(buf, ts);
}

const char *forge_format_time(char buf[FORGE_TIME_MAX], time_t seconds)
{
	return format_time(buf, (struct timespec){ .tv_sec = seconds });
}

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz"; /* no i l o u */

const char *forge_run_id_at(char buf[FORGE_RUN_ID_MAX], uint64_t msec)
{
	for (int i = 9; i >= 0; i--, msec >>= 5)
		buf[i] = digits[msec & 31];
	buf[10] = '\0';
	return buf;
}

uint64_t forge_run_id_msec(const char *run_id)
{
	uint64_t msec = 0;

	if (strlen(run_id) != FORGE_RUN_ID_MAX - 1)
		return 0;
	for (int i = 0; i < 10; i++) {
		const char *digit = strchr(digits, run_id[i]);
		if (!digit)
			return 0;
		msec = msec << 5 | (uint64_t)(digit - digits);
	}
	return msec;
}

int forge_make_run_id(char buf[FORGE_RUN_ID_MAX])
{
	struct timespec ts;
	unsigned char chance[16];

	clock_gettime(CLOCK_REALTIME, &ts);
	uint64_t ms = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	if (getrandom(chance, sizeof(chance), 0) != (ssize_t)sizeof(chance))
		return -EIO;
	(void)forge_run_id_at(buf, ms);
	for (int i = 0; i < 16; i++)
		buf[10 + i] = digits[chance[i] & 31];
	buf[26] = '\0';
	return 0;
}

bool forge_run_id_is_valid(const char *text)
{
	size_t len = text ? strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz") : 0;

	return len > 0 && len < FORGE_RUN_ID_MAX && !text[len];
}
