/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for values of checks: one row for each. */
#include "config/health_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/yaml.h"
#include "config/named.h"

/* NULL: the value is legal. Else what it must be. check: the map that it is in. */
typedef const char *rule(const struct forge_yaml *check, const char *text);

/* Of "host:port,[::1]:port": is what follows each colon a number? */
static bool ports_are_numbers(const char *p, const char *end)
{
	while (p && p < end) {
		if (*p == '[') {
			p = memchr(p, ']', (size_t)(end - p));
			if (!p)
				return false;
			p++;
		} else if (*p == ':') {
			size_t n = strspn(++p, "0123456789");
			p += n;
			if (n < 1 || n > 5 || (p < end && *p != ','))
				return false;
		} else {
			p++;
		}
	}
	return true;
}

/*
 * Programs disagree where a user name and a password end that contain an @ or a slash. libpq then puts a part of the
 * password into messages, as the name of a host or as a port.
 */
static const char *check_place(const char *rest)
{
	const char *at = strchr(rest, '@');
	const char *place = at ? at + 1 : rest;

	if (at && (at != rest + strcspn(rest, "@/?#") || strchr(at + 1, '@')))
		return "has an @ or / in the wrong place: in a user name, a password and "
		       "all that follows the host write %40, %2F, %3F and %23 for @, /, "
		       "? "
		       "and #";
	for (const char *p = rest; *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 0x7f)
			return "contains a blank: write %20";
	return ports_are_numbers(place, place + strcspn(place, "/?#"))
		       ? NULL
		       : "has a port that is not a number";
}

static const char *check_http_url(const struct forge_yaml *check, const char *text)
{
	const char *rest = strncmp(text, "http://", 7) == 0    ? text + 7
			   : strncmp(text, "https://", 8) == 0 ? text + 8
							       : NULL;
	(void)check; /* the URL alone decides */
	if (!rest)
		return "must begin with http:// or https://";
	const char *problem = check_place(rest);
	const char *at = strchr(rest, '@');
	const char *place = at ? at + 1 : rest;

	return problem ? problem : strchr("/?#:", *place) ? "names no host" : NULL;
}

static const char *check_postgres_url(const struct forge_yaml *check, const char *text)
{
	const char *rest = strncmp(text, "postgresql://", 13) == 0 ? text + 13
			   : strncmp(text, "postgres://", 11) == 0 ? text + 11
								   : NULL;

	(void)check; /* the URL alone decides */
	return rest ? check_place(rest) : "must begin with postgresql:// or postgres://";
}

static const char *check_address(const struct forge_yaml *check, const char *text)
{
	char host[FORGE_HOST_MAX], port[FORGE_PORT_MAX];

	(void)check; /* the address alone decides */
	return forge_parse_address(text, host, port, NULL) == 0
		       ? NULL
		       : "must be host:port with a port from 1 to 65535; an IPv6 address "
			 "is in brackets, like [::1]:5432";
}

static const char *check_status(const struct forge_yaml *check, const char *text)
{
	unsigned long n = strtoul(text, NULL, 10);

	(void)check; /* the number alone decides */
	return n >= 100 && n <= 599 ? NULL : "must be a status from 100 to 599";
}

static const char *check_part(const struct forge_yaml *check, const char *text)
{
	(void)check; /* the value alone decides */
	return strchr(text, '%') ? NULL : "must be a part of the time, like 40%";
}

static const char *check_unit(const struct forge_yaml *check, const char *text)
{
	(void)check; /* the name alone decides */
	return strpbrk(text, "/ \t\n") ? "must be the name of one unit, like ssh.service"
				       : NULL;
}

/* It is about the tables that are named, and would check nothing. */
static const char *check_thorough(const struct forge_yaml *check, const char *text)
{
	static const char *const lists[] = { "tables", "count", "contents" };

	if (strcmp(text, "true") != 0)
		return NULL;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists); i++) {
		const struct forge_yaml *list = forge_named_find(check, lists[i]);
		if (list && list->child)
			return NULL;
	}
	return "reads the tables in tables, count and contents, and there are none";
}

static const struct {
	const char *kind, *key;
	rule *check;
} rules[] = {
	{ "http", "url", check_http_url },
	{ "http", "status", check_status },
	{ "postgres", "url", check_postgres_url },
	{ "postgres", "thorough", check_thorough },
	{ "tcp", "address", check_address },
	{ "systemd", "unit", check_unit },
	{ "memory", "max_pressure", check_part },
};

int forge_health_check_values(const struct forge_loader *ld,
			      const struct forge_yaml *node, const char *path,
			      const char *kind, struct forge_error *err)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rules); i++) {
		const struct forge_yaml *value =
			strcmp(rules[i].kind, kind) == 0
				? forge_named_find(node, rules[i].key)
				: NULL;
		const char *problem = value ? rules[i].check(node, value->scalar) : NULL;
		char full[160];

		if (!problem)
			continue;
		(void)snprintf(full, sizeof(full), "%s.%s", path, rules[i].key);
		return forge_loader_fail(ld, value, full, err, "%s", problem);
	}
	return 0;
}
