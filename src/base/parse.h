/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to numbers and back: sizes, durations, counts, CPU shares, ids. Every parser consumes
 * the whole string or fails; "0", signs, blanks, garbage and overflow are errors.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* "no limit"; parsers return it for the word "unlimited". */
#define FORGE_UNLIMITED UINT64_MAX

/* "512M", "2G", "2GiB", "1.5G", "1048576" -> bytes. K M G T P are powers of 1024. */
FORGE_MUST_CHECK int forge_parse_size(const char *s, uint64_t *ret_bytes,
				      struct forge_error *err);
/* "90s", "30m", "2h", "1d", "1.5h", "250ms", "90" (seconds) -> microseconds. */
FORGE_MUST_CHECK int forge_parse_duration(const char *s, uint64_t *ret_usec,
					  struct forge_error *err);
/* "1", "1024" -> itself. */
FORGE_MUST_CHECK int forge_parse_count(const char *s, uint64_t *ret_n,
				       struct forge_error *err);
/* "1", "0.5", "2.25" -> thousandths of a CPU; at most 3 decimals, at least 0.01. */
FORGE_MUST_CHECK int forge_parse_cpus(const char *s, uint64_t *ret_milli,
				      struct forge_error *err);
/* An analysis id: [A-Za-z0-9][A-Za-z0-9._-]{0,63}, without "..". */
FORGE_MUST_CHECK int forge_parse_id(const char *s, struct forge_error *err);
/* An environment variable's name: [A-Za-z_][A-Za-z0-9_]*. */
FORGE_MUST_CHECK int forge_parse_env_name(const char *name, size_t len,
					  struct forge_error *err);

/* Longest name of a host, and longest port, with their NUL. */
#define FORGE_HOST_MAX 256
#define FORGE_PORT_MAX 6
/* "host:80", "127.0.0.1:80", "[::1]:80" -> the host without brackets, and the port, 1 to 65535. */
FORGE_MUST_CHECK int forge_parse_address(const char *s, char ret_host[FORGE_HOST_MAX],
					 char ret_port[FORGE_PORT_MAX],
					 struct forge_error *err);

/* Longest result of the formatters below, with its NUL. */
#define FORGE_FORMAT_MAX 32
/* "2.00 GiB", "512 B", "unlimited"; for people. Returns buf. */
const char *forge_format_size(char buf[FORGE_FORMAT_MAX], uint64_t bytes);
/* "41 s", "1.25 s", "2 h 5 min", "30 min", "250 ms", "unlimited"; for people. Returns buf. */
const char *forge_format_duration(char buf[FORGE_FORMAT_MAX], uint64_t usec);
/* "1", "0.5"; for people. Returns buf. */
const char *forge_format_cpus(char buf[FORGE_FORMAT_MAX], uint64_t milli);
/*
 * The shortest text that the parser reads back as at least this value, for advice like
 * "retry with --memory 4G". Returns buf.
 */
const char *forge_format_size_arg(char buf[FORGE_FORMAT_MAX], uint64_t bytes);
const char *forge_format_duration_arg(char buf[FORGE_FORMAT_MAX], uint64_t usec);
