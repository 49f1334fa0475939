/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build tool: turns the policy tables into C arrays of BPF instructions. The machine that
 * builds decides the ABI; a cross build runs this under the exe wrapper.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sandbox/gen_rules.h"
#include "sandbox/seccomp_policy.h"

/* -1: this ABI has no such call. */
static int resolve(const struct forge_syscall_name *s)
{
	int nr = seccomp_syscall_resolve_name(s->name);

	if (nr == __NR_SCMP_ERROR)
		return s->number ? s->number : -1;
	return nr < 0 ? -1 : nr;
}

/*
 * Return values that are not used otherwise. They mark where the program of another part goes
 * on; jump_instead() replaces them.
 */
#define LOOK_AT_PERSONA SCMP_ACT_TRACE(2)

#define LOOK_AT_LIST(i)	 SCMP_ACT_TRACE((uint16_t)(16 + (i)))
#define LOOK_AT_RULES(i) SCMP_ACT_TRACE((uint16_t)(32 + (i)))

/* Index of the list of allowed arguments that a call has; -1: none. */
static int list_of(const char *name)
{
	for (int i = 0; forge_call_lists[i].name; i++)
		if (strcmp(forge_call_lists[i].name, name) == 0)
			return i;
	return -1;
}

#define MAX_RULED 64

/*
 * Calls that are refused for some arguments. The rule of prlimit64 is in the code, not in the
 * table.
 */
static const char *ruled[MAX_RULED];

static int rules_of(const char *name)
{
	for (int i = 0; i < MAX_RULED && ruled[i]; i++)
		if (strcmp(ruled[i], name) == 0)
			return i;
	return -1;
}

static void list_ruled(void)
{
	int n = 0;

	ruled[n++] = "prlimit64";
	for (const struct forge_syscall_arg *a = forge_syscalls_args; a->name; a++) {
		if (rules_of(a->name) >= 0)
			continue;
		if (n == MAX_RULED)
			forge_gen_die("rules for", a->name, n);
		ruled[n++] = a->name;
	}
}

static void add_names(scmp_filter_ctx ctx, const struct forge_syscall_name *s,
		      uint32_t action)
{
	for (; s->name; s++) {
		int nr = resolve(s);
		if (nr < 0)
			continue;
		int list = list_of(s->name);
		uint32_t then = action;
		if (action == SCMP_ACT_ALLOW && list >= 0)
			then = LOOK_AT_LIST(list);
		else if (action == SCMP_ACT_ALLOW && rules_of(s->name) >= 0)
			then = LOOK_AT_RULES(rules_of(s->name));
		int rc = seccomp_rule_add(ctx, then, nr, 0);
		if (rc < 0)
			forge_gen_die("rule for", s->name, rc);
	}
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
		uint32_t action = a->error < 0 ? FORGE_SLOT_MARK(-1 - a->error)
					       : SCMP_ACT_ERRNO((uint32_t)a->error);
		int rc = seccomp_rule_add_array(ctx, action, nr, a->mask2 ? 2 : 1, cmp);
		if (rc < 0)
			forge_gen_die("argument rule for", a->name, rc);
	}
	/*
	 * The same as setrlimit() of RLIMIT_CORE. A call without a new limit only reads, and is
	 * allowed.
	 */
	int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(prlimit64), 2,
				  SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffU, RLIMIT_CORE),
				  SCMP_A2(SCMP_CMP_NE, 0, 0));
	if (rc < 0)
		forge_gen_die("argument rule for", "prlimit64", rc);
}

static size_t export(scmp_filter_ctx ctx, const char *name, struct sock_filter *ret)
{
	int fd = memfd_create("bpf", 0);

	if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		forge_gen_die("export", name, errno);
	ssize_t len = read(fd, ret, BPF_MAXINSNS * sizeof(*ret));
	if (len <= 0)
		forge_gen_die("size of", name, (int)len);
	close(fd);
	return (size_t)len / sizeof(*ret);
}

/* ---- shortens a program that only looks at the number of the call ---- */

#define MAX_RANGES 1024

/* All calls from this number up to the next range get one answer. */
struct range {
	uint32_t start, answer;
};

/* The answer of a program that does not look at arguments. */
static uint32_t answer_to(const struct sock_filter *prog, size_t n, uint32_t arch,
			  uint32_t nr)
{
	struct seccomp_data d = { .nr = (int)nr, .arch = arch };

	return forge_gen_run(prog, n, &d);
}

static int by_number(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return a < b ? -1 : a > b;
}

/* The answers change only at the constants that the program compares with, and right after them. */
static size_t find_ranges(const struct sock_filter *prog, size_t n, uint32_t arch,
			  struct range *ret)
{
	static uint32_t edges[2 * BPF_MAXINSNS + 1];
	size_t n_edges = 1, n_ranges = 0;

	for (size_t i = 0; i < n; i++)
		if (BPF_CLASS(prog[i].code) == BPF_JMP &&
		    prog[i].code != (BPF_JMP | BPF_JA)) {
			edges[n_edges++] = prog[i].k;
			edges[n_edges++] = prog[i].k + 1;
		}
	qsort(edges, n_edges, sizeof(edges[0]), by_number);
	for (size_t i = 0; i < n_edges; i++) {
		uint32_t answer = answer_to(prog, n, arch, edges[i]);
		if (n_ranges > 0 && ret[n_ranges - 1].answer == answer)
			continue;
		if (n_ranges == MAX_RANGES)
			forge_gen_die("ranges in", "calls", (int)n_ranges);
		ret[n_ranges++] = (struct range){ edges[i], answer };
	}
	return n_ranges;
}

/*
 * Makes a binary search over the ranges; the number of the call is loaded. Returns how many
 * instructions it wrote.
 */
static size_t make_tree(const struct range *r, size_t n, struct sock_filter *ret)
{
	size_t half = n / 2;

	if (n == 1) {
		ret[0] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, r[0].answer);
		return 1;
	}
	size_t left = make_tree(r, half, ret + 1);
	if (left > UINT8_MAX)
		forge_gen_die("jump in", "calls", (int)left);
	ret[0] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, r[half].start,
					      (uint8_t)left, 0);
	return 1 + left + make_tree(r + half, n - half, ret + 1 + left);
}

/*
 * libseccomp compares with each number that it was given, but neighbours with the same answer
 * can share a comparison. The kernel translates and compiles the program at every start, so a
 * short one saves time.
 */
static size_t shorten(struct sock_filter *prog, size_t n)
{
	static struct sock_filter made[2 * MAX_RANGES + 4];
	static struct range ranges[MAX_RANGES];
	uint32_t arch = seccomp_arch_native();
	size_t n_ranges = find_ranges(prog, n, arch, ranges);
	const struct sock_filter head[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arch, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SCMP_ACT_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
	};

	memcpy(made, head, sizeof(head));
	size_t m = 4 + make_tree(ranges, n_ranges, made + 4);
	for (size_t i = 0; i < n_ranges; i++)
		for (uint32_t d = 0; d < 3; d++) {
			uint32_t nr = ranges[i].start + d - 1;
			if (answer_to(prog, n, arch, nr) !=
				    answer_to(made, m, arch, nr) ||
			    answer_to(prog, n, ~arch, nr) !=
				    answer_to(made, m, ~arch, nr))
				forge_gen_die("short form of", "calls", (int)nr);
		}
	memcpy(prog, made, m * sizeof(*made));
	return m;
}

/* Replaces each return of answer in all[0..n) by a jump to all[to]. */
static void jump_instead(struct sock_filter *all, size_t n, uint32_t answer, size_t to)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++)
		if (all[i].code == (BPF_RET | BPF_K) && all[i].k == answer) {
			all[i] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA,
							      (uint32_t)(to - i - 1));
			found++;
		}
	if (found == 0)
		forge_gen_die("join", "programs", (int)to);
}

/* Prints which instructions return an answer that is decided at the start of a run. */
static void emit_marks(const struct sock_filter *all, size_t n)
{
	printf("static const struct { unsigned short at, slot; } forge_filter_marks[] = "
	       "{\n");
	for (size_t i = 0; i < n; i++)
		for (unsigned s = 0; s < FORGE_SLOT_COUNT; s++)
			if (all[i].code == (BPF_RET | BPF_K) &&
			    all[i].k == FORGE_SLOT_MARK(s))
				printf("\t{ %zu, %u },\n", i, s);
	printf("};\n");
}

/*
 * Joins all parts into one program. libseccomp cannot express that a call's arguments are
 * looked at only where the call itself is allowed, and several filters would multiply the cost
 * of every start and of every call that they look at.
 */
static void emit(scmp_filter_ctx calls, scmp_filter_ctx args, scmp_filter_ctx persona)
{
	static struct sock_filter all[3 * BPF_MAXINSNS], theirs[BPF_MAXINSNS];
	size_t n = shorten(all, export(calls, "calls", all));
	size_t n_theirs = export(args, "args", theirs);
	size_t len = n + export(persona, "personality", all + n);

	jump_instead(all, n, LOOK_AT_PERSONA, n);
	for (int i = 0; i < MAX_RULED && ruled[i]; i++) {
		if (seccomp_syscall_resolve_name(ruled[i]) < 0)
			continue; /* not on this ABI */
		size_t made = forge_gen_rules(ruled[i], all + len);
		forge_gen_compare(ruled[i], all + len, made, theirs, n_theirs);
		jump_instead(all, n, LOOK_AT_RULES(i), len);
		len += made;
	}
	for (size_t i = 0; forge_call_lists[i].name; i++) {
		jump_instead(all, n, LOOK_AT_LIST(i), len);
		len += forge_gen_list(&forge_call_lists[i], all + len);
	}
	if (len > BPF_MAXINSNS)
		forge_gen_die("size of", "all", (int)len);
	printf("static struct sock_filter forge_filter[] = {\n");
	for (size_t i = 0; i < len; i++)
		printf("\t{ 0x%04x, %u, %u, 0x%08x },\n", all[i].code, all[i].jt,
		       all[i].jf, all[i].k);
	printf("};\n");
	emit_marks(all, len);
}

static scmp_filter_ctx new_filter(uint32_t action, const char *name)
{
	scmp_filter_ctx ctx = seccomp_init(action);

	if (!ctx ||
	    seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 ||
	    seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0)
		forge_gen_die("make", name, errno);
	return ctx;
}

int main(void)
{
	printf("/* Made by gen_filter.c from seccomp_policy.c. */\n");
	list_ruled();
	scmp_filter_ctx calls = new_filter(SCMP_ACT_ERRNO(ENOSYS), "calls");
	add_names(calls, forge_syscalls_allowed, SCMP_ACT_ALLOW);
	add_names(calls, forge_syscalls_refused, SCMP_ACT_ERRNO(EPERM));
	if (seccomp_rule_add(calls, LOOK_AT_PERSONA, SCMP_SYS(personality), 0) < 0)
		forge_gen_die("rule for", "personality", 0);
	/*
	 * personality: reading it, the default, and 32-bit uname; nothing that weakens the
	 * memory layout
	 */
	static const uint64_t personalities[] = { PER_LINUX, PER_LINUX32, 0xffffffffULL };
	scmp_filter_ctx persona = new_filter(SCMP_ACT_ERRNO(ENOSYS), "personality");
	for (size_t i = 0; i < 3; i++)
		if (seccomp_rule_add(persona, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
				     SCMP_A0(SCMP_CMP_EQ, personalities[i], 0)) < 0)
			forge_gen_die("rule for", "personality", 0);
	scmp_filter_ctx args = new_filter(SCMP_ACT_ALLOW, "args");
	add_args(args);
	emit(calls, args, persona);
	seccomp_release(calls);
	seccomp_release(args);
	seccomp_release(persona);
	return 0;
}
