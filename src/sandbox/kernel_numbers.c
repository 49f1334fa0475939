/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the numbers; see kernel_numbers.h. */
#include "sandbox/kernel_numbers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

static char *read_whole(int fd, char *buf, size_t size)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, size - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
	return buf;
}

/* Value of a line "Key:   N kB" of meminfo, in bytes; 0 where this kernel has no such line. */
static int64_t kib(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	return p ? strtoll(p + strlen(key), NULL, 10) * 1024 : 0;
}

int64_t forge_kernel_rough_number(const struct forge_kernel_numbers *k)
{
	static const char *const not_kernel[] = {
		"MemFree:",	 "Buffers:", "\nCached:", "\nSwapCached:", "AnonPages:",
		"SReclaimable:", "\nZswap:", "CmaFree:",  "Hugetlb:"
	};
	char text[8192];
	int64_t n = kib(read_whole(k->meminfo, text, sizeof(text)), "MemTotal:");

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(not_kernel); i++)
		n -= kib(text, not_kernel[i]);
	return n;
}

/*
 * Free pages in the lists of the CPUs, which meminfo does not count as free. They are in lines
 * "count: N".
 */
static int64_t pages_in_lists(const struct forge_kernel_numbers *k)
{
	char buf[4096];
	int64_t pages = 0;
	off_t at = 0;

	for (;;) {
		ssize_t n = k->zoneinfo < 0
				    ? -1
				    : pread(k->zoneinfo, buf, sizeof(buf) - 1, at);
		if (n <= 0)
			return pages * sysconf(_SC_PAGESIZE);
		buf[n] = '\0';
		/* Whole lines only; the rest is read again. */
		char *end = strrchr(buf, '\n');
		if (!end)
			return 0;
		end[1] = '\0';
		at += end + 1 - buf;
		for (const char *p = buf; (p = strstr(p, " count:")); p++)
			pages += strtoll(p + strlen(" count:"), NULL, 10);
	}
}

int64_t forge_kernel_near_number(const struct forge_kernel_numbers *k)
{
	return forge_kernel_rough_number(k) - pages_in_lists(k);
}

static int64_t number_at(int dir, const char *file)
{
	uint64_t n;

	return dir >= 0 && forge_read_u64_at(dir, file, &n) == 0 ? (int64_t)n : 0;
}

/*
 * Kernel memory without reclaimable slabs, from a memory.stat of v2: of all cgroups or of the
 * run alone.
 */
static bool read_split(const char *text, int64_t *ret)
{
	uint64_t kernel = forge_key_u64(text, "kernel", UINT64_MAX);

	if (kernel == UINT64_MAX)
		return false;
	*ret = (int64_t)kernel - (int64_t)forge_key_u64(text, "slab_reclaimable", 0) +
	       (int64_t)forge_key_u64(text, "sock", 0);
	return true;
}

static void read_v2(const struct forge_kernel_numbers *k,
		    struct forge_kernel_reading *ret)
{
	char text[8192];

	if (forge_read_at(k->cg->v2_fd, "memory.stat", text, sizeof(text)) <= 0)
		return;
	ret->is_split = read_split(text, &ret->charged);
	ret->held = number_at(k->cg->v2_fd, "memory.current") -
		    (int64_t)forge_key_u64(text, "anon", 0) -
		    (int64_t)forge_key_u64(text, "file", 0) -
		    (int64_t)forge_key_u64(text, "kernel", 0) -
		    (int64_t)forge_key_u64(text, "sock", 0);
	if (k->root_kernel >= 0)
		(void)read_split(read_whole(k->root_kernel, text, sizeof(text)),
				 &ret->charged);
}

static void read_v1(const struct forge_kernel_numbers *k,
		    struct forge_kernel_reading *ret)
{
	char text[8192];
	int dir = k->cg->memory_fd;
	int64_t own = number_at(dir, "memory.kmem.usage_in_bytes");

	if (forge_read_at(dir, "memory.stat", text, sizeof(text)) <= 0)
		return;
	ret->charged = own;
	ret->held = number_at(dir, "memory.usage_in_bytes") - own +
		    number_at(dir, "memory.kmem.tcp.usage_in_bytes") -
		    (int64_t)forge_key_u64(text, "rss", 0) -
		    (int64_t)forge_key_u64(text, "cache", 0);
	if (k->root_kernel >= 0)
		ret->charged =
			strtoll(read_whole(k->root_kernel, text, sizeof(text)), NULL, 10);
}

/* ZFS has a cache of its own, which is reclaimed like any other. The line is "size  4  N". */
static int64_t zfs_cache(const struct forge_kernel_numbers *k)
{
	char text[8192];
	const char *p = strstr(read_whole(k->arcstats, text, sizeof(text)), "\nsize ");
	char *end;

	if (!p)
		return 0;
	(void)strtoll(p + strlen("\nsize "), &end, 10); /* the type */
	return strtoll(end, NULL, 10);
}

void forge_kernel_read(const struct forge_kernel_numbers *k,
		       struct forge_kernel_reading *ret)
{
	char text[8192];

	*ret = (struct forge_kernel_reading){ .rough = forge_kernel_rough_number(k) };
	ret->reclaimable =
		kib(read_whole(k->meminfo, text, sizeof(text)), "SReclaimable:");
	ret->in_lists = pages_in_lists(k);
	ret->zfs = zfs_cache(k);
	if (k->cg->memory_fd >= 0)
		read_v1(k, ret);
	else
		read_v2(k, ret);
}

/*
 * v1 charges for reclaimable slabs as for all others and does not report them apart. Nearly all
 * of them are charged to a cgroup, so as much of the charges as they grew by is theirs. Where
 * the charges fell, they count only as far as the rough number fell with them.
 */
static int64_t charged_for_rest(int64_t rough, int64_t reclaimable, int64_t charged)
{
	if (charged > 0 && reclaimable > 0)
		return charged > reclaimable ? charged - reclaimable : 0;
	if (charged >= 0)
		return charged;
	return rough >= 0 ? 0 : rough > charged ? rough : charged;
}

int64_t forge_kernel_growth(const struct forge_kernel_reading *then,
			    const struct forge_kernel_reading *now)
{
	int64_t rough = (now->rough - then->rough) - (now->in_lists - then->in_lists) -
			(now->zfs - then->zfs) - (now->held - then->held);
	int64_t charged = now->charged - then->charged;

	if (!now->is_split)
		charged = charged_for_rest(rough, now->reclaimable - then->reclaimable,
					   charged);
	return rough - charged;
}

int64_t forge_kernel_room(const struct forge_kernel_numbers *k)
{
	bool is_v1 = k->cg->memory_fd >= 0;
	int64_t used = number_at(is_v1 ? k->cg->memory_fd : k->cg->v2_fd,
				 is_v1 ? "memory.usage_in_bytes" : "memory.current");
	int64_t limit = (int64_t)k->cg->limits.memory_bytes;

	return limit > used ? limit - used : 0;
}

uint64_t forge_kernel_cpu_usec(const struct forge_kernel_numbers *k)
{
	char text[1024];

	return forge_key_u64(read_whole(k->cpu_stat, text, sizeof(text)), "usage_usec",
			     UINT64_MAX);
}

bool forge_kernel_is_scarce(const struct forge_kernel_numbers *k)
{
	char text[8192];

	read_whole(k->meminfo, text, sizeof(text));
	return kib(text, "MemAvailable:") < kib(text, "MemTotal:") / 20;
}

/*
 * Do all file systems of this host have caches that the kernel counts as caches? Others keep
 * what they read in memory that looks like any other, so slow growth may be such a cache.
 */
bool forge_kernel_has_plain_file_systems(void)
{
	static const char plain[] =
		" ext2 ext3 ext4 btrfs tmpfs ramfs devtmpfs overlay squashfs erofs vfat "
		"iso9660 "
		"nfs nfs4 proc sysfs devpts cgroup cgroup2 mqueue hugetlbfs debugfs "
		"tracefs "
		"securityfs pstore bpf configfs fusectl autofs binfmt_misc efivarfs "
		"rpc_pipefs "
		"fuse fuseblk 9p virtiofs nsfs hostfs rootfs selinuxfs ";
	forge_auto_file FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t room = 0;
	bool is_plain = f != NULL;

	while (is_plain && getline(&line, &room, f) > 0) {
		/* "... - TYPE SOURCE OPTIONS"; FUSE's types have a name behind a dot. */
		char type[64], *p = strstr(line, " - ");
		if (!p || sscanf(p + 3, "%60s", type) != 1)
			continue;
		if (strncmp(type, "fuse.", 5) == 0)
			type[4] = '\0';
		char word[66];
		(void)snprintf(word, sizeof(word), " %s ", type);
		is_plain = strstr(plain, word) != NULL;
	}
	free(line);
	return is_plain;
}

/* Counts the locks that a process holds through one descriptor: "lock: ..." lines. */
static uint64_t count_locks(int fdinfo, const char *name)
{
	forge_auto_close int fd = openat(fdinfo, name, O_RDONLY | O_CLOEXEC);
	char buf[65536];
	uint64_t n_locks = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf) - 1)) > 0) {
		buf[n] = '\0';
		for (const char *p = buf; (p = strstr(p, "lock:\t")); p++)
			n_locks++;
	}
	return n_locks;
}

int64_t forge_kernel_bytes_of_locks(const struct forge_kernel_numbers *k, int64_t enough)
{
	const int64_t one = 192; /* the smallest size that struct file_lock ever had */
	char procs[16384], path[48];
	int64_t bytes = 0;
	int dir = k->cg->v2_fd >= 0 ? k->cg->v2_fd : k->cg->memory_fd;

	if (forge_read_at(dir, "cgroup.procs", procs, sizeof(procs)) <= 0)
		return 0;
	for (char *p = procs; *p && bytes < enough; p += strspn(p, "\n")) {
		(void)snprintf(path, sizeof(path), "/proc/%ld/fdinfo", strtol(p, &p, 10));
		forge_auto_dir DIR *d = opendir(path);
		for (struct dirent *e; d && bytes < enough && (e = readdir(d));)
			if (e->d_name[0] != '.')
				bytes += one * (int64_t)count_locks(dirfd(d), e->d_name);
	}
	return bytes;
}

/* Bytes in the queues of streams: "... tx_queue:rx_queue ...", in hex. */
static int64_t bytes_in_queues(const struct forge_kernel_numbers *k, const char *file)
{
	char path[48], *line = NULL;
	size_t room = 0;
	int64_t bytes = 0;

	(void)snprintf(path, sizeof(path), "/proc/%ld/net/%s", (long)k->init, file);
	forge_auto_file FILE *f = fopen(path, "re");
	while (f && getline(&line, &room, f) > 0) {
		unsigned long tx, rx;
		if (sscanf(line, "%*s %*s %*s %*s %lx:%lx", &tx, &rx) == 2)
			bytes += (int64_t)(tx + rx);
	}
	free(line);
	return bytes;
}

/*
 * Is the run charged for much more than the bytes in its queues of streams? In a queue of
 * single bytes, 1.3 KiB that are charged are 17 pieces, each of which can pin 32 KiB.
 */
bool forge_kernel_has_thin_queues(const struct forge_kernel_numbers *k, int64_t grew)
{
	char text[8192];
	int64_t charged, in_queues;

	if (k->cg->memory_fd >= 0)
		charged = number_at(k->cg->memory_fd, "memory.kmem.tcp.usage_in_bytes");
	else
		charged =
			forge_read_at(k->cg->v2_fd, "memory.stat", text, sizeof(text)) > 0
				? (int64_t)forge_key_u64(text, "sock", 0)
				: 0;
	in_queues = bytes_in_queues(k, "tcp") + bytes_in_queues(k, "tcp6");
	return charged > 64 << 10 && in_queues > 0 && in_queues < charged / 8 &&
	       charged * 400 > grew;
}

void forge_kernel_numbers_open(struct forge_kernel_numbers *k, struct forge_cgroup *cg,
			       pid_t init)
{
	*k = (struct forge_kernel_numbers){ .cg = cg,
					    .init = init,
					    .zoneinfo = -1,
					    .cpu_stat = -1,
					    .arcstats = -1,
					    .root_kernel = -1 };
	k->meminfo = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
}

void forge_kernel_numbers_open_rest(struct forge_kernel_numbers *k)
{
	const int flags = O_RDONLY | O_CLOEXEC;
	bool is_v1 = k->cg->memory_fd >= 0;

	k->zoneinfo = open("/proc/zoneinfo", flags);
	k->arcstats = open("/proc/spl/kstat/zfs/arcstats", flags);
	k->cpu_stat = k->cg->v2_fd < 0 ? -1 : openat(k->cg->v2_fd, "cpu.stat", flags);
	k->root_kernel = open(is_v1 ? "/sys/fs/cgroup/memory/memory.kmem.usage_in_bytes"
				    : "/sys/fs/cgroup/memory.stat",
			      flags);
}

void forge_kernel_numbers_close(struct forge_kernel_numbers *k)
{
	int fds[] = { k->meminfo, k->zoneinfo, k->cpu_stat, k->arcstats, k->root_kernel };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
