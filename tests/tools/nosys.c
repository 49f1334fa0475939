/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nosys SYSCALL[=ERRNO[:MASK]]... -- COMMAND [ARG...]: runs the command as on a kernel that
 * lacks these system calls, or in a container that refuses them: =EPERM. With a mask, in hex,
 * only when the first argument has one of its bits. =HANG: the call never returns, as where the
 * kernel itself hangs; a signal that kills ends it. Everything it starts inherits it.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANG	     (-2)
#define CANNOT_START 99 /* a status no command under test uses */

static int number_of(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} table[] = { { "ENOSYS", ENOSYS }, { "EPERM", EPERM },	  { "EACCES", EACCES },
		      { "EINVAL", EINVAL }, { "ENOSPC", ENOSPC }, { "ENOMEM", ENOMEM } };

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strcmp(table[i].name, name) == 0)
			return table[i].number;
	return strcmp(name, "HANG") == 0 ? HANG : -1;
}

static int add_rules(scmp_filter_ctx filter, int nr, uint32_t action, uint64_t mask)
{
	if (!mask)
		return seccomp_rule_add(filter, action, nr, 0);
	/* A rule compares for equality; "any of these bits" is one for each. */
	for (uint64_t bit = 1; bit; bit <<= 1) {
		if (!(mask & bit))
			continue;
		int rc = seccomp_rule_add(filter, action, nr, 1,
					  SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Takes rule apart in place. */
static int refuse(scmp_filter_ctx filter, char *rule)
{
	char *answer = strchr(rule, '=');
	char *mask = answer ? strchr(answer, ':') : NULL;

	if (mask)
		*mask++ = '\0';
	if (answer)
		*answer++ = '\0';
	int nr = seccomp_syscall_resolve_name(rule);
	int number = answer ? number_of(answer) : ENOSYS;
	if (nr == __NR_SCMP_ERROR || number == -1) {
		fprintf(stderr, "nosys: unknown %s '%s'\n",
			number == -1 ? "error" : "system call", number == -1 ? answer : rule);
		return -1;
	}
	int rc = add_rules(filter, nr,
			   number == HANG ? SCMP_ACT_NOTIFY : SCMP_ACT_ERRNO((uint32_t)number),
			   mask ? strtoull(mask, NULL, 16) : 0);
	if (rc < 0)
		fprintf(stderr, "nosys: %s: %s\n", rule, strerror(-rc));
	return rc;
}

int main(int argc, char **argv)
{
	int i = 1;
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	if (!filter)
		return CANNOT_START;
	for (; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (refuse(filter, argv[i]) < 0)
			return CANNOT_START;
	if (i + 1 >= argc) {
		fputs("usage: nosys SYSCALL[=ERRNO[:MASK]]... -- COMMAND [ARG...]\n",
		      stderr);
		return CANNOT_START;
	}
	/* Root needs no no_new_privs for a filter, and must look as it does without us. */
	(void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, geteuid() != 0);
	/* Foreign ABIs are forge's to refuse, not ours. */
	(void)seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ALLOW);
	int rc = seccomp_load(filter);
	if (rc < 0) {
		fprintf(stderr, "nosys: load: %s\n", strerror(-rc));
		return CANNOT_START;
	}
	/* Nobody ever answers what waits there, as long as somebody could. */
	int listener = seccomp_notify_fd(filter);
	if (listener >= 0 && dup(listener) < 0) /* without close-on-exec */
		return CANNOT_START;
	seccomp_release(filter);
	(void)execvp(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return CANNOT_START;
}
