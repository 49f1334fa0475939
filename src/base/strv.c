/* SPDX-License-Identifier: Apache-2.0 */
/* String vectors; every function leaves a usable vector behind, also when it fails. */
#include "base/strv.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Makes room for one more string and the NULL after it. */
static int reserve(struct forge_strv *sv)
{
	if (sv->n + 1 < sv->cap)
		return 0;
	if (sv->cap > SIZE_MAX / 2 / sizeof(*sv->v))
		return -ENOMEM;
	size_t cap = sv->cap ? sv->cap * 2 : 8;
	char **v = realloc(sv->v, cap * sizeof(*v));
	if (!v)
		return -ENOMEM;
	sv->v = v;
	sv->cap = cap;
	sv->v[sv->n] = NULL;
	return 0;
}

int forge_strv_take(struct forge_strv *sv, char *s)
{
	if (!s || reserve(sv) < 0) {
		free(s);
		return -ENOMEM;
	}
	sv->v[sv->n++] = s;
	sv->v[sv->n] = NULL;
	return 0;
}

int forge_strv_add(struct forge_strv *sv, const char *s)
{
	return forge_strv_take(sv, strdup(s));
}

static char *format(const char *fmt, va_list ap) FORGE_PRINTF(1, 0);
static char *format(const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (len < 0)
		return NULL;
	char *s = malloc((size_t)len + 1);
	if (s)
		(void)vsnprintf(s, (size_t)len + 1, fmt, ap); /* measured above */
	return s;
}

char *forge_asprintf(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *s = format(fmt, ap);
	va_end(ap);
	return s;
}

int forge_strv_addf(struct forge_strv *sv, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	char *s = format(fmt, ap);
	va_end(ap);
	return forge_strv_take(sv, s);
}

/* The old content of dst is freed on success and stays on failure. */
int forge_strv_copy(struct forge_strv *dst, const struct forge_strv *src)
{
	forge_auto_strv struct forge_strv copy = { 0 };

	forge_strv_foreach (s, src)
		if (forge_strv_add(&copy, s) < 0)
			return -ENOMEM;
	struct forge_strv old = *dst;
	*dst = copy;
	copy = old;
	return 0;
}

static char **find_env(const struct forge_strv *sv, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < sv->n; i++)
		if (strncmp(sv->v[i], name, len) == 0 && sv->v[i][len] == '=')
			return &sv->v[i];
	return NULL;
}

int forge_strv_setenv(struct forge_strv *sv, const char *name, const char *value)
{
	char **slot = find_env(sv, name);
	char *entry = forge_asprintf("%s=%s", name, value);

	if (!slot)
		return forge_strv_take(sv, entry);
	if (!entry)
		return -ENOMEM;
	free(*slot);
	*slot = entry;
	return 0;
}

const char *forge_strv_getenv(const struct forge_strv *sv, const char *name)
{
	char **slot = find_env(sv, name);

	return slot ? *slot + strlen(name) + 1 : NULL;
}

void forge_strv_done(struct forge_strv *sv)
{
	for (size_t i = 0; i < sv->n; i++)
		free(sv->v[i]);
	free(sv->v);
	*sv = (struct forge_strv){ 0 };
}

void forge_strv_unsetenv(struct forge_strv *sv, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < sv->n; i++) {
		if (strncmp(sv->v[i], name, len) != 0 || sv->v[i][len] != '=')
			continue;
		free(sv->v[i]);
		memmove(&sv->v[i], &sv->v[i + 1],
			(sv->n - i) * sizeof(*sv->v)); /* NULL too */
		sv->n--;
		return;
	}
}
