/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run left in its workdir that its user may want. The tree may be hostile: no link is followed and no
 * special file is opened.
 */
#pragma once

#include <stdbool.h>

/* Whether programs make a file or directory of this name for their own use: hidden, or __pycache__. */
bool forge_results_is_aside(const char *name);
/*
 * Whether there is a regular file below the directory dir. Those that programs make for their own use count
 * only with_aside. True also when that is not known: a directory that cannot be read, or a very large tree.
 */
bool forge_results_any(int dir, bool with_aside);
/*
 * A collector that was killed may have made objects of files by hard links. Replaces such files by copies, so
 * that a user who changes them does not change the object. A file that cannot be copied stays as it is,
 * without write permission.
 */
void forge_results_unshare(int dir);
