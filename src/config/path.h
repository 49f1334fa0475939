/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as they are written in a configuration file. */
#pragma once

/*
 * A new string: path made absolute below base (NULL: the current directory), without "//", "." and ".."
 * by the text alone. NULL with errno when that fails.
 */
char *forge_path_absolute(const char *base, const char *path);
