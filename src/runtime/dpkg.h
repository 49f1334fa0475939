/* SPDX-License-Identifier: Apache-2.0 */
/* Debian's package database, read directly: who owns a file, which version, what it needs. */
#pragma once

#include "runtime/runtime.h"

/*
 * Adds the packages that own these files (canonical paths), with everything they depend on, as
 * source "deb". A file that no package owns is added by its hash, as source "file". Without a dpkg
 * database all of them are.
 */
FORGE_MUST_CHECK int forge_dpkg_packages(const struct forge_strv *files,
					 struct forge_packages *ret,
					 struct forge_error *err);
/* Everything that is installed in the system below root. -ENOENT: no dpkg database there. */
FORGE_MUST_CHECK int forge_dpkg_installed(const char *root, struct forge_packages *ret,
					  struct forge_error *err);
/*
 * Are packages of this host being installed or removed just now? By dpkg's locks; who may not open
 * these goes by the database having changed in the last seconds.
 */
bool forge_dpkg_is_busy(void);
/* A number that is another one after every change of this host's database; 0: there is none. */
uint64_t forge_dpkg_stamp(void);
/* The file of a Python module in the host's places for them, if it has one there. */
FORGE_MUST_CHECK int forge_python_module_file(const char *module,
					      struct forge_strv *files);
