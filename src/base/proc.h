/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is: pid, start time and boot together are never reused. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define FORGE_BOOT_ID_MAX 40
/* This boot's id. Returns buf, "" when the kernel does not tell. */
const char *forge_boot_id(char buf[FORGE_BOOT_ID_MAX]);
/*
 * A digest of /etc/machine-id, which itself is not to be shown to others (machine-id(5)); "" when
 * there is none. Returns buf.
 */
const char *forge_machine_id(char buf[FORGE_BOOT_ID_MAX]);
/* The number of our pid namespace, 0 when the kernel does not tell. */
uint64_t forge_pid_namespace(void);
/* Clock ticks after boot at which it was started; 0: there is no such process. */
uint64_t forge_proc_start_time(pid_t pid);
/* 0: there is no such process. */
pid_t forge_proc_parent(pid_t pid);
