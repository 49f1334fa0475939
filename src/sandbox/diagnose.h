/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out why this host refuses the parts of a sandbox. The hint of the error then names the
 * one setting that is wrong here and how to change it, not everything that might be wrong. Each
 * function sets the hint and returns rc unchanged.
 */
#pragma once

#include "base/error.h"

/* clone() of the namespaces failed with rc. */
int forge_diagnose_clone(int rc, struct forge_error *err);
/* An operation that the new namespaces should permit was refused with EPERM or EACCES. */
int forge_diagnose_refused(int rc, struct forge_error *err);
/* A new /proc was refused with EPERM. */
int forge_diagnose_proc(int rc, struct forge_error *err);
