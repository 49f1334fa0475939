/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conda environments without conda: what `conda activate` would export, computed; packages and
 * locks from conda-meta. Also micromamba and pixi prefixes, which have the same layout.
 */
#pragma once

#include "runtime/runtime.h"

struct forge_conda_spec {
	const char *prefix; /* to activate, absolute, by the name it was reached by */
	const char *real_prefix; /* where it is read; NULL: as prefix */
	const char *
		root_prefix; /* of the conda installation; NULL: unknown, no CONDA_EXE etc. */
	bool stack;	     /* --stack */
	unsigned auto_stack; /* ... up to this level without being asked; 0: never */
	const char *
		prompt; /* CONDA_PROMPT_MODIFIER, NULL: empty; {default_env} and so on are filled in */
	bool keep_case; /* envvars_force_uppercase is false; not for mamba */
	bool is_mamba;	/* mamba's rules: no CONDA_EXE etc., another PATH above level 0 */
};

/*
 * Applies `conda activate` to env (complete "K=V" list), at whatever CONDA_SHLVL it has. Adds the
 * activate.d scripts to scripts in the order they are sourced, and for a level above 0 without
 * stack the deactivate.d scripts of the old environment before them. Warnings that conda would
 * print (clobbered variables, PATH in env_vars) are added to warnings.
 */
FORGE_MUST_CHECK int forge_conda_activate(const struct forge_conda_spec *spec,
					  struct forge_strv *env,
					  struct forge_strv *scripts,
					  struct forge_strv *warnings,
					  struct forge_error *err);
/*
 * A prefix by name (root_prefix's or a child of envs_dirs) or path; absolute, owned by caller. Links in
 * it stay, as with conda. The root prefix is that of the installation it belongs to, NULL when there is
 * none.
 */
FORGE_MUST_CHECK int forge_conda_resolve(const char *name_or_path, char **ret_prefix,
					 char **ret_root_prefix, struct forge_error *err);
/* Whether a root prefix is mamba's own: it has no conda. */
bool forge_conda_is_mamba(const char *root_prefix);
/* Every environment that conda would list: "name" (or "" without one), "prefix" pairs. */
FORGE_MUST_CHECK int forge_conda_discover(struct forge_strv *ret_pairs,
					  struct forge_error *err);
/* Packages of a prefix: conda-meta, then pip's dist-info in its site-packages. */
FORGE_MUST_CHECK int forge_conda_packages(const char *prefix, struct forge_packages *ret,
					  struct forge_error *err);
/* `conda list --explicit`'s form, in dependency order. */
FORGE_MUST_CHECK int forge_conda_lock(const char *prefix, FILE *out,
				      struct forge_error *err);
/* Python distributions (dist-info, egg-info) in every lib/pythonX.Y/site-packages of a prefix. */
FORGE_MUST_CHECK int forge_pip_prefix(const char *prefix, struct forge_packages *ret,
				      struct forge_error *err);
