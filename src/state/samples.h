/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run used over time: points that its supervisor takes of the run's cgroup, in runs/<run_id>/samples. The
 * file has one JSON array a line, [seconds, memory_bytes, cpu_seconds, pids, disk_bytes], null where a value is not
 * known. A line without its newline is not complete yet and is ignored. The number of points is bounded: when there
 * are FORGE_SAMPLES_MAX, every second one is dropped and the interval doubles.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "state/home.h"

#define FORGE_SAMPLES_MAX  512
#define FORGE_SAMPLES_FILE "samples"
/* The shortest interval that can be configured. */
#define FORGE_SAMPLES_MIN_USEC 100000
/* From the start of the command to the first point: a run that is shorter leaves no file. */
#define FORGE_SAMPLES_FIRST_USEC 100000

/* One point. UINT64_MAX: not known. */
struct forge_sample {
	uint64_t usec; /* since the start of the run */
	uint64_t memory_bytes, cpu_usec, pids, disk_bytes;
};

/* The points of a run that is supervised. The file is made with the first point. */
struct forge_samples {
	const struct forge_home *home; /* borrowed; NULL: the points are in memory only */
	const char *run_id;	       /* borrowed */
	uint64_t interval_usec;	       /* 0: no points are taken */
	struct forge_sample *points; /* FORGE_SAMPLES_MAX, allocated with the first one */
	size_t n;
	int fd;
};

#define FORGE_SAMPLES_INIT ((struct forge_samples){ .fd = -1 })
void forge_samples_init(struct forge_samples *s, const struct forge_home *home,
			const char *run_id, uint64_t interval_usec);
/* Frees the memory; the file stays. Accepts FORGE_SAMPLES_INIT. */
void forge_samples_done(struct forge_samples *s);
/*
 * Adds a point and appends it to the file. What a supervisor before this one left in the file is kept. After an
 * error nothing more is to be added; the points in the file stay.
 */
FORGE_MUST_CHECK int forge_samples_add(struct forge_samples *s,
				       const struct forge_sample *point);
/* From a point of this age of the run to the next one: shorter at the beginning of a run. */
uint64_t forge_samples_pause_usec(const struct forge_samples *s, uint64_t age_usec);

/* The points in memory as an array of arrays. NULL: out of memory. */
json_t *forge_samples_json(const struct forge_samples *s);
/* Makes the file of a run that another machine took points of; rows that are no points are left out. */
FORGE_MUST_CHECK int forge_samples_store(const struct forge_home *home,
					 const char *run_id, const json_t *rows,
					 struct forge_error *err);

/*
 * {"columns": ["seconds", "memory_bytes", "cpu_seconds", "pids", "disk_bytes"], "samples": [[...], ...]}, the
 * oldest first; "samples" is empty when the run has none. The run may be running.
 */
FORGE_MUST_CHECK int forge_samples_read(const struct forge_home *home, const char *run_id,
					json_t **ret, struct forge_error *err);
/* The same from an open file, whose content may come from anybody. */
FORGE_MUST_CHECK int forge_samples_read_fd(int fd, json_t **ret, struct forge_error *err);
