/* SPDX-License-Identifier: Apache-2.0 */
/* Errors with their place in a file, and the origins of values. */
#include "config/loader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "base/strv.h"
#include "base/yaml.h"
#include "config/config.h"

int forge_loader_fail(const struct forge_loader *ld, const struct forge_yaml *node,
		      const char *path, struct forge_error *err, const char *fmt, ...)
{
	char text[sizeof(err->msg)];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return forge_fail_at(err, ld->name, node->line, node->column, "%s: %s", path,
			     text);
}

int forge_loader_oom(struct forge_error *err)
{
	return forge_fail(err, ENOMEM, "read configuration: out of memory");
}

FORGE_PRINTF(4, 5)
static size_t append(char *buf, size_t size, size_t n, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int more = vsnprintf(buf + n, size - n, fmt, ap);
	va_end(ap);
	if (more < 0)
		return n;
	return (size_t)more < size - n ? n + (size_t)more : size - 1;
}

const char *forge_describe_unknown(char buf[FORGE_UNKNOWN_MAX], const char *what,
				   const char *word, const char *const *words, size_t n)
{
	const char *near = forge_near_miss(word, words, n);
	size_t len = append(buf, FORGE_UNKNOWN_MAX, 0, "%s '%.64s' (%s", what, word,
			    n ? "have: " : "there are none");

	for (size_t i = 0; i < n; i++)
		len = append(buf, FORGE_UNKNOWN_MAX, len, "%s%s", i ? ", " : "",
			     words[i]);
	len = append(buf, FORGE_UNKNOWN_MAX, len, ")");
	if (near)
		(void)append(buf, FORGE_UNKNOWN_MAX, len, "; did you mean '%s'?", near);
	return buf;
}

const struct forge_origin *forge_config_origin(const struct forge_config *c,
					       const char *key)
{
	for (size_t i = 0; i < c->n_origins; i++)
		if (strcmp(c->origins[i].key, key) == 0)
			return &c->origins[i];
	return NULL;
}

static struct forge_origin *origin_slot(struct forge_config *c, const char *key)
{
	for (size_t i = 0; i < c->n_origins; i++)
		if (strcmp(c->origins[i].key, key) == 0)
			return &c->origins[i];
	struct forge_origin *grown =
		reallocarray(c->origins, c->n_origins + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	c->origins = grown;
	grown[c->n_origins] = (struct forge_origin){ .key = strdup(key) };
	return grown[c->n_origins].key ? &grown[c->n_origins++] : NULL;
}

/* The value as written if it is a scalar; else only whether it is a map or a list. */
static char *written(const struct forge_yaml *node)
{
	return strdup(node->type == FORGE_YAML_SCALAR ? node->scalar
		      : node->type == FORGE_YAML_LIST ? "(a list)"
						      : "(a map)");
}

int forge_loader_note(const struct forge_loader *ld, const char *key,
		      const struct forge_yaml *node, struct forge_error *err)
{
	struct forge_origin *o = origin_slot(ld->config, key);

	if (!o)
		return forge_loader_oom(err);
	free(o->value);
	free(o->from);
	o->value = written(node);
	o->from = forge_asprintf("%s:%u", ld->name, (unsigned)node->line);
	return o->value && o->from ? 0 : forge_loader_oom(err);
}

int forge_loader_hold_back(const struct forge_loader *ld, const char *key,
			   const struct forge_yaml *node, struct forge_error *err)
{
	const struct forge_origin *o = forge_config_origin(ld->config, key);
	forge_auto_free char *wish = written(node);

	if (!wish ||
	    forge_strv_addf(&ld->config->held_back, "%s:%u: %s: %s is above %s of %s",
			    ld->name, (unsigned)node->line, key, wish,
			    o ? o->value : "the cap", o ? o->from : "an outer file") < 0)
		return forge_loader_oom(err);
	return 0;
}
