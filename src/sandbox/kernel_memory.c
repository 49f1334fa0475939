/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the kernel memory that nobody is charged for; see kernel_memory.h. */
#include "sandbox/kernel_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define MIB (1LL << 20)
/* Growth of the whole number that is looked into; its own noise is a few MiB. */
#define SUSPICIOUS (32 * MIB)
/* Growth of the rough number for which the exact one, which costs more, is worth asking. */
#define NOTEWORTHY (16 * MIB)
/* No kernel hands out memory faster; a run with less CPU time than that takes is not the cause. */
#define BYTES_PER_USEC 8000
/* Looks while the run uses the kernel, and while it does not. */
#define BUSY_USEC 20000
#define IDLE_USEC 50000
/* CPU time in the kernel between two looks that are worth their cost. */
#define WORTH_USEC 3000
/* How long a run is stopped, and let go, at a time; longer where the number grew slowly. */
#define SHORT_USEC   4000
#define LONG_USEC    50000
#define LONGEST_USEC 400000
#define SHORT_ROUNDS 5
#define LONG_ROUNDS  3
/* Rounds that must each look like its doing: one can be chance. */
#define SHORT_ALIKE 3
#define LONG_ALIKE  2
/* What a long moment should show, if the run is the cause. */
#define SHOWN (4 * MIB)
/* The number wavers by this much by itself. */
#define NOISE (2 * MIB)
/* Growth with no opinion but with signs of guilt, so many times within so long, is no chance. */
#define STRIKES	     2
#define STRIKES_USEC 60000000ULL

enum phase { WATCHING, STOPPED, MOVING };

struct forge_kernel_memory {
	struct forge_cgroup *cg;
	pid_t init;
	int meminfo, zoneinfo, cpu_stat, arcstats;
	int root_kernel; /* what all cgroups are charged for kernel memory, -1: unknown */
	enum phase phase;
	int64_t rough_base, base; /* the lowest numbers so far */
	uint64_t base_usec,
		base_system_usec; /* the time, and CPU time in the kernel, of that */
	uint64_t moment_usec;
	uint64_t waiting_usec; /* since when for its turn, 0: it does not */
	uint64_t looked_usec, looked_system_usec;
	int64_t phase_start; /* the number when the phase began */
	uint64_t phase_usec;
	int64_t grew_stopped; /* in the moment before this one */
	uint64_t usec_stopped;
	struct forge_memory_trial trial;
	bool is_strict, knows_strict;
	unsigned strikes;
	uint64_t strike_usec;
};

/* ---- numbers ---- */

static char *read_whole(int fd, char *buf, size_t size)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, buf, size - 1, 0);

	buf[n > 0 ? n : 0] = '\0';
	return buf;
}

/* "Key:   N kB" of meminfo, in bytes; 0 where this kernel has no such line. */
static int64_t kib(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	return p ? strtoll(p + strlen(key), NULL, 10) * 1024 : 0;
}

/* All memory that is neither free nor a process's nor a cache's. Zswap holds what processes had. */
static int64_t rough_number(const struct forge_kernel_memory *k)
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

/* Free pages in the lists of the CPUs, which nobody counts as free. "count: N" in pages. */
static int64_t pages_in_lists(const struct forge_kernel_memory *k)
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

static int64_t number_at(int dir, const char *file)
{
	uint64_t n;

	return dir >= 0 && forge_read_u64_at(dir, file, &n) == 0 ? (int64_t)n : 0;
}

/*
 * What this run is charged for and is neither a process's memory nor a cache's: the kernel's own,
 * and pages that only the kernel still holds.
 */
static int64_t charged_to_run(const struct forge_kernel_memory *k, int64_t *ret_kernel)
{
	const struct forge_cgroup *cg = k->cg;
	char text[8192];
	bool is_v1 = cg->memory_fd >= 0;
	int dir = is_v1 ? cg->memory_fd : cg->v2_fd;

	*ret_kernel = 0;
	if (forge_read_at(dir, "memory.stat", text, sizeof(text)) <= 0)
		return 0;
	if (!is_v1) {
		*ret_kernel = (int64_t)forge_key_u64(text, "kernel", 0);
		return number_at(dir, "memory.current") -
		       (int64_t)forge_key_u64(text, "anon", 0) -
		       (int64_t)forge_key_u64(text, "file", 0);
	}
	*ret_kernel = number_at(dir, "memory.kmem.usage_in_bytes");
	return number_at(dir, "memory.usage_in_bytes") +
	       number_at(dir, "memory.kmem.tcp.usage_in_bytes") -
	       (int64_t)forge_key_u64(text, "rss", 0) -
	       (int64_t)forge_key_u64(text, "cache", 0);
}

/* What all others are charged for. */
static int64_t charged_to_others(const struct forge_kernel_memory *k, int64_t own)
{
	char text[8192];
	int64_t all;

	read_whole(k->root_kernel, text, sizeof(text));
	all = k->cg->memory_fd >= 0 ? strtoll(text, NULL, 10)
				    : (int64_t)forge_key_u64(text, "kernel", 0);
	return all > own ? all - own : 0;
}

/* ZFS has a cache of its own, which gives way like any other. "size  4  N". */
static int64_t zfs_cache(const struct forge_kernel_memory *k)
{
	char text[8192];
	const char *p = strstr(read_whole(k->arcstats, text, sizeof(text)), "\nsize ");
	char *end;

	if (!p)
		return 0;
	(void)strtoll(p + strlen("\nsize "), &end, 10); /* the type */
	return strtoll(end, NULL, 10);
}

static int64_t exact_number(const struct forge_kernel_memory *k)
{
	int64_t own_kernel, own = charged_to_run(k, &own_kernel);

	return rough_number(k) - pages_in_lists(k) - own -
	       charged_to_others(k, own_kernel) - zfs_cache(k);
}

/* CPU time that the run has used in the kernel; UINT64_MAX where the kernel does not tell. */
static uint64_t system_usec(const struct forge_kernel_memory *k)
{
	char text[1024];

	return forge_key_u64(read_whole(k->cpu_stat, text, sizeof(text)), "system_usec",
			     UINT64_MAX);
}

/* Less than a twentieth of the host's memory is to be had: then nothing is taken for harmless. */
static bool is_scarce(const struct forge_kernel_memory *k)
{
	char text[8192];

	read_whole(k->meminfo, text, sizeof(text));
	return kib(text, "MemAvailable:") < kib(text, "MemTotal:") / 20;
}

/*
 * Are all file systems of this host such whose caches the kernel counts as caches? Others keep
 * what they read in memory that looks like anybody's: there slow growth may be such a cache.
 */
static bool has_plain_file_systems(void)
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

/* ---- signs ---- */

/* How many locks a process has through one descriptor: "lock: ..." lines. */
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

/* Bytes of locks that the run's processes have; enough: more are not counted. */
static int64_t bytes_of_locks(const struct forge_kernel_memory *k, int64_t enough)
{
	const int64_t one = 192; /* struct file_lock, the smallest there was */
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

/* Bytes that wait in queues of streams: "... tx_queue:rx_queue ...", in hex. */
static int64_t bytes_in_queues(const struct forge_kernel_memory *k, const char *file)
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
 * Is the run charged for much more in queues of streams than there is in them? A queue of single
 * bytes can pin 32 KiB for each of the 17 pieces in 1.3 KiB that are charged.
 */
static bool has_thin_queues(const struct forge_kernel_memory *k, int64_t grew)
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

/* ---- the trial ---- */

enum forge_memory_opinion forge_memory_judge(const struct forge_memory_trial *t)
{
	int64_t least = t->is_slow ? 3 * SHOWN / 2 : 2 * SHOWN;
	int64_t stopped = t->grew_stopped > 0 ? t->grew_stopped : 0;
	/* Rates, multiplied by both times. */
	double rate_moving = (double)t->grew_moving * (double)t->usec_stopped;
	double rate_stopped = (double)stopped * (double)t->usec_moving;

	if (t->alike >= (t->is_slow ? LONG_ALIKE : SHORT_ALIKE) &&
	    t->grew_moving >= least && rate_moving >= 4 * rate_stopped)
		return FORGE_MEMORY_CAUSED;
	/* A little growth while it stood can be chance: then all rounds are waited for. */
	bool is_last = t->rounds >= (t->is_slow ? LONG_ROUNDS : SHORT_ROUNDS);
	if (stopped >= (is_last ? NOISE : 4 * NOISE) && 2 * rate_stopped >= rate_moving)
		return FORGE_MEMORY_NOT_CAUSED;
	return FORGE_MEMORY_UNCLEAR;
}

void forge_memory_note(struct forge_memory_trial *t, int64_t grew_stopped,
		       uint64_t usec_stopped, int64_t grew_moving, uint64_t usec_moving)
{
	double rate_moving = (double)grew_moving * (double)usec_stopped;
	double rate_stopped = (double)grew_stopped * (double)usec_moving;

	t->rounds++;
	t->alike += grew_moving >= (t->is_slow ? SHOWN / 2 : SHOWN / 4) &&
		    rate_moving >= 4 * rate_stopped;
	t->grew_stopped += grew_stopped;
	t->usec_stopped += usec_stopped;
	t->grew_moving += grew_moving;
	t->usec_moving += usec_moving;
}

static int freeze(const struct forge_kernel_memory *k, bool is_on)
{
	return k->cg->v2_fd < 0
		       ? -EOPNOTSUPP
		       : forge_write_at(k->cg->v2_fd, "cgroup.freeze", is_on ? "1" : "0");
}

static uint64_t enter(struct forge_kernel_memory *k, enum phase phase, int64_t number,
		      uint64_t now)
{
	k->phase = phase;
	k->phase_start = number;
	k->phase_usec = now;
	return now + (phase == WATCHING ? BUSY_USEC : k->moment_usec);
}

static void set_base(struct forge_kernel_memory *k, int64_t number, uint64_t now)
{
	k->base = number;
	k->base_usec = now;
	k->base_system_usec = system_usec(k);
}

/*
 * One run of the host is tried at a time: two that stop and go together would look like one. The
 * lock is on a file that every supervisor has open anyway, and that nobody inside can reach.
 */
#define TURN_USEC  2000
#define TURNS_USEC 400000

static bool has_turn(struct forge_kernel_memory *k, uint64_t now)
{
	bool is_ours = flock(k->meminfo, LOCK_EX | LOCK_NB) == 0;

	if (!is_ours && !k->waiting_usec)
		k->waiting_usec = now;
	/* Whoever holds it for so long does not mean to give it back. */
	if (!is_ours && now - k->waiting_usec < TURNS_USEC)
		return false;
	k->waiting_usec = 0;
	return true;
}

static void give_turn_back(struct forge_kernel_memory *k)
{
	k->waiting_usec = 0;
	(void)flock(k->meminfo, LOCK_UN); /* maybe not held */
}

/* Not the run, or nobody knows: what is there now is where watching goes on from. */
static uint64_t go_on(struct forge_kernel_memory *k, int64_t number, uint64_t now)
{
	(void)!freeze(k, false);
	give_turn_back(k);
	set_base(k, number, now);
	k->rough_base = rough_number(k);
	return enter(k, WATCHING, number, now);
}

static uint64_t blame(struct forge_kernel_memory *k, int64_t number, uint64_t now,
		      uint64_t *ret_taken)
{
	give_turn_back(k);
	*ret_taken = number > k->base ? (uint64_t)(number - k->base) : 1;
	return now + BUSY_USEC;
}

/*
 * The number grew, and the run could have done it, but while it was looked at nothing moved: it
 * may have stopped by itself. What it holds says more, where there is a way to see that.
 */
static uint64_t remain_unclear(struct forge_kernel_memory *k, int64_t number,
			       uint64_t now, uint64_t *ret_taken)
{
	int64_t grew = number - k->base;

	/* It went back meanwhile, by itself. */
	if (grew < SUSPICIOUS / 2)
		return go_on(k, number, now);
	if (bytes_of_locks(k, grew / 2) >= grew / 2)
		return blame(k, number, now, ret_taken);
	if (!has_thin_queues(k, grew) && !is_scarce(k))
		return go_on(k, number, now);
	if (now - k->strike_usec > STRIKES_USEC)
		k->strikes = 0;
	k->strike_usec = now;
	if (++k->strikes >= STRIKES)
		return blame(k, number, now, ret_taken);
	/* Half as much more is enough the next time. */
	uint64_t at = go_on(k, number, now);
	k->base -= SUSPICIOUS / 2;
	return at;
}

static uint64_t stop_for_a_moment(struct forge_kernel_memory *k, int64_t number,
				  uint64_t now, uint64_t *ret_taken)
{
	/* Without a cgroup that can: nothing can be said. */
	if (freeze(k, true) < 0)
		return remain_unclear(k, number, now, ret_taken);
	return enter(k, STOPPED, number, now);
}

static uint64_t begin_trial(struct forge_kernel_memory *k, int64_t number, uint64_t now,
			    uint64_t *ret_taken)
{
	k->trial = (struct forge_memory_trial){ 0 };
	k->moment_usec = SHORT_USEC;
	return stop_for_a_moment(k, number, now, ret_taken);
}

/* Moments so long that growth at the rate there was shows in them, if that can be waited for. */
static uint64_t begin_slow_trial(struct forge_kernel_memory *k, int64_t number,
				 uint64_t now, uint64_t *ret_taken)
{
	int64_t grew = number > k->base ? number - k->base : 1;
	uint64_t usec =
		(uint64_t)((double)SHOWN * (double)(now - k->base_usec) / (double)grew);

	if (usec > LONGEST_USEC)
		return remain_unclear(k, number, now, ret_taken);
	k->trial = (struct forge_memory_trial){ .is_slow = true };
	k->moment_usec = usec < LONG_USEC ? LONG_USEC : usec;
	return stop_for_a_moment(k, number, now, ret_taken);
}

static uint64_t end_round(struct forge_kernel_memory *k, int64_t number, uint64_t now,
			  uint64_t *ret_taken)
{
	struct forge_memory_trial *t = &k->trial;

	switch (forge_memory_judge(t)) {
	case FORGE_MEMORY_CAUSED:
		return blame(k, number, now, ret_taken);
	case FORGE_MEMORY_NOT_CAUSED:
		return go_on(k, number, now);
	case FORGE_MEMORY_UNCLEAR:
		break;
	}
	if (t->rounds < (t->is_slow ? LONG_ROUNDS : SHORT_ROUNDS))
		return stop_for_a_moment(k, number, now, ret_taken);
	if (!k->knows_strict) {
		k->knows_strict = true;
		k->is_strict = has_plain_file_systems();
	}
	if (t->is_slow || (!k->is_strict && !is_scarce(k)))
		return remain_unclear(k, number, now, ret_taken);
	return begin_slow_trial(k, number, now, ret_taken);
}

/* ---- watching ---- */

static uint64_t watch(struct forge_kernel_memory *k, uint64_t now, uint64_t *ret_taken)
{
	uint64_t used = system_usec(k);
	bool is_idle = used != UINT64_MAX && used - k->looked_system_usec < WORTH_USEC;

	if (is_idle && !k->waiting_usec && now - k->looked_usec < 1000000)
		return now + (used == k->looked_system_usec ? IDLE_USEC : BUSY_USEC);
	k->looked_usec = now;
	k->looked_system_usec = used;
	int64_t rough = rough_number(k);
	if (rough < k->rough_base)
		k->rough_base = rough;
	if (rough - k->rough_base < NOTEWORTHY && !k->waiting_usec)
		return now + BUSY_USEC;
	int64_t exact = exact_number(k);
	k->rough_base = rough;
	if (exact <= k->base)
		set_base(k, exact, now);
	if (exact - k->base < SUSPICIOUS) {
		if (k->waiting_usec)
			(void)!freeze(k, false);
		k->waiting_usec = 0;
		return now + BUSY_USEC;
	}
	if (used != UINT64_MAX &&
	    (int64_t)(used - k->base_system_usec) < (exact - k->base) / BYTES_PER_USEC)
		return go_on(k, exact, now);
	if (!has_turn(k, now)) {
		/* Whoever may be the cause does not go on meanwhile, nor disturb the other's trial. */
		(void)!freeze(k, true);
		return now + TURN_USEC;
	}
	return begin_trial(k, exact, now, ret_taken);
}

uint64_t forge_kernel_memory_step(struct forge_kernel_memory *k, uint64_t now,
				  uint64_t *ret_taken)
{
	*ret_taken = 0;
	if (k->phase == WATCHING)
		return watch(k, now, ret_taken);
	int64_t number = exact_number(k), grew = number - k->phase_start;
	uint64_t usec = now > k->phase_usec ? now - k->phase_usec : 1;
	if (k->phase == STOPPED) {
		k->grew_stopped = grew;
		k->usec_stopped = usec;
		/* So much in one moment, and the run stood: somebody else is waited for. */
		if (k->trial.rounds == 0 && grew >= 2 * SHOWN)
			return go_on(k, number, now);
		(void)!freeze(k, false);
		return enter(k, MOVING, number, now);
	}
	forge_memory_note(&k->trial, k->grew_stopped, k->usec_stopped, grew, usec);
	return end_round(k, number, now, ret_taken);
}

int forge_kernel_memory_new(struct forge_cgroup *cg, pid_t init,
			    struct forge_kernel_memory **ret)
{
	const int flags = O_RDONLY | O_CLOEXEC;

	*ret = NULL;
	if ((cg->memory_fd < 0 && cg->v2_fd < 0) ||
	    cg->limits.memory_bytes == FORGE_UNLIMITED)
		return 0;
	struct forge_kernel_memory *k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->cg = cg;
	k->init = init;
	k->meminfo = open("/proc/meminfo", flags);
	k->zoneinfo = open("/proc/zoneinfo", flags);
	k->arcstats = open("/proc/spl/kstat/zfs/arcstats", flags);
	k->cpu_stat = cg->v2_fd < 0 ? -1 : openat(cg->v2_fd, "cpu.stat", flags);
	k->root_kernel = open(cg->memory_fd >= 0
				      ? "/sys/fs/cgroup/memory/memory.kmem.usage_in_bytes"
				      : "/sys/fs/cgroup/memory.stat",
			      flags);
	k->looked_usec = forge_now_usec();
	set_base(k, exact_number(k), k->looked_usec);
	k->rough_base = rough_number(k);
	k->looked_system_usec = k->base_system_usec;
	*ret = k;
	return 0;
}

void forge_kernel_memory_free(struct forge_kernel_memory *k)
{
	if (!k)
		return;
	if (k->phase == STOPPED || k->waiting_usec)
		(void)!freeze(k, false);
	int fds[] = { k->meminfo, k->zoneinfo, k->cpu_stat, k->arcstats, k->root_kernel };
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(k);
}
