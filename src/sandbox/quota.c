/* SPDX-License-Identifier: Apache-2.0 */
/* Project quotas through quotactl_fd(2), which needs no device name. */
#include "sandbox/quota.h"

#include <errno.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/parse.h"

#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef PRJQUOTA
#define PRJQUOTA 2
#endif

static int quotactl_fd(int fd, int cmd, uint32_t id, struct dqblk *dq)
{
	return syscall(SYS_quotactl_fd, fd, QCMD((unsigned)cmd, PRJQUOTA), id, dq) < 0
		       ? -errno
		       : 0;
}

static int set_limits(const struct forge_quota *q, uint64_t max_bytes,
		      uint64_t max_inodes)
{
	struct dqblk dq = { .dqb_valid = QIF_LIMITS };

	/* 0 means no limit here; blocks are of 1 KiB */
	dq.dqb_bhardlimit = dq.dqb_bsoftlimit =
		max_bytes == FORGE_UNLIMITED ? 0 : max_bytes >> 10;
	dq.dqb_ihardlimit = dq.dqb_isoftlimit =
		max_inodes == FORGE_UNLIMITED ? 0 : max_inodes;
	return quotactl_fd(q->fd, Q_SETQUOTA, q->project, &dq);
}

int forge_quota_usage(const struct forge_quota *q, uint64_t *ret_bytes,
		      uint64_t *ret_inodes)
{
	struct dqblk dq = { 0 };
	int rc = quotactl_fd(q->fd, Q_GETQUOTA, q->project, &dq);

	if (rc < 0)
		return rc;
	*ret_bytes = dq.dqb_curspace;
	*ret_inodes = dq.dqb_curinodes;
	return 0;
}

/* The directory and all that is made in it belong to the project. */
static int join_project(int fd, uint32_t project)
{
	struct fsxattr attr;

	if (ioctl(fd, FS_IOC_FSGETXATTR, &attr) < 0)
		return -errno;
	attr.fsx_projid = project;
	attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
	return ioctl(fd, FS_IOC_FSSETXATTR, &attr) < 0 ? -errno : 0;
}

int forge_quota_start(struct forge_quota *q, int dir_fd, uint32_t project,
		      uint64_t max_bytes, uint64_t max_inodes)
{
	uint64_t bytes = 0, inodes = 0;
	struct forge_quota try = { .fd = dir_fd, .project = project };

	q->fd = -1;
	int rc = set_limits(&try, max_bytes, max_inodes);
	if (rc == 0)
		rc = join_project(dir_fd, project);
	if (rc == 0)
		rc = forge_quota_usage(&try, &bytes, &inodes);
	/* A file system that takes the limit but counts nothing would enforce nothing. */
	if (rc == 0 && inodes == 0)
		rc = -ENOTSUP;
	if (rc == 0)
		*q = try;
	return rc;
}

void forge_quota_stop(struct forge_quota *q)
{
	if (q->fd >= 0)
		(void)set_limits(q, FORGE_UNLIMITED, FORGE_UNLIMITED); /* best effort */
	q->fd = -1;
}
