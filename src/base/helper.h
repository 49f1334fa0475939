/* SPDX-License-Identifier: Apache-2.0 */
/* Programs and files that come with forge: installed, or beside it in a build tree. */
#pragma once

#include <limits.h>

#include "base/error.h"

/*
 * The real path of such a program into ret. in_build: its directory in a build tree, seen from that of
 * forge. -ENOENT: it is not installed.
 */
FORGE_MUST_CHECK int forge_helper_find(const char *name, const char *in_build,
				       char ret[PATH_MAX], struct forge_error *err);
