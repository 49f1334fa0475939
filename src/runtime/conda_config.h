/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conda's configuration: all condarc files in their usual places, and variables, merged by
 * conda's rules. What forge cannot read is left out with a warning.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strv.h"

struct forge_conda_config {
	struct forge_strv envs_dirs; /* only the configured ones: absolute, in order */
	char *env_prompt; /* never NULL once read; "" where changeps1 is false */
	bool keeps_case;  /* envvars_force_uppercase is false */
	unsigned auto_stack;
};
/* root: of the installation, NULL: none. warnings may be NULL. -ENOMEM only. */
FORGE_MUST_CHECK int forge_conda_config_read(const char *root,
					     struct forge_conda_config *ret,
					     struct forge_strv *warnings);
void forge_conda_config_done(struct forge_conda_config *c);
#define forge_auto_conda_config FORGE_CLEANUP(forge_conda_config_done)

/* Expands $NAME, ${NAME} and then ~ as Python does; unset variables stay. NULL: out of memory. */
char *forge_conda_expand(const char *text);
/*
 * Reads a user's file, which is often a link. Only a regular file is read, and a fifo is not
 * waited for. The caller owns *ret, which ends with NUL. -ENOENT: there is none; other errors
 * as forge_read_regular().
 */
FORGE_MUST_CHECK int forge_conda_read_text(const char *path, char **ret, size_t *ret_len);
