/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's package database, read directly: the owner of a file, its version and its
 * dependencies.
 */
#pragma once

#include "runtime/runtime.h"

/*
 * Adds the packages that own these files (canonical paths), with everything they depend on, as
 * source "deb". A file that no package owns is added by its hash, as source "file". Without a
 * dpkg database all files are added so.
 */
FORGE_MUST_CHECK int forge_dpkg_packages(const struct forge_strv *files,
					 struct forge_packages *ret,
					 struct forge_error *err);
/* Adds everything that is installed in the system below root. -ENOENT: no dpkg database there. */
FORGE_MUST_CHECK int forge_dpkg_installed(const char *root, struct forge_packages *ret,
					  struct forge_error *err);
/*
 * Are packages of this host being installed or removed now? Checked by dpkg's locks. A user who
 * may not open them goes by whether the database changed in the last seconds.
 */
bool forge_dpkg_is_busy(void);
/* A number that differs after every change of this host's database; 0: there is no database. */
uint64_t forge_dpkg_stamp(void);
/* Adds the file of a Python module, if the host's directories of modules have one. */
FORGE_MUST_CHECK int forge_python_module_file(const char *module,
					      struct forge_strv *files);
