/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors: a negative errno as return value, and one struct that says in words what happened and
 * where. The struct owns no memory, so it works after fork and without free memory.
 */
#pragma once

#include <stdbool.h>

/*
 * Every fallible function returns 0 (or a count) on success and a negative errno on
 * failure, and takes a struct forge_error * as its LAST argument. The pointer may be NULL
 * when the caller only needs the code. Success never touches it. It is never freed.
 */
struct forge_error {
	int code;      /* positive errno, 0 when unset */
	unsigned line; /* 1-based position in file, 0 when not a parse error */
	unsigned column;
	char file[128]; /* config file, "" when not a parse error */
	char msg[512];	/* outermost context first: "open store: sqlite: ..." */
	char hint[512]; /* what the user can do about it, "" when nothing is known */
};

#define FORGE_ERROR_INIT ((struct forge_error){ .code = 0 })

#define FORGE_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define FORGE_MUST_CHECK   __attribute__((warn_unused_result))

/* Sets *err (when not NULL) and returns -code. */
int forge_fail(struct forge_error *err, int code, const char *fmt, ...)
	FORGE_PRINTF(3, 4);
/* The same, and appends ": <strerror(code)>". */
int forge_fail_errno(struct forge_error *err, int code, const char *fmt, ...)
	FORGE_PRINTF(3, 4);
/* The same with a place in a file; the code is EINVAL. */
int forge_fail_at(struct forge_error *err, const char *file, unsigned line,
		  unsigned column, const char *fmt, ...) FORGE_PRINTF(5, 6);
/* Prepends "<context>: " to the message and returns rc unchanged. */
int forge_wrap(struct forge_error *err, int rc, const char *fmt, ...) FORGE_PRINTF(3, 4);
/* Sets the hint (a sentence) and returns rc unchanged. One that is too long ends in "...". */
int forge_hint(struct forge_error *err, int rc, const char *fmt, ...) FORGE_PRINTF(3, 4);
