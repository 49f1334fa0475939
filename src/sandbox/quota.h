/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Project quota on a workdir, where the file system has it (XFS with pquota, ext4 with prjquota)
 * and we are root: the kernel counts every block, also of deleted and mapped files, and refuses
 * what is over the limit.
 */
#pragma once

#include <stdint.h>

struct forge_quota {
	int fd; /* the directory, borrowed; -1: no quota, the tree is measured */
	uint32_t project;
};

/* Returns 0, or -errno where there is no project quota; then the caller measures. */
int forge_quota_start(struct forge_quota *q, int dir_fd, uint32_t project,
		      uint64_t max_bytes, uint64_t max_inodes);
/* Returns 0 and the present usage, or -errno. */
int forge_quota_usage(const struct forge_quota *q, uint64_t *ret_bytes,
		      uint64_t *ret_inodes);
/* Removes the limits: the next run may have the same project id. */
void forge_quota_stop(struct forge_quota *q);
