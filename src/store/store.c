/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the store: picks the backend by URL, opens it, names it in errors. */
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config-build.h"
#include "base/clock.h"
#include "store/backend.h"

static const struct forge_store_ops *const backends[] = {
	&forge_store_sqlite,
#if HAVE_POSTGRES
	&forge_store_postgres,
#endif
};

static const struct forge_store_ops *find(const char *url)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(backends); i++)
		for (const char *const *s = backends[i]->schemes; *s; s++)
			if (strncmp(url, *s, strlen(*s)) == 0)
				return backends[i];
	return NULL;
}

int forge_store_check_url(const char *url, struct forge_error *err)
{
	if (find(url))
		return 0;
	return forge_fail(err, EINVAL,
			  "unknown store '%.64s' (have: sqlite:/path/to/file, "
			  "postgresql://user@host/database)",
			  url);
}

char *forge_store_display(const char *url)
{
	char *s = strdup(url);
	char *at = s ? strrchr(s, '@') : NULL;
	char *user = at ? strstr(s, "://") : NULL;
	char *colon = user ? strchr(user + 3, ':') : NULL;

	if (colon && colon < at)
		memmove(colon, at, strlen(at) + 1);
	/* also sslpassword=, and repeated parameters */
	for (char *p = s; p && (p = strstr(p, "password="));) {
		size_t len = strcspn(p, "&");
		memmove(p, p + len, strlen(p + len) + 1);
	}
	return s;
}

int forge_store_open(const char *url, struct forge_store **ret, struct forge_error *err)
{
	const struct forge_store_ops *ops = find(url);

	if (!ops)
		return forge_store_check_url(url, err);
	struct forge_store *st = calloc(1, ops->size);
	if (!st)
		return forge_fail(err, ENOMEM, "out of memory");
	st->ops = ops;
	int rc = ops->open(st, url, err);
	if (rc == 0)
		rc = forge_store_migrate(st, 0, err);
	if (rc < 0) {
		forge_store_close(st);
		return forge_wrap(err, rc, "open the store");
	}
	*ret = st;
	return 0;
}

void forge_store_tidy(struct forge_store *st)
{
	if (st->ops->tidy)
		st->ops->tidy(st);
	/* It is the turn of one in a few dozen processes, which need not agree on that. */
	if (forge_now_usec() % 32 == 0 && forge_store_wants_fold(st))
		(void)!forge_store_fold(st, NULL); /* the next one tries again */
}

bool forge_store_has_moved(struct forge_store *st)
{
	return st->ops->has_moved && st->ops->has_moved(st);
}

void forge_store_close(struct forge_store *st)
{
	if (!st)
		return;
	st->ops->close(st);
	free(st);
}
