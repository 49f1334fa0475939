/* SPDX-License-Identifier: Apache-2.0 */
/* Inside src/health only: the last result of each check, in FORGE_HOME/health/. */
#pragma once

#include "health/result.h"

/*
 * Reads the last result of the check. 1: there is one that is younger than d->every_usec, of this boot, and of
 * the same declaration. 0: there is none.
 */
int forge_check_recall(int dir, const struct forge_check_decl *d,
		       struct forge_check_result *ret);
/* Keeps it for others. Without it, they check again. */
void forge_check_remember(int dir, const struct forge_check_result *r);
