/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies processes: a pid, its start time and the boot id together are never reused. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define FORGE_BOOT_ID_MAX 40
/* The id of this boot. Returns buf, "" when the kernel does not report it. */
const char *forge_boot_id(char buf[FORGE_BOOT_ID_MAX]);
/*
 * A digest of /etc/machine-id, which itself must be kept confidential (machine-id(5)); "" when
 * there is none. Returns buf.
 */
const char *forge_machine_id(char buf[FORGE_BOOT_ID_MAX]);
/* The number of our pid namespace, 0 when the kernel does not report it. */
uint64_t forge_pid_namespace(void);
/* When the process started, in clock ticks after boot; 0: there is no such process. */
uint64_t forge_proc_start_time(pid_t pid);
/* The pid of the parent; 0: there is no such process. */
pid_t forge_proc_parent(pid_t pid);
