/* SPDX-License-Identifier: Apache-2.0 */
/* For gen_filter.c: programs for arguments, and running programs to compare their answers. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

#include "sandbox/seccomp_policy.h"

/* Prints an error and ends the build. */
_Noreturn void forge_gen_die(const char *what, const char *name, int rc);
/* Both return how many instructions they wrote to ret. */
size_t forge_gen_list(const struct forge_call_list *l, struct sock_filter *ret);
/*
 * From the rows of forge_syscalls_args for this call; prlimit64 has a rule that no row can
 * express.
 */
size_t forge_gen_rules(const char *name, struct sock_filter *ret);
/* Runs a program on a call with all its arguments; returns its answer. */
uint32_t forge_gen_run(const struct sock_filter *prog, size_t n,
		       const struct seccomp_data *d);
/* Ends the build if libseccomp's program for the same rules gives another answer. */
void forge_gen_compare(const char *name, const struct sock_filter *mine, size_t n,
		       const struct sock_filter *theirs, size_t m);
