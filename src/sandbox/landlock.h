/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock: what the running kernel offers. child_landlock.c enforces it. */
#pragma once

#include "config/config.h"

/*
 * Which mechanisms are missing with this ABI. Scopes keep abstract sockets of the host away when its network is
 * shared; a run with a network of its own cannot reach them anyway.
 */
static inline unsigned forge_landlock_missing(int abi, bool own_network)
{
	return (abi < 1 ? 1u << FORGE_MECH_LANDLOCK : 0) |
	       (abi < 6 && !own_network ? 1u << FORGE_MECH_LANDLOCK_SCOPE : 0);
}
/* 0 when the kernel has none, it is disabled at boot, or the call is filtered. */
int forge_landlock_abi(void);
/* The newest version whose rights we know how to handle. */
#define FORGE_LANDLOCK_MAX_ABI 7
