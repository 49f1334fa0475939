/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of the view. A path that is not listed here, not an input and not below a
 * configured read-only root does not exist inside. /etc is picked by name because it also holds
 * secrets.
 */
#include "sandbox/view.h"

#include <stddef.h>

/* clang-format off: tables */
const char *const forge_view_system[] = {
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	/* CPU and NUMA topology: BLAS, hwloc and torch size their thread pools by it. */
	"/sys/devices/system/cpu", "/sys/devices/system/node",
	NULL,
};

const char *const forge_view_etc[] = {
	/* the linker, the alternatives that half of /usr/bin points to, time, certificates */
	"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
	"/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust",
	"/etc/crypto-policies",
	/* settings that interpreters and libraries read from /etc and break without */
	"/etc/R", "/etc/fonts", "/etc/matplotlibrc", "/etc/ImageMagick-6", "/etc/openmpi",
	"/etc/java-11-openjdk", "/etc/java-17-openjdk", "/etc/java-21-openjdk",
	"/etc/mime.types", "/etc/papersize",
	NULL,
};

const char *const forge_view_etc_net[] = {
	"/etc/resolv.conf", "/etc/gai.conf", "/etc/protocols", "/etc/services", NULL,
};

/*
 * /proc is mounted read-only as a whole; these are also unreadable. An ordinary uid cannot read
 * most of them anyway; the mask is for kernels that allow it.
 */
const char *const forge_view_proc_masks[] = {
	"/proc/acpi", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys",
	"/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
	NULL,
};

const char *const forge_view_dirs[] = { "/run", "/home", "/mnt", NULL };

const struct forge_view_text forge_view_texts[] = {
	{ "/etc/group", "root:x:0:\nforge:x:1000:\nnogroup:x:65534:\n" },
	{ "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"
				"protocols: files\nservices: files\n" },
	{ "/etc/hosts", "127.0.0.1 localhost forge\n::1 localhost ip6-localhost\n" },
	{ "/etc/hostname", "forge\n" },
	{ NULL, NULL },
};

const struct forge_view_text forge_view_dev_links[] = {
	{ "/dev/fd", "/proc/self/fd" },
	{ "/dev/stdin", "/proc/self/fd/0" },
	{ "/dev/stdout", "/proc/self/fd/1" },
	{ "/dev/stderr", "/proc/self/fd/2" },
	{ "/var/tmp", "/tmp" },
	{ NULL, NULL },
};

const struct forge_view_dev forge_view_devs[] = {
	{ "/dev/null", 3 }, { "/dev/zero", 5 }, { "/dev/full", 7 },
	{ "/dev/random", 8 }, { "/dev/urandom", 9 }, { NULL, 0 },
};
