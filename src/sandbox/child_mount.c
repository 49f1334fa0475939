/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside: builds the new root on a fresh tmpfs and pivots into it.
 *
 * Rules learned from past holes in other sandboxes: no path is ever resolved in a tree that
 * another user can write while the old root is reachable; mount points are made only on our own
 * tmpfs, one component at a time and without following links; trees are attached to
 * descriptors, not to names; sources are compared with the inode that the plan saw.
 */
#include "sandbox/child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"

/* sys/mount.h clashes with linux/mount.h on some glibc versions. */
int mount(const char *src, const char *dst, const char *type, unsigned long flags,
	  const void *data);
int umount2(const char *target, int flags);

static uint64_t attributes(const struct forge_mount *m)
{
	uint64_t a = MOUNT_ATTR_NOSUID;

	if (m->type != FORGE_MOUNT_DEV)
		a |= MOUNT_ATTR_NODEV;
	if (m->type != FORGE_MOUNT_RW && m->type != FORGE_MOUNT_TMPFS)
		a |= MOUNT_ATTR_RDONLY;
	/* A device must stay writable; the mode of its node protects it. */
	if (m->type == FORGE_MOUNT_DEV)
		a = (a & ~(uint64_t)MOUNT_ATTR_RDONLY) | MOUNT_ATTR_NOEXEC;
	if (m->noexec)
		a |= MOUNT_ATTR_NOEXEC;
	return a;
}

int forge_child_open_source(const struct forge_mount *m, enum forge_stage *ret_stage)
{
	unsigned recursive = m->type == FORGE_MOUNT_RO ? AT_RECURSIVE : 0;
	struct stat st;

	*ret_stage = FORGE_STAGE_OPEN;
	/* A source that has become a link is cloned as a link; the inode check below refuses it. */
	int fd = sys_open_tree(AT_FDCWD, m->source,
			       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
				       recursive);
	if (fd < 0)
		return -1;
	*ret_stage = FORGE_STAGE_CHANGED;
	if (fstat(fd, &st) < 0)
		goto fail;
	if (st.st_dev != m->dev || st.st_ino != m->ino ||
	    (m->type == FORGE_MOUNT_DEV &&
	     (!S_ISCHR(st.st_mode) || st.st_rdev != m->rdev))) {
		errno = ESTALE;
		goto fail;
	}
	*ret_stage = FORGE_STAGE_READ_ONLY;
	/*
	 * Private: a clone of a shared mount would receive later mounts of the host, and they
	 * would be writable.
	 */
	if (sys_mount_setattr(fd, "", AT_EMPTY_PATH | recursive, attributes(m),
			      MS_PRIVATE) < 0)
		goto fail;
	return fd;
fail:;
	int saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static int fs_string(int fs, const char *key, const char *value)
{
	return sys_fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0);
}

static int fs_number(int fs, const char *key, uint64_t value)
{
	char buf[24];
	char *p = buf + sizeof(buf) - 1;

	*p = '\0';
	do
		*--p = (char)('0' + value % 10);
	while (value /= 10);
	return fs_string(fs, key, p);
}

/* Makes a detached tmpfs. */
static int new_tmpfs(uint64_t size, uint64_t inodes, const char *mode, unsigned attrs)
{
	int fs = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);

	if (fs < 0)
		return -1;
	int fd = -1;
	if (fs_number(fs, "size", size) == 0 && fs_number(fs, "nr_inodes", inodes) == 0 &&
	    fs_string(fs, "mode", mode) == 0 &&
	    sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, attrs);
	int saved = errno;
	close(fs);
	errno = saved;
	return fd;
}

static int new_proc(void)
{
	int fs = sys_fsopen("proc", FSOPEN_CLOEXEC);

	if (fs < 0)
		return -1;
	int fd = -1;
	if (sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = sys_fsmount(fs, FSMOUNT_CLOEXEC,
				 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					 MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY);
	int saved = errno;
	close(fs);
	errno = saved;
	return fd;
}

static int attach(int tree, int target)
{
	return sys_move_mount(tree, "", target, "",
			      MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/*
 * Opens the directory that holds the last component of path, making directories on the way
 * when make is set; *ret_name is that component. O_NOFOLLOW at every step.
 */
static int open_parent(int root, const char *path, const char **ret_name, bool make)
{
	int dir = root;

	for (;;) {
		char name[NAME_MAX + 1];
		path += strspn(path, "/");
		size_t len = strcspn(path, "/");
		if (!path[len]) {
			*ret_name = path;
			return dir == root ? fcntl(root, F_DUPFD_CLOEXEC, 0) : dir;
		}
		int next = -1;
		if (len <= NAME_MAX) {
			memcpy(name, path, len);
			name[len] = '\0';
			if (make && mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
				next = -1;
			else
				next = openat(dir, name,
					      O_PATH | O_DIRECTORY | O_NOFOLLOW |
						      O_CLOEXEC);
		} else {
			errno = ENAMETOOLONG;
		}
		if (dir != root) {
			int saved = errno;
			close(dir);
			errno = saved;
		}
		if (next < 0)
			return -1;
		dir = next;
		path += len;
	}
}

/* Makes an empty file or directory for m and opens it O_PATH. */
static int make_target(int parent, const char *name, bool is_dir)
{
	if (is_dir) {
		if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
			return -1;
	} else if (mknodat(parent, name, S_IFREG | 0644, 0) < 0 && errno != EEXIST) {
		return -1;
	}
	return openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

static int write_file(int parent, const char *name, const char *text)
{
	int fd = openat(parent, name,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0)
		return -1;
	size_t len = strlen(text);
	ssize_t n = write(fd, text, len);
	close(fd);
	return n == (ssize_t)len ? 0 : -1;
}

struct builder {
	const struct forge_child *c;
	int root;
	/* The last parent directory stays open: neighbours in the plan mostly share it. */
	int parent;
	const char *parent_path; /* a target, of which the first parent_len bytes count */
	size_t parent_len;
	const struct forge_mount *null_device; /* the plan's row for /dev/null */
};

static int open_empty(struct builder *b)
{
	if (mkdirat(b->root, "run", 0755) < 0 && errno != EEXIST)
		return -1;
	return sys_open_tree(b->root, "run",
			     OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
}

/*
 * Opens the mount that hides a path: an empty directory, or the null device on a mount without
 * devices, so that even opening it fails. The null device is verified like every other source.
 */
static int open_mask(struct builder *b, bool is_dir, enum forge_stage *stage)
{
	const unsigned attrs = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID |
			       MOUNT_ATTR_NODEV;

	/* A clone of an empty directory of our own is cheaper than one more file system. */
	int fd = is_dir ? open_empty(b) : forge_child_open_source(b->null_device, stage);
	if (fd >= 0 && sys_mount_setattr(fd, "", AT_EMPTY_PATH, attrs, 0) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Opens the tree to attach for mount i, or returns -1 with the stage that failed. */
static int open_tree_for(struct builder *b, size_t i, enum forge_stage *stage)
{
	const struct forge_mount *m = &b->c->plan->mounts[i];

	*stage = FORGE_STAGE_MOUNT;
	switch (m->type) {
	case FORGE_MOUNT_TMPFS:
		return new_tmpfs(m->size_bytes, m->inodes, "1777",
				 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	case FORGE_MOUNT_PROC:
		return new_proc();
	case FORGE_MOUNT_MASK:
		return open_mask(b, m->is_dir, stage);
	case FORGE_MOUNT_RO:
	case FORGE_MOUNT_RW:
	case FORGE_MOUNT_DEV:
		if (b->c->sources[i] >= 0)
			return b->c->sources[i];
		return forge_child_open_source(m, stage);
	case FORGE_MOUNT_DIR:
	case FORGE_MOUNT_SYMLINK:
	case FORGE_MOUNT_FILE:
		break;
	}
	errno = EINVAL;
	return -1;
}

static int parent_of(struct builder *b, const struct forge_mount *m,
		     const char **ret_name)
{
	const char *slash = strrchr(m->target, '/');
	size_t len = (size_t)(slash - m->target);

	if (b->parent >= 0 && len == b->parent_len &&
	    memcmp(m->target, b->parent_path, len) == 0) {
		*ret_name = slash + 1;
		return b->parent;
	}
	if (b->parent >= 0)
		close(b->parent);
	/* The target of a mask is in /proc, which is our own and where nothing is made. */
	b->parent =
		open_parent(b->root, m->target, ret_name, m->type != FORGE_MOUNT_MASK);
	b->parent_path = m->target;
	b->parent_len = len;
	return b->parent;
}

static void build_one(struct builder *b, size_t i)
{
	const struct forge_mount *m = &b->c->plan->mounts[i];
	int report = b->c->report;
	const char *name;
	bool is_mask = m->type == FORGE_MOUNT_MASK;
	int parent = parent_of(b, m, &name);

	if (parent < 0)
		forge_child_die(report, FORGE_STAGE_MKDIR, m->target);
	if (m->type == FORGE_MOUNT_SYMLINK) {
		if (symlinkat(m->source, parent, name) < 0)
			forge_child_die(report, FORGE_STAGE_WRITE, m->target);
	} else if (m->type == FORGE_MOUNT_FILE) {
		if (write_file(parent, name, m->source) < 0)
			forge_child_die(report, FORGE_STAGE_WRITE, m->target);
	} else {
		bool is_dir = m->is_dir || m->type == FORGE_MOUNT_DIR ||
			      m->type == FORGE_MOUNT_PROC;
		int target =
			is_mask ? openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC)
				: make_target(parent, name, is_dir);
		if (target < 0)
			forge_child_die(report, FORGE_STAGE_MKDIR, m->target);
		if (m->type != FORGE_MOUNT_DIR) {
			enum forge_stage stage;
			int tree = open_tree_for(b, i, &stage);
			if (tree < 0)
				forge_child_die(report, stage,
						m->source ? m->source : m->target);
			if (attach(tree, target) < 0)
				forge_child_die(report, FORGE_STAGE_ATTACH, m->target);
			close(tree);
		}
		close(target);
	}
}

void forge_child_build_root(const struct forge_child *c)
{
	struct builder b = { .c = c, .parent = -1 };

	for (size_t i = 0; i < c->plan->n_mounts && !b.null_device; i++)
		if (strcmp(c->plan->mounts[i].target, "/dev/null") == 0)
			b.null_device = &c->plan->mounts[i];

	/* None of our mounts may propagate to the host. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		forge_child_die(c->report, FORGE_STAGE_PROPAGATION, "/");
	b.root = new_tmpfs(1 << 20, 4096, "0755", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (b.root < 0)
		forge_child_die(c->report, FORGE_STAGE_ROOT, "tmpfs");
	/*
	 * Attached over the old root, so that no directory of the host is needed as a mount
	 * point.
	 */
	if (sys_move_mount(b.root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		forge_child_die(c->report, FORGE_STAGE_ROOT, "attach tmpfs");
	for (size_t i = 0; i < c->plan->n_mounts; i++)
		build_one(&b, i);
	/*
	 * pivot_root(".", ".") stacks the old root on the new one; detaching "." then removes
	 * it, and the new root is all there is. No put_old directory is needed.
	 */
	if (fchdir(b.root) < 0 || sys_pivot_root(".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		forge_child_die(c->report, FORGE_STAGE_PIVOT, "/");
	if (sys_mount_setattr(AT_FDCWD, "/", 0, MOUNT_ATTR_RDONLY, 0) < 0)
		forge_child_die(c->report, FORGE_STAGE_READ_ONLY, "/");
	close(b.root);
	if (b.parent >= 0)
		close(b.parent);
}
