/* SPDX-License-Identifier: Apache-2.0 */
/* The list of packages and its digest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

/*
 * Copies with control characters and the backslash as \xNN: names go into lines of locks and
 * tables.
 */
static int copy(char **to, const char *from)
{
	size_t n = 1;

	for (const char *p = from; p && *p; p++)
		n += (unsigned char)*p < ' ' || *p == 0x7f || *p == '\\' ? 4 : 1;
	char *out = *to = malloc(n);
	if (!out)
		return -ENOMEM;
	for (const char *p = from; p && *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f || *p == '\\')
			out += snprintf(out, 5, "\\x%02x", (unsigned char)*p);
		else
			*out++ = *p;
	*out = '\0';
	return 0;
}

static void free_package(struct forge_package *p)
{
	free(p->source);
	free(p->name);
	free(p->version);
	free(p->build);
	free(p->hash);
	free(p->url);
}

int forge_packages_add(struct forge_packages *p, const char *source, const char *name,
		       const char *version, const char *build, const char *hash,
		       const char *url)
{
	struct forge_package new = { .source = NULL };

	if (p->n == p->cap) {
		size_t cap = p->cap ? 2 * p->cap : 64;
		struct forge_package *grown = reallocarray(p->v, cap, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		p->v = grown;
		p->cap = cap;
	}
	if (copy(&new.source, source) < 0 || copy(&new.name, name) < 0 ||
	    copy(&new.version, version) < 0 || copy(&new.build, build) < 0 ||
	    copy(&new.hash, hash) < 0 || copy(&new.url, url) < 0) {
		free_package(&new);
		return -ENOMEM;
	}
	p->v[p->n++] = new;
	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct forge_package *x = a, *y = b;
	int rc = strcmp(x->source, y->source);

	if (rc == 0)
		rc = strcmp(x->name, y->name);
	if (rc == 0)
		rc = strcmp(x->version, y->version);
	if (rc == 0)
		rc = strcmp(x->build, y->build);
	return rc ? rc : strcmp(x->hash, y->hash);
}

void forge_packages_sort(struct forge_packages *p)
{
	if (p->n)
		qsort(p->v, p->n, sizeof(*p->v), compare);
}

/* Parts end with NUL, so that no name can look like the next part. */
const char *forge_packages_digest(struct forge_packages *p, char buf[FORGE_DIGEST_MAX])
{
	struct forge_sha256 h;

	forge_packages_sort(p);
	forge_sha256_init(&h);
	for (size_t i = 0; i < p->n; i++) {
		const struct forge_package *v = &p->v[i];
		const char *const parts[] = { v->source, v->name, v->version, v->build,
					      v->hash };
		for (size_t j = 0; j < FORGE_ARRAY_SIZE(parts); j++)
			forge_sha256_add(&h, parts[j], strlen(parts[j]) + 1);
	}
	return forge_sha256_done(&h, buf);
}

void forge_packages_done(struct forge_packages *p)
{
	for (size_t i = 0; i < p->n; i++)
		free_package(&p->v[i]);
	free(p->v);
	forge_strv_done(&p->notes);
	*p = (struct forge_packages){ .v = NULL };
}
