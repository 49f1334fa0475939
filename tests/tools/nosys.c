/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nosys SYSCALL... -- COMMAND [ARG...]: runs the command as on a kernel that lacks these
 * system calls. The filter is inherited by everything it starts.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CANNOT_START 99 /* a status no command under test uses */

static int refuse(scmp_filter_ctx filter, const char *name)
{
	int nr = seccomp_syscall_resolve_name(name);

	if (nr == __NR_SCMP_ERROR) {
		fprintf(stderr, "nosys: unknown system call '%s'\n", name);
		return -1;
	}
	int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), nr, 0);
	if (rc < 0)
		fprintf(stderr, "nosys: %s: %s\n", name, strerror(-rc));
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
		fputs("usage: nosys SYSCALL... -- COMMAND [ARG...]\n", stderr);
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
	seccomp_release(filter);
	(void)execvp(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return CANNOT_START;
}
