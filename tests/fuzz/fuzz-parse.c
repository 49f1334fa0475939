/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as a number, id or name: refused with a message, or legal and readable again.
 */
#include "fuzz.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"

typedef int parser(const char *s, uint64_t *ret, struct forge_error *err);

/* The value, or 0 when the text was refused. */
static uint64_t parse(parser *p, const char *s)
{
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t value = 0;
	int rc = p(s, &value, &err);

	assert(rc < 0 ? err.code == -rc && err.msg[0] && value == 0
		      : err.code == 0 && !err.msg[0] && value > 0);
	return value;
}

static void check_size(const char *s)
{
	uint64_t value = parse(forge_parse_size, s);
	char buf[FORGE_FORMAT_MAX];

	assert(strlen(forge_format_size(buf, value)) < sizeof(buf));
	assert(parse(forge_parse_size, forge_format_size_arg(buf, value)) >= value);
}

static void check_duration(const char *s)
{
	uint64_t value = parse(forge_parse_duration, s);
	char buf[FORGE_FORMAT_MAX];

	assert(strlen(forge_format_duration(buf, value)) < sizeof(buf));
	assert(parse(forge_parse_duration, forge_format_duration_arg(buf, value)) >=
	       value);
}

static void check_cpus(const char *s)
{
	uint64_t value = parse(forge_parse_cpus, s);
	char buf[FORGE_FORMAT_MAX];

	if (value > 0)
		assert(parse(forge_parse_cpus, forge_format_cpus(buf, value)) == value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	forge_auto_free char *s = malloc(size + 1);
	struct forge_error err = FORGE_ERROR_INIT;

	if (!s)
		return 0;
	if (size > 0)
		memcpy(s, data, size);
	s[size] = '\0';
	check_size(s);
	check_duration(s);
	check_cpus(s);
	(void)parse(forge_parse_count, s);
	if (forge_parse_id(s, &err) == 0)
		assert(strlen(s) <= 64 && !strstr(s, "..") && !strchr(s, '/'));
	if (forge_parse_env_name(s, size, &err) == 0)
		assert(!memchr(s, '=', size) && !memchr(s, '\0', size));
	return 0;
}
