/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of conda's rules: a directory of their own for each case, and files in it. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rmtree.h"
#include "unit.h"

static char top[64];

static inline int enter(void **state)
{
	(void)state;
	(void)snprintf(top, sizeof(top), "/tmp/test-conda-XXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static inline int leave(void **state)
{
	struct stat st;

	(void)state;
	return stat(top, &st) < 0 ? -1
				  : forge_rmtree(top, st.st_dev, st.st_ino, NULL, NULL);
}

/* A file below top, with its directories. */
static inline void put(const char *path, const char *text)
{
	char full[512];

	(void)snprintf(full, sizeof(full), "%s/%s", top, path);
	*strrchr(full, '/') = '\0';
	assert_int_equal(forge_mkdirs(full, 0755), 0);
	full[strlen(full)] = '/';
	FILE *f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static inline const char *below(const char *path)
{
	static char full[4][512];
	static int n;

	n = (n + 1) % 4;
	(void)snprintf(full[n], sizeof(full[n]), "%s/%s", top, path);
	return full[n];
}

/* The '@' of a rule. */
static inline const char *at(const char *text)
{
	static char out[4][1024];
	static int n;
	size_t len = 0;

	n = (n + 1) % 4;
	out[n][0] = '\0';
	for (; *text && len < sizeof(out[n]); text++)
		len += (size_t)snprintf(out[n] + len, sizeof(out[n]) - len, "%.*s",
					*text == '@' ? 64 : 1, *text == '@' ? top : text);
	return out[n];
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter, leave)
