/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build tool, second part: turns the rules for the arguments of a call into instructions.
 * libseccomp compares 64 bits with one value at a time; the kernel looks at 32 bits, and one
 * instruction can test several of them.
 */
#include "sandbox/gen_rules.h"

#include <errno.h>
#include <linux/filter.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

_Noreturn void forge_gen_die(const char *what, const char *name, int rc)
{
	fprintf(stderr, "gen-filter: %s %s: error %d\n", what, name, rc);
	exit(1);
}

/* ---- lists of allowed arguments ---- */

static uint32_t action_of(int answer)
{
	if (answer == FORGE_ALLOW)
		return SCMP_ACT_ALLOW;
	return FORGE_SLOT_MARK(answer - 1);
}

static struct sock_filter load_argument(unsigned arg)
{
	size_t at = offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t);

	if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
		at += sizeof(uint32_t);
	return (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)at);
}

static uint8_t distance(size_t from, size_t to, const char *name)
{
	if (to < from + 1 || to - from - 1 > UINT8_MAX)
		forge_gen_die("jump in", name, (int)(to - from));
	return (uint8_t)(to - from - 1);
}

/*
 * Compares argument number arg of the list for rows[0..n), which agree in all arguments before
 * it. Returns how many instructions that takes.
 */
static size_t make_list(const struct forge_call_list *l,
			const struct forge_call_row *rows, size_t n, unsigned arg,
			struct sock_filter *ret)
{
	size_t len = 0, groups = 0;
	bool is_last = arg + 1 == l->n_args;

	if (rows[0].value[arg] == FORGE_ANY) {
		ret[0] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
						      action_of(rows[0].answer));
		return 1;
	}
	ret[len++] = load_argument(l->first_arg + arg);
	if (l->mask[arg])
		ret[len++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K,
							  l->mask[arg]);
	/* For the last argument, all values with the same answer jump to one return. */
	for (size_t i = 0; is_last && i < n; i++)
		ret[len++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)rows[i].value[arg], 0, 0);
	for (size_t i = 0; !is_last && i < n; i = groups) {
		size_t at = len++;
		for (groups = i;
		     groups < n && rows[groups].value[arg] == rows[i].value[arg];)
			groups++;
		len += make_list(l, rows + i, groups - i, arg + 1, ret + len);
		ret[at] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						       (uint32_t)rows[i].value[arg], 0,
						       distance(at, len, l->name));
	}
	ret[len++] = (struct sock_filter)BPF_STMT(
		BPF_RET | BPF_K, l->otherwise[arg]
					 ? SCMP_ACT_ERRNO((uint32_t)l->otherwise[arg])
					 : action_of(l->last_answer));
	size_t first = len - 1 - n;
	for (size_t i = 0; is_last && i < n; i++) {
		size_t to = len;
		for (size_t j = 0; j < i; j++)
			if (rows[j].answer == rows[i].answer)
				to = first + j + 1 + ret[first + j].jt;
		if (to == len)
			ret[len++] = (struct sock_filter)BPF_STMT(
				BPF_RET | BPF_K, action_of(rows[i].answer));
		ret[first + i].jt = distance(first + i, to, l->name);
	}
	return len;
}

/* ---- arguments for which a call is refused ---- */

static uint32_t action_for(int error)
{
	return error < 0 ? FORGE_SLOT_MARK(-1 - error) : SCMP_ACT_ERRNO((uint32_t)error);
}

static bool is_bit(uint64_t mask, uint64_t match)
{
	return mask == match && (mask & (mask - 1)) == 0;
}

/* All compared bits must be in the low half, the only one that the kernel looks at. */
static void check_halves(const struct forge_syscall_arg *a)
{
	if ((a->mask | a->match | a->mask2 | a->match2) > UINT32_MAX)
		forge_gen_die("high half in rule for", a->name, 0);
}

/*
 * Goes on with the next instruction when the argument matches. The caller sets the jump for
 * when it does not.
 */
static size_t make_test(unsigned arg, uint64_t mask, uint64_t match,
			struct sock_filter *ret)
{
	size_t len = 0;

	ret[len++] = load_argument(arg);
	if (is_bit(mask, match)) {
		ret[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K,
							  (uint32_t)mask, 0, 0);
		return len;
	}
	if (mask != UINT32_MAX)
		ret[len++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K,
							  (uint32_t)mask);
	ret[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						  (uint32_t)match, 0, 0);
	return len;
}

/*
 * Two rules for single bits of one argument that agree in everything else become one rule for
 * any of these bits.
 */
static bool are_alike(const struct forge_syscall_arg *a,
		      const struct forge_syscall_arg *b)
{
	return strcmp(a->name, b->name) == 0 && a->arg == b->arg &&
	       a->error == b->error && is_bit(a->mask, a->match) &&
	       is_bit(b->mask, b->match) && a->arg2 == b->arg2 && a->mask2 == b->mask2 &&
	       a->match2 == b->match2;
}

static size_t make_rule(const struct forge_syscall_arg *a, struct sock_filter *ret)
{
	size_t len = 0, second = 0;
	uint64_t bits = a->mask;

	check_halves(a);
	for (const struct forge_syscall_arg *b = forge_syscalls_args; b->name; b++)
		if (are_alike(a, b)) {
			if (b < a)
				return 0; /* an earlier rule includes it */
			bits |= b->mask;
		}
	if (a->mask2) {
		len += make_test(a->arg2, a->mask2, a->match2, ret);
		second = len; /* its jump is at second - 1 */
	}
	len += make_test(a->arg, a->mask, a->match, ret + len);
	if (is_bit(a->mask, a->match))
		ret[len - 1].k = (uint32_t)bits;
	size_t first = len - 1;
	ret[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action_for(a->error));
	ret[first].jf = distance(first, len, a->name);
	if (second)
		ret[second - 1].jf = distance(second - 1, len, a->name);
	return len;
}

/*
 * The same as setrlimit() of RLIMIT_CORE. A call without a new limit (a pointer, both halves)
 * only reads.
 */
static size_t make_prlimit(struct sock_filter *ret)
{
	const struct sock_filter code[] = {
		load_argument(1),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 0, 4),
		load_argument(2),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, load_argument(2).k ^ sizeof(uint32_t)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SCMP_ACT_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SCMP_ACT_ERRNO(0)),
	};

	memcpy(ret, code, sizeof(code));
	return sizeof(code) / sizeof(code[0]);
}

size_t forge_gen_rules(const char *name, struct sock_filter *ret)
{
	size_t len = 0;

	if (strcmp(name, "prlimit64") == 0)
		return make_prlimit(ret);
	for (const struct forge_syscall_arg *a = forge_syscalls_args; a->name; a++)
		if (strcmp(a->name, name) == 0)
			len += make_rule(a, ret + len);
	ret[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SCMP_ACT_ALLOW);
	return len;
}

uint32_t forge_gen_run(const struct sock_filter *prog, size_t n,
		       const struct seccomp_data *d)
{
	uint32_t a = 0, m[BPF_MEMWORDS] = { 0 };

	for (size_t pc = 0; pc < n; pc++) {
		const struct sock_filter *f = &prog[pc];
		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)d + f->k, sizeof(a));
			break;
		case BPF_LD | BPF_MEM:
			a = m[f->k];
			break;
		case BPF_ST:
			m[f->k] = a;
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			pc += a > f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += a >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += a & f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		default:
			forge_gen_die("instruction in", "program", f->code);
		}
	}
	forge_gen_die("end of", "program", 0);
	return 0;
}

void forge_gen_compare(const char *name, const struct sock_filter *mine, size_t n,
		       const struct sock_filter *theirs, size_t m)
{
	static const uint64_t more[] = {
		0, 1, 0x40000, ~0ULL, 0xffffffffULL, 1ULL << 32, 0x8000000000000000ULL
	};
	uint64_t values[256], n_values = 0;
	struct seccomp_data d = { .nr = seccomp_syscall_resolve_name(name),
				  .arch = seccomp_arch_native() };

	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		values[n_values++] = more[i];
	values[n_values++] = RLIMIT_CORE;
	values[n_values++] = RLIMIT_CORE | 1ULL << 40;
	for (const struct forge_syscall_arg *a = forge_syscalls_args; a->name; a++)
		if (strcmp(a->name, name) == 0 && n_values + 6 < 256) {
			values[n_values++] = a->match;
			values[n_values++] = a->match | 1ULL << 33;
			values[n_values++] = a->match ^ 1;
			values[n_values++] = a->match2;
			values[n_values++] = a->match2 | a->match;
			values[n_values++] = ~a->match;
		}
	for (int arg = 0; arg < 4; arg++)
		for (int other = 0; other < 4; other++)
			for (size_t i = 0; i < n_values; i++)
				for (size_t j = 0; j < n_values; j++) {
					memset(d.args, 0, sizeof(d.args));
					d.args[arg] = values[i];
					d.args[other] = values[j];
					if (forge_gen_run(mine, n, &d) !=
					    forge_gen_run(theirs, m, &d))
						forge_gen_die(
							"rules of libseccomp differ for",
							name, arg);
				}
}

size_t forge_gen_list(const struct forge_call_list *l, struct sock_filter *ret)
{
	size_t n = 0;

	while (l->rows[n].answer >= 0)
		n++;
	return make_list(l, l->rows, n, 0, ret);
}
