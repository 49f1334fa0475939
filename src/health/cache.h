/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/health only: the last result of each check, in FORGE_HOME/health/. */
#pragma once

#include "health/result.h"

/* The clock of results, in microseconds since boot. */
uint64_t forge_check_clock(void);
/*
 * Reads the last result of the check, if it is of this boot and of the same declaration. 1: it is younger than
 * d->every_usec, or the check ended after ended_since. 0: there is none, or it must not be used again.
 */
int forge_check_recall(int dir, const struct forge_check_decl *d, uint64_t ended_since,
		       struct forge_check_result *ret);
/* Keeps it for others. Without it, they check again. */
void forge_check_remember(int dir, const struct forge_check_result *r);
