/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/health only: the kinds of checks; kinds.c has the table. */
#pragma once

#include "health/check.h"

#define FORGE_CHECK(name)                                                                \
	void name(const struct forge_check_env *env, const struct forge_check_decl *d,   \
		  struct forge_check_report *ret)

FORGE_CHECK(forge_check_disk);
FORGE_CHECK(forge_check_memory);
FORGE_CHECK(forge_check_sqlite);
FORGE_CHECK(forge_check_postgres); /* with libpq only */
FORGE_CHECK(forge_check_http);	   /* with libcurl only */
FORGE_CHECK(forge_check_tcp);
FORGE_CHECK(forge_check_unix);
FORGE_CHECK(forge_check_process);
FORGE_CHECK(forge_check_systemd);

/* "5.00 GiB" or, of a part, "5.00 GiB (5 %)": the least that a declaration asks for, of this whole. */
uint64_t forge_amount_of(const struct forge_amount *a, uint64_t whole);
