/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build tool: turns the policy tables into C arrays of BPF instructions. The machine that
 * builds decides the ABI; a cross build runs this under the exe wrapper.
 */
#include <errno.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sandbox/seccomp_policy.h"

static void die(const char *what, const char *name, int rc)
{
	fprintf(stderr, "gen-filter: %s %s: error %d\n", what, name, rc);
	exit(1);
}

/* -1: this ABI has no such call. */
static int resolve(const struct forge_syscall_name *s)
{
	int nr = seccomp_syscall_resolve_name(s->name);

	if (nr == __NR_SCMP_ERROR)
		return s->number ? s->number : -1;
	return nr < 0 ? -1 : nr;
}

#define LOOK_AT_ARGUMENTS SCMP_ACT_TRACE(1)

static bool has_argument_rules(const char *name)
{
	if (strcmp(name, "socket") == 0 || strcmp(name, "socketpair") == 0)
		return true;
	for (const struct forge_syscall_arg *a = forge_syscalls_args; a->name; a++)
		if (strcmp(a->name, name) == 0)
			return true;
	return false;
}

static void add_names(scmp_filter_ctx ctx, const struct forge_syscall_name *s,
		      uint32_t action)
{
	for (; s->name; s++) {
		int nr = resolve(s);
		if (nr < 0)
			continue;
		bool more = action == SCMP_ACT_ALLOW && has_argument_rules(s->name);
		int rc = seccomp_rule_add(ctx, more ? LOOK_AT_ARGUMENTS : action, nr, 0);
		if (rc < 0)
			die("rule for", s->name, rc);
	}
}

static bool is_family_allowed(int family)
{
	for (const int *f = forge_socket_families; *f >= 0; f++)
		if (*f == family)
			return true;
	return false;
}

/*
 * Compared as 64 bits while the kernel looks at 32: garbage above them makes a family
 * "greater than the last" and is refused with the rest.
 */
static void add_family_rules(scmp_filter_ctx ctx, int call, const char *name)
{
	const uint32_t no = SCMP_ACT_ERRNO(EAFNOSUPPORT);
	int last = 0, rc = 0;

	for (const int *f = forge_socket_families; *f >= 0; f++)
		last = *f > last ? *f : last;
	for (int f = 0; f < last && rc == 0; f++)
		if (!is_family_allowed(f))
			rc = seccomp_rule_add(ctx, no, call, 1,
					      SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)f, 0));
	if (rc == 0)
		rc = seccomp_rule_add(ctx, no, call, 1,
				      SCMP_A0(SCMP_CMP_GT, (scmp_datum_t)last, 0));
	/* netlink: NETLINK_ROUTE (0) is how libc lists interfaces; no other protocol */
	if (rc == 0)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), call, 2,
				      SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0),
				      SCMP_A2(SCMP_CMP_NE, 0, 0));
	if (rc < 0)
		die("rule for", name, rc);
}

static void add_args(scmp_filter_ctx ctx)
{
	for (const struct forge_syscall_arg *a = forge_syscalls_args; a->name; a++) {
		int nr = seccomp_syscall_resolve_name(a->name);
		struct scmp_arg_cmp cmp[] = {
			{ a->arg, SCMP_CMP_MASKED_EQ, a->mask, a->match },
			{ a->arg2, SCMP_CMP_MASKED_EQ, a->mask2, a->match2 },
		};
		if (nr < 0)
			continue; /* not on this ABI */
		int rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint32_t)a->error), nr,
						a->mask2 ? 2 : 1, cmp);
		if (rc < 0)
			die("argument rule for", a->name, rc);
	}
	add_family_rules(ctx, SCMP_SYS(socket), "socket");
	add_family_rules(ctx, SCMP_SYS(socketpair), "socketpair");
}

static size_t export(scmp_filter_ctx ctx, const char *name, struct sock_filter *ret)
{
	int fd = memfd_create("bpf", 0);

	if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		die("export", name, errno);
	ssize_t len = read(fd, ret, BPF_MAXINSNS * sizeof(*ret));
	if (len <= 0)
		die("size of", name, (int)len);
	close(fd);
	return (size_t)len / sizeof(*ret);
}

/*
 * One program of both: where the first says "look at the arguments" (a TRACE return nobody
 * else uses) it goes on into the second. libseccomp cannot express that itself, and two
 * filters would cost every start, and every call they look at, twice.
 */
static void emit(scmp_filter_ctx calls, scmp_filter_ctx args)
{
	static struct sock_filter all[2 * BPF_MAXINSNS];
	size_t n = export(calls, "calls", all);
	size_t m = export(args, "args", all + n);
	size_t joined = 0;

	if (n + m > BPF_MAXINSNS)
		die("size of", "both", (int)(n + m));
	for (size_t i = 0; i < n; i++)
		if (all[i].code == (BPF_RET | BPF_K) && all[i].k == LOOK_AT_ARGUMENTS) {
			all[i] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA,
							      (uint32_t)(n - i - 1));
			joined++;
		}
	if (joined == 0)
		die("join", "both", 0);
	printf("static struct sock_filter forge_filter[] = {\n");
	for (size_t i = 0; i < n + m; i++)
		printf("\t{ 0x%04x, %u, %u, 0x%08x },\n", all[i].code, all[i].jt,
		       all[i].jf, all[i].k);
	printf("};\n");
}

static scmp_filter_ctx new_filter(uint32_t action, const char *name)
{
	scmp_filter_ctx ctx = seccomp_init(action);

	if (!ctx ||
	    seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 ||
	    seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0)
		die("make", name, errno);
	return ctx;
}

int main(void)
{
	printf("/* Made by gen_filter.c from seccomp_policy.c. */\n");
	scmp_filter_ctx calls = new_filter(SCMP_ACT_ERRNO(ENOSYS), "calls");
	add_names(calls, forge_syscalls_allowed, SCMP_ACT_ALLOW);
	add_names(calls, forge_syscalls_refused, SCMP_ACT_ERRNO(EPERM));
	/* personality: ask, the default, and 32-bit uname; nothing that weakens memory layout */
	static const uint64_t personalities[] = { PER_LINUX, PER_LINUX32, 0xffffffffULL };
	for (size_t i = 0; i < 3; i++)
		if (seccomp_rule_add(calls, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
				     SCMP_A0(SCMP_CMP_EQ, personalities[i], 0)) < 0)
			die("rule for", "personality", 0);
	scmp_filter_ctx args = new_filter(SCMP_ACT_ALLOW, "args");
	add_args(args);
	emit(calls, args);
	seccomp_release(calls);
	seccomp_release(args);
	return 0;
}
