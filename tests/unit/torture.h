/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out: link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,
 * --wrap=strdup and every allocation can be made to fail in turn.
 */
#pragma once

/*
 * Calls attempt with the first allocation failing, then the second, until none fails. It
 * must return -ENOMEM each time, and 0 at last. Returns how many allocations there were.
 */
unsigned torture(int (*attempt)(void *arg), void *arg);
