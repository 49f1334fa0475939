/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse-stuck DIR WHEN: mounts a file system on DIR in which one file, "stuck", can be looked up
 * and opened, and whose server then fails its readers. Needs root. Prints "mounted", and "read"
 * once somebody waits in a read. Ends, and the mount with it, when its standard input ends. Each byte from
 * there makes the file larger by one; then it prints "grown".
 *   WHEN taken: the server takes the read and never answers. The kernel then lets nobody
 *               interrupt the reader, not even SIGKILL.
 *   WHEN deaf:  the server does not even take it.
 *   WHEN dead:  the server takes nothing after the mount, so that looking already waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_ID 2

static int dev;
static uint64_t size = 1 << 20;

static void answer(const struct fuse_in_header *in, int error, const void *data,
		   size_t len)
{
	char buf[4096];
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + len),
		.error = -error,
		.unique = in->unique,
	};

	memcpy(buf, &out, sizeof(out));
	if (len > 0)
		memcpy(buf + sizeof(out), data, len);
	if (write(dev, buf, out.len) < 0)
		perror("fuse-stuck: answer");
}

static struct fuse_attr attributes(uint64_t id)
{
	bool is_dir = id == FUSE_ROOT_ID;

	return (struct fuse_attr){ .ino = id,
				   .size = is_dir ? 0 : size,
				   .mode = is_dir ? S_IFDIR | 0755 : S_IFREG | 0644,
				   .nlink = 1,
				   .blksize = 4096 };
}

static void look_up(const struct fuse_in_header *in, const char *name)
{
	struct fuse_entry_out out = { .nodeid = FILE_ID, .attr = attributes(FILE_ID) };

	if (strcmp(name, "stuck") == 0)
		answer(in, 0, &out, sizeof(out));
	else
		answer(in, ENOENT, NULL, 0);
}

static void serve(const struct fuse_in_header *in, const char *body)
{
	struct fuse_attr_out attr = { .attr = attributes(in->nodeid) };
	struct fuse_open_out open = { .open_flags = FOPEN_DIRECT_IO };
	struct fuse_statfs_out fs = { .st = { .bsize = 4096, .namelen = 255 } };
	struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
				      .minor = FUSE_KERNEL_MINOR_VERSION,
				      .max_write = 4096 };

	switch (in->opcode) {
	case FUSE_INIT:
		answer(in, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		look_up(in, body);
		break;
	case FUSE_GETATTR:
		answer(in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		answer(in, 0, &open, sizeof(open));
		break;
	case FUSE_STATFS:
		answer(in, 0, &fs, sizeof(fs));
		break;
	case FUSE_READDIR: /* an empty directory */
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
		answer(in, 0, NULL, 0);
		break;
	case FUSE_READ: /* the point of it all */
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(in, ENOSYS, NULL, 0);
	}
}

/* False: it ended. */
static bool grow(void)
{
	char c;

	if (read(STDIN_FILENO, &c, 1) != 1)
		return false;
	size++;
	puts("grown");
	(void)fflush(stdout);
	return true;
}

int main(int argc, char **argv)
{
	static char buf[FUSE_MIN_READ_BUFFER + (1 << 17)];
	const struct fuse_in_header *in = (const void *)buf;
	char options[128];

	if (argc != 3)
		return 2;
	bool is_deaf = strcmp(argv[2], "deaf") == 0,
	     is_dead = strcmp(argv[2], "dead") == 0;
	dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	(void)snprintf(options, sizeof(options),
		       "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev);
	if (dev < 0 ||
	    mount("fuse-stuck", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
		perror("fuse-stuck: mount");
		return 1;
	}
	struct pollfd fds[] = { { .fd = dev, .events = POLLIN },
				{ .fd = STDIN_FILENO, .events = POLLIN } };
	while (poll(fds, 2, -1) > 0) {
		if (fds[1].revents && !grow())
			break;
		if (!fds[0].revents)
			continue;
		if (read(dev, buf, sizeof(buf)) <= 0)
			break;
		serve(in, buf + sizeof(*in));
		if (in->opcode == FUSE_INIT)
			puts("mounted");
		if (in->opcode == FUSE_READ)
			puts("read");
		(void)fflush(stdout);
		if ((is_deaf && in->opcode == FUSE_OPEN && in->nodeid == FILE_ID) ||
		    (is_dead && in->opcode == FUSE_INIT))
			fds[0].fd = -1;
	}
	/* Closing the device ends all that wait, with ENOTCONN. */
	(void)umount2(argv[1], MNT_DETACH);
	return 0;
}
