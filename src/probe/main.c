/* SPDX-License-Identifier: Apache-2.0 */
/* forge-probe: picks the attack by name; see probe.h. */
#include "probe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct probe *const groups[] = {
	probe_fs, probe_priv, probe_net, probe_proc, probe_budget, probe_disk, probe_syscall,
	probe_kernel, probe_held,
};
#define N_GROUPS (sizeof(groups) / sizeof(groups[0]))

__attribute__((format(printf, 2, 0)))
static int say(enum probe_answer answer, const char *fmt, va_list ap)
{
	static const char *const words[] = { "held", "broke", "skip" };

	printf("%s: ", words[answer]);
	vprintf(fmt, ap);
	putchar('\n');
	fflush(stdout);
	return (int)answer;
}

#define ANSWER(name, answer)                      \
	int name(const char *fmt, ...)            \
	{                                         \
		va_list ap;                       \
                                                  \
		va_start(ap, fmt);                \
		int rc = say(answer, fmt, ap);    \
		va_end(ap);                       \
		return rc;                        \
	}
ANSWER(held, PROBE_HELD)
ANSWER(broke, PROBE_BROKE)
ANSWER(skip, PROBE_SKIP)

const char *error_name(int error)
{
	static char number[24];
	const char *name = strerrorname_np(error);

	if (name)
		return name;
	(void)snprintf(number, sizeof(number), "errno %d", error);
	return number;
}

void note_as(struct tally *t, bool is_held, const char *fmt, ...)
{
	va_list ap;

	if (!is_held && t->n_broke++ == 0)
		t->text[0] = '\0'; /* attempts that failed no longer matter */
	t->n_held += is_held;
	if (is_held && t->n_broke > 0)
		return;
	size_t len = strlen(t->text);
	if (len + 3 >= sizeof(t->text))
		return;
	if (len > 0) {
		memcpy(t->text + len, ", ", 3);
		len += 2;
	}
	va_start(ap, fmt);
	(void)vsnprintf(t->text + len, sizeof(t->text) - len, fmt, ap);
	va_end(ap);
}

void note(struct tally *t, const char *what, long rc)
{
	int error = errno;

	if (rc < 0)
		note_as(t, true, "%s %s", what, error_name(error));
	else
		note_as(t, false, "%s worked", what);
}

int judge(const struct tally *t)
{
	if (t->n_broke > 0)
		return broke("%s", t->text);
	return t->n_held > 0 ? held("%s", t->text) : skip("nothing could be tried");
}

bool is_inside(void)
{
	return getenv("FORGE_RUN_ID") != NULL;
}

long number_arg(int argc, char **argv, int i, long fallback)
{
	return i < argc ? strtol(argv[i], NULL, 10) : fallback;
}

long long now_usec(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail */
	return (long long)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int list(void)
{
	for (size_t g = 0; g < N_GROUPS; g++)
		for (const struct probe *p = groups[g]; p->name; p++)
			printf("%-16s %s\n", p->name, p->about);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "list") == 0)
		return list();
	for (size_t g = 0; g < N_GROUPS; g++)
		for (const struct probe *p = groups[g]; p->name; p++)
			if (strcmp(p->name, argv[1]) == 0)
				return p->run(argc - 2, argv + 2);
	return skip("no probe is called '%s'", argv[1]);
}
