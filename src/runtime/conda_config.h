/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conda's configuration: every condarc in its places, and variables. Read and merged by conda's rules;
 * what forge cannot read of it is told, and left out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strv.h"

struct forge_conda_config {
	struct forge_strv envs_dirs; /* those configured: absolute, the first first */
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

/* $NAME, ${NAME} and then ~ as Python expands them; what is not set stays. NULL: out of memory. */
char *forge_conda_expand(const char *text);
/*
 * A file of a person's, often a link; nothing but a regular file is read, and no fifo waited for. *ret is
 * the caller's, ended with NUL. -ENOENT: there is none; others as forge_read_regular().
 */
FORGE_MUST_CHECK int forge_conda_read_text(const char *path, char **ret, size_t *ret_len);
