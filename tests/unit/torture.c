/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the allocator's front by one that fails once, at a chosen call. */
#include "torture.h"

#include <stdbool.h>
#include <stdlib.h>

#include "unit.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
char *__wrap_strdup(const char *s);

static bool is_armed;
static unsigned before_failure;

static bool fails_now(void)
{
	if (!is_armed)
		return false;
	if (before_failure-- > 0)
		return false;
	is_armed = false;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails_now() ? NULL : __real_realloc(p, size);
}

char *__wrap_strdup(const char *s)
{
	return fails_now() ? NULL : __real_strdup(s);
}

unsigned torture(int (*attempt)(void *arg), void *arg)
{
	for (unsigned n = 0; n < 100000; n++) {
		is_armed = true;
		before_failure = n;
		int rc = attempt(arg);
		bool has_failed = !is_armed;

		is_armed = false;
		if (!has_failed) {
			assert_int_equal(rc, 0);
			return n;
		}
		if (rc != -ENOMEM)
			fail_msg("allocation %u failed, and the result is %d", n, rc);
	}
	fail_msg("no end");
	return 0;
}
