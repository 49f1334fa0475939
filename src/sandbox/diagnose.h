/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why this host refuses what a sandbox is made of, as the hint of an error: the one setting
 * that is wrong here and how to change it, not a list of all that might be. Each sets the
 * hint and returns rc unchanged.
 */
#pragma once

#include "base/error.h"

/* clone() of the namespaces failed with rc. */
int forge_diagnose_clone(int rc, struct forge_error *err);
/* Something that the new namespaces give a right to was refused with EPERM or EACCES. */
int forge_diagnose_refused(int rc, struct forge_error *err);
/* A new /proc was refused with EPERM. */
int forge_diagnose_proc(int rc, struct forge_error *err);
