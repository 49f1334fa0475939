/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside src/health only: which process was the child of which, also when they are gone. The kernel's process
 * connector reports each fork; without it, only living processes have parents. See cn_proc in the kernel's
 * documentation. Needs root in the first namespaces of the host.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct forge_ancestry;

/* Also where the connector is not there: forge_ancestry_is_complete() then says no. */
FORGE_MUST_CHECK int forge_ancestry_open(struct forge_ancestry **ret,
					 struct forge_error *err);
void forge_ancestry_close(struct forge_ancestry *a);
/* Readable when forks were reported; -1: there is no connector. */
int forge_ancestry_fd(const struct forge_ancestry *a);
/* Takes in all forks up to now. */
void forge_ancestry_update(struct forge_ancestry *a);
/* Are forks seen? */
bool forge_ancestry_is_complete(const struct forge_ancestry *a);
/* How often some were lost. */
unsigned forge_ancestry_losses(const struct forge_ancestry *a);
/* The process that forked this one, as it was then; 0: that was not seen. */
pid_t forge_ancestry_parent(const struct forge_ancestry *a, pid_t pid);
