/* SPDX-License-Identifier: Apache-2.0 */
/* Time: monotonic microseconds for deadlines, wall-clock text for records. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t forge_now_usec(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

#define FORGE_TIME_MAX 32
/* "2026-11-15T03:20:50.123Z" of now. Returns buf. */
const char *forge_format_now(char buf[FORGE_TIME_MAX]);
/* A sortable unique id: 48 bits of milliseconds, 80 of chance, 26 lower-case letters. */
#define FORGE_RUN_ID_MAX 27
/* How ids of that millisecond begin: ten letters. Returns buf. */
const char *forge_run_id_at(char buf[FORGE_RUN_ID_MAX], uint64_t msec);
int forge_make_run_id(char buf[FORGE_RUN_ID_MAX]);
/* Whether text can be one, or the beginning of one: letters and digits only, so it is safe in a path. */
bool forge_run_id_is_valid(const char *text);
