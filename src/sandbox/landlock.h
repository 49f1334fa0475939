/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: what the running kernel offers. child_landlock.c enforces it. */
#pragma once

/* 0 when the kernel has none, it is disabled at boot, or the call is filtered. */
int forge_landlock_abi(void);
/* The newest version whose rights we know how to handle. */
#define FORGE_LANDLOCK_MAX_ABI 7
