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
/* Formats the present time as "2026-11-15T03:20:50.123Z". Returns buf. */
const char *forge_format_now(char buf[FORGE_TIME_MAX]);
/* The same for a time in seconds of the epoch. */
const char *forge_format_time(char buf[FORGE_TIME_MAX], time_t seconds);
/* A sortable unique id: 48 bits of milliseconds and 80 random bits, as 26 lower-case letters. */
#define FORGE_RUN_ID_MAX 27
/* The ten letters with which ids of this millisecond begin. Returns buf. */
const char *forge_run_id_at(char buf[FORGE_RUN_ID_MAX], uint64_t msec);
/* When an id was made, in milliseconds of the epoch. 0: it is no whole one. */
uint64_t forge_run_id_msec(const char *run_id);
int forge_make_run_id(char buf[FORGE_RUN_ID_MAX]);
/*
 * Can text be an id or the beginning of one? It then has only letters and digits, so it is safe
 * in a path.
 */
bool forge_run_id_is_valid(const char *text);
