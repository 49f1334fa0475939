/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test needs: cmocka, and the checks of a struct forge_error. */
#pragma once

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"

/* Success must not touch err: start from this, and compare after. */
#define UNIT_ERROR_UNTOUCHED                                                             \
	((struct forge_error){                                                           \
		.code = 77, .line = 7, .file = "untouched", .msg = "untouched"})

#define assert_untouched(err)                                                            \
	do {                                                                             \
		const struct forge_error want_ = UNIT_ERROR_UNTOUCHED;                   \
		assert_memory_equal(&(err), &want_, sizeof(want_));                      \
	} while (0)

#define assert_contains(text, part)                                                      \
	do {                                                                             \
		if (!strstr((text), (part)))                                             \
			fail_msg("'%s' does not contain '%s'", (text), (part));          \
	} while (0)
