/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attacker. Each probe tries one thing that a sandbox must prevent, and prints the kernel's
 * answer. It does not trust forge: it is linked statically, includes none of forge's code, and
 * makes each attack for real. The test that runs the probe checks effects that are only visible
 * outside.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A probe's answer, which is also its exit status; one line is printed before. */
enum probe_answer {
	PROBE_HELD,  /* "held: ...": the attack failed */
	PROBE_BROKE, /* "broke: ...": the attack worked */
	PROBE_SKIP,  /* "skip: ...": it cannot be tried here */
};

struct probe {
	const char *name;
	const char *about; /* one line, with its arguments */
	/* argv[0] is the first argument after the name; argv[argc] is NULL. */
	int (*run)(int argc, char **argv);
};

/* One table for each group; each ends with a NULL name. */
extern const struct probe probe_fs[], probe_priv[], probe_net[], probe_proc[], probe_budget[],
	probe_disk[], probe_syscall[], probe_kernel[], probe_held[];

/* Print the line and return the answer: `return held("...")`. */
int held(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int broke(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * For a probe with many attempts. Every attempt must fail; note() collects the results and
 * judge() turns them into the answer.
 */
struct tally {
	unsigned n_held, n_broke;
	char text[1500]; /* of the broken ones if there are any, else of the held ones */
};
/* rc is the attempt's return value (negative: it failed) and errno says why. */
void note(struct tally *t, const char *what, long rc);
/* The same where the caller knows the answer. */
void note_as(struct tally *t, bool is_held, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int judge(const struct tally *t);

/* "EPERM"; a number where there is no name. Valid until the next call. */
const char *error_name(int error);
/* Is this a run of forge? Some attempts are too dangerous for anywhere else. */
bool is_inside(void);
/* The number in argv[i], or fallback where there is none. */
long number_arg(int argc, char **argv, int i, long fallback);
/* Microseconds on the monotonic clock. */
long long now_usec(void);

/*
 * For attacks on the disk: writes one more MiB, slowly enough for a watcher that looks every 20
 * ms.
 */
bool add_mib(int fd);
/* The answer after n of max MiB; errno is that of the failed write. */
int filled(long n, long max, const char *how);
