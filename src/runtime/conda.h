/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conda environments without running conda: computes what `conda activate` would export, and
 * reads packages and locks from conda-meta. Also for prefixes of micromamba and pixi, which
 * have the same layout.
 */
#pragma once

#include "runtime/runtime.h"

struct forge_conda_spec {
	/* The prefix to activate, absolute, with the links of the given path. */
	const char *prefix;
	const char *real_prefix; /* where files are read; NULL: as prefix */
	/* Prefix of the conda installation; NULL: unknown, no CONDA_EXE etc. */
	const char *root_prefix;
	bool stack;	     /* --stack */
	unsigned auto_stack; /* ... implied up to this level; 0: never */
	/* CONDA_PROMPT_MODIFIER, in which {default_env} and so on are filled in; NULL: empty. */
	const char *prompt;
	bool keep_case; /* envvars_force_uppercase is false; not for mamba */
	bool is_mamba;	/* mamba's rules: no CONDA_EXE etc., another PATH above level 0 */
};

/*
 * Applies `conda activate` to env (complete "K=V" list), at the CONDA_SHLVL that it has. Adds
 * the activate.d scripts to scripts in the order in which they are sourced; for a level above 0
 * without stack, the deactivate.d scripts of the old environment come before them. Warnings
 * that conda would print (clobbered variables, PATH in env_vars) are added to warnings.
 */
FORGE_MUST_CHECK int forge_conda_activate(const struct forge_conda_spec *spec,
					  struct forge_strv *env,
					  struct forge_strv *scripts,
					  struct forge_strv *warnings,
					  struct forge_error *err);
/*
 * Finds a prefix by name (the root prefix or a child of envs_dirs) or path; absolute, owned by
 * the caller. Links in it stay, as with conda. The root prefix is that of the installation to
 * which it belongs, NULL when there is none.
 */
FORGE_MUST_CHECK int forge_conda_resolve(const char *name_or_path, char **ret_prefix,
					 char **ret_root_prefix, struct forge_error *err);
/* Does a root prefix belong to mamba? It then has no conda. */
bool forge_conda_is_mamba(const char *root_prefix);
/* Lists every environment that conda would list, as pairs "name" (or "" without one), "prefix". */
FORGE_MUST_CHECK int forge_conda_discover(struct forge_strv *ret_pairs,
					  struct forge_error *err);
/* Packages of a prefix: conda-meta, then pip's dist-info in its site-packages. */
FORGE_MUST_CHECK int forge_conda_packages(const char *prefix, struct forge_packages *ret,
					  struct forge_error *err);
/* Writes the format of `conda list --explicit`, in dependency order. */
FORGE_MUST_CHECK int forge_conda_lock(const char *prefix, FILE *out,
				      struct forge_error *err);
/* Python distributions (dist-info, egg-info) in every lib/pythonX.Y/site-packages of a prefix. */
FORGE_MUST_CHECK int forge_pip_prefix(const char *prefix, struct forge_packages *ret,
				      struct forge_error *err);
