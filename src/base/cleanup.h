/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-exit cleanup: every forge_auto_* variable is initialised on its own line. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FORGE_CLEANUP(fn) __attribute__((cleanup(fn)))

/* Defines forge_auto_<name>_: runs fn(var) at scope exit when var is not NULL. */
#define FORGE_DEFINE_AUTO(name, type, fn)                  \
	static inline void forge_auto_##name##_(type *p)   \
	{                                                  \
		if (*p)                                    \
			fn(*p);                            \
	}

static inline void forge_auto_free_(void *p)
{
	free(*(void **)p);
}
#define forge_auto_free FORGE_CLEANUP(forge_auto_free_)

static inline void forge_auto_close_(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}
#define forge_auto_close FORGE_CLEANUP(forge_auto_close_) /* initialise to -1 */

FORGE_DEFINE_AUTO(file, FILE *, fclose)
#define forge_auto_file FORGE_CLEANUP(forge_auto_file_)
FORGE_DEFINE_AUTO(dir, DIR *, closedir)
#define forge_auto_dir FORGE_CLEANUP(forge_auto_dir_)

/* Hand a value to a new owner; the cleanup then sees the empty value. */
#define forge_take_ptr(p) ({ __typeof__(p) t_ = (p); (p) = NULL; t_; })
#define forge_take_fd(fd) ({ int t_ = (fd); (fd) = -1; t_; })

#define FORGE_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
