/* SPDX-License-Identifier: Apache-2.0 */
/* The table of limits and the few operations on a set of them. */
#include "config/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

#define ROW(field) offsetof(struct forge_limits, field)

const struct forge_limit_row forge_limit_rows[FORGE_LIMIT_COUNT_ROWS] = {
	{ "memory", "memory", "memory_bytes", FORGE_LIMIT_SIZE, ROW(memory_bytes), "SIZE",
	  "Memory of all its processes together, swap included", "2G" },
	{ "cpus", "cpus", "cpus", FORGE_LIMIT_CPUS, ROW(cpus_milli), "N",
	  "CPUs it may keep busy, in fractions if need be", "1" },
	{ "pids", "pids", "pids", FORGE_LIMIT_COUNT, ROW(pids), "N",
	  "Processes and threads at the same time", "100" },
	{ "timeout", "timeout", "wall_seconds", FORGE_LIMIT_DURATION, ROW(wall_usec),
	  "TIME", "Time from start to end", "30m" },
	{ "cpu-time", "cpu_time", "cpu_seconds", FORGE_LIMIT_DURATION, ROW(cpu_usec),
	  "TIME", "CPU time of all its processes together", "unlimited" },
	{ "disk", "disk", "disk_bytes", FORGE_LIMIT_SIZE, ROW(disk_bytes), "SIZE",
	  "Bytes in its working directory", "10G" },
	{ "inodes", "inodes", "inodes", FORGE_LIMIT_COUNT, ROW(inodes), "N",
	  "Files and directories in its working directory", "1000000" },
	{ "output-limit", "output_limit", "output_bytes", FORGE_LIMIT_SIZE,
	  ROW(output_bytes), "SIZE", "Bytes written to each of standard output and error",
	  "64M" },
	{ "open-files", "open_files", "open_files", FORGE_LIMIT_COUNT, ROW(open_files),
	  "N", "Open files of each process", "1024" },
	{ "sockets", "sockets", "sockets", FORGE_LIMIT_COUNT, ROW(sockets), "N",
	  "Sockets of its own network at the same time, a quarter of them for datagrams",
	  "512" },
	{ "io-rate", "io_rate", "io_bytes_per_second", FORGE_LIMIT_SIZE,
	  ROW(io_bytes_per_second), "SIZE",
	  "Bytes a second it may read, and write, on the disk of its working directory",
	  "unlimited" },
	{ "grace", "grace", "grace_seconds", FORGE_LIMIT_DURATION, ROW(grace_usec),
	  "TIME", "Time to end by itself between SIGTERM and SIGKILL", "5s" },
};

/*
 * These may be unlimited without host.allow_unlimited, and are by default: wall time
 * times CPUs bounds the CPU time already, and not every disk supports a limit.
 */
static bool is_optional(const struct forge_limit_row *row)
{
	return row->offset == ROW(cpu_usec) || row->offset == ROW(io_bytes_per_second);
}

static int parse(const struct forge_limit_row *row, const char *text, uint64_t *ret,
		 struct forge_error *err)
{
	switch (row->type) {
	case FORGE_LIMIT_SIZE:
		return forge_parse_size(text, ret, err);
	case FORGE_LIMIT_DURATION:
		return forge_parse_duration(text, ret, err);
	case FORGE_LIMIT_COUNT:
		return forge_parse_count(text, ret, err);
	case FORGE_LIMIT_CPUS:
		return forge_parse_cpus(text, ret, err);
	}
	return forge_fail(err, EINVAL, "limit %s has no type", row->name);
}

int forge_limit_set(struct forge_limits *l, const struct forge_limit_row *row,
		    const char *text, struct forge_error *err)
{
	uint64_t value;

	int rc = parse(row, text, &value, err);
	if (rc < 0)
		return rc;
	/* A run that ignores SIGTERM would otherwise never end. */
	if (value == FORGE_UNLIMITED && row->offset == ROW(grace_usec))
		return forge_fail(err, EINVAL,
				  "'unlimited' is never allowed for %s (write 5s or 1m)",
				  row->name);
	*forge_limit_slot(l, row) = value;
	return 0;
}

const char *forge_limit_format(char buf[FORGE_FORMAT_MAX],
			       const struct forge_limit_row *row, uint64_t value)
{
	switch (row->type) {
	case FORGE_LIMIT_SIZE:
		return forge_format_size(buf, value);
	case FORGE_LIMIT_DURATION:
		return forge_format_duration(buf, value);
	case FORGE_LIMIT_CPUS:
		return forge_format_cpus(buf, value);
	case FORGE_LIMIT_COUNT:
		break;
	}
	if (value == FORGE_UNLIMITED)
		(void)snprintf(buf, FORGE_FORMAT_MAX, "unlimited");
	else
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%" PRIu64, value);
	return buf;
}

void forge_limits_overlay(struct forge_limits *base, const struct forge_limits *over)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		uint64_t value = forge_limit_value(over, &forge_limit_rows[i]);
		if (value != 0)
			*forge_limit_slot(base, &forge_limit_rows[i]) = value;
	}
}

static int check_row(const struct forge_limit_row *row, uint64_t value, uint64_t cap,
		     bool allow_unlimited, struct forge_error *err)
{
	char asked[FORGE_FORMAT_MAX], most[FORGE_FORMAT_MAX];

	if (cap != 0 && value > cap) {
		int rc = forge_fail(err, ERANGE,
				    "%s: %s is more than this host allows: %s "
				    "(host.max.%s)",
				    row->name, forge_limit_format(asked, row, value),
				    forge_limit_format(most, row, cap), row->key);
		return forge_hint(err, rc,
				  "Ask for at most %s, or raise host.max.%s in the "
				  "configuration.",
				  most, row->key);
	}
	if (value == FORGE_UNLIMITED && !allow_unlimited && !is_optional(row)) {
		int rc = forge_fail(err, EPERM,
				    "%s: unlimited is not allowed on this host "
				    "(host.allow_unlimited is false)",
				    row->name);
		return forge_hint(err, rc,
				  "Ask for a number, or set host.allow_unlimited: true "
				  "in the configuration.");
	}
	return 0;
}

int forge_limits_check(const struct forge_limits *l, const struct forge_limits *caps,
		       bool allow_unlimited, struct forge_error *err)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];
		int rc = check_row(row, forge_limit_value(l, row),
				   forge_limit_value(caps, row), allow_unlimited, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}
