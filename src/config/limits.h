/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budget of a run. One table row per limit drives the config keys, the command line
 * options, the record and the explanations, so that a limit cannot exist in one place only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/parse.h"

/* 0 means "not set here", FORGE_UNLIMITED "no limit". */
struct forge_limits {
	uint64_t memory_bytes;
	uint64_t cpus_milli;
	uint64_t pids;
	uint64_t wall_usec;
	uint64_t cpu_usec;
	uint64_t disk_bytes;
	uint64_t inodes;       /* files and directories in the workdir */
	uint64_t output_bytes; /* each of stdout and stderr */
	uint64_t open_files;
	uint64_t sockets; /* that no cgroup charges for: IP and netlink */
	uint64_t
		io_bytes_per_second; /* each of reads and writes, on the workdir's disk */
	uint64_t grace_usec;	     /* between SIGTERM and SIGKILL */
};

enum forge_limit_type {
	FORGE_LIMIT_SIZE,
	FORGE_LIMIT_DURATION,
	FORGE_LIMIT_COUNT,
	FORGE_LIMIT_CPUS,
};

struct forge_limit_row {
	const char *
		name; /* config key and long option: "memory", "cpu-time" (config: cpu_time) */
	const char *key;  /* config spelling, with underscores */
	const char *json; /* name in the record's limits{}, "memory_bytes" */
	enum forge_limit_type type;
	size_t offset;	     /* in struct forge_limits */
	const char *metavar; /* "SIZE", "TIME", "N" */
	const char *help;    /* one line, no full stop */
	const char *builtin; /* value in the built-in profile "default" */
};

#define FORGE_LIMIT_COUNT_ROWS 12
extern const struct forge_limit_row forge_limit_rows[FORGE_LIMIT_COUNT_ROWS];

static inline uint64_t *forge_limit_slot(struct forge_limits *l,
					 const struct forge_limit_row *row)
{
	return (uint64_t *)((char *)l + row->offset);
}

static inline uint64_t forge_limit_value(const struct forge_limits *l,
					 const struct forge_limit_row *row)
{
	return *(const uint64_t *)((const char *)l + row->offset);
}

/* Parses text by the row's type into l. */
FORGE_MUST_CHECK int forge_limit_set(struct forge_limits *l,
				     const struct forge_limit_row *row, const char *text,
				     struct forge_error *err);
/* Formats a value for users, by the row's type. Returns buf. */
const char *forge_limit_format(char buf[FORGE_FORMAT_MAX],
			       const struct forge_limit_row *row, uint64_t value);
/* Every field that is set in over replaces the one in base. */
void forge_limits_overlay(struct forge_limits *base, const struct forge_limits *over);
/*
 * Refuses values above the host's caps (0 in caps: no cap) and "unlimited" where it is
 * not allowed. The message names the limit, both values and the config key to change.
 */
FORGE_MUST_CHECK int forge_limits_check(const struct forge_limits *l,
					const struct forge_limits *caps,
					bool allow_unlimited, struct forge_error *err);
