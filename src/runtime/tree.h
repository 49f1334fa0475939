/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of files as packages, for files that no package manager knows. */
#pragma once

#include "runtime/runtime.h"

/*
 * Adds every regular file and link below dir as source "file": label and its path below dir,
 * its hash, and "x" as build when it is executable. Compiled Python (__pycache__) is left out:
 * it follows from the rest and differs by time.
 */
FORGE_MUST_CHECK int forge_tree_packages(const char *dir, const char *label,
					 struct forge_packages *ret,
					 struct forge_error *err);
/* Adds "bin" of prefix in front of PATH. */
FORGE_MUST_CHECK int forge_tree_prepend_path(const char *prefix, struct forge_strv *env);
