/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a request: its first line is the target, the second one the header Range, the third one Host, the rest is the body. What is
 * accepted keeps its promises: parts lie in the buffer and hold no NUL, a range is inside, a body becomes words of which none
 * is an option that nobody allowed.
 */
#include "fuzz.h"

#include <assert.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/strv.h"
#include "server/body.h"
#include "server/target.h"
#include "server/utf8.h"

static void check_target(const char *raw)
{
	static struct forge_target t;
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t n;

	if (forge_target_parse(raw, &t, &err) < 0) {
		assert(err.code && err.msg[0]);
		return;
	}
	assert(t.n_segments <= FORGE_SEGMENTS_MAX && t.n_query <= FORGE_QUERY_MAX);
	for (size_t i = 0; i < t.n_segments; i++)
		assert(t.segments[i] >= t.text &&
		       t.segments[i] < t.text + sizeof(t.text) &&
		       memchr(t.segments[i], '\0',
			      (size_t)(t.text + sizeof(t.text) - t.segments[i])));
	for (size_t i = 0; i < t.n_query; i++) {
		assert(forge_target_flag(&t, t.query[i].name) ||
		       !forge_target_flag(&t, t.query[i].name));
		if (forge_target_number(&t, t.query[i].name, 100, 5, &n, NULL) == 0)
			assert(n <= 100);
	}
	const char *params[2] = { NULL };
	if (forge_target_matches(&t, "/api/v1/runs/{}/logs/{}", params, 2))
		assert(*params[0] && *params[1] && t.n_segments == 6);
	if (forge_target_matches(&t, "/api/v1/runs", params, 2))
		assert(t.n_segments == 3);
}

static void check_range(const char *text)
{
	for (uint64_t size = 0; size < 3; size++) {
		uint64_t from = 0, len = 0;
		if (forge_range_parse(text, size, &from, &len) == 1)
			assert(len > 0 && from < size && len <= size - from);
	}
}

static void check_body(const char *text, size_t len)
{
	forge_auto_strv struct forge_strv words = { 0 };
	forge_auto_json json_t *body = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
	struct forge_error err = FORGE_ERROR_INIT;

	if (!json_is_object(body) || forge_body_submit(body, &words, &err) < 0)
		return;
	assert(strcmp(words.v[0], "submit") == 0);
	size_t i = 1;
	for (; i < words.n && strcmp(words.v[i], "--") != 0; i++)
		assert(strncmp(words.v[i], "--", 2) == 0 &&
		       strncmp(words.v[i], "--config", 8) != 0 &&
		       strncmp(words.v[i], "--store", 7) != 0);
	assert(i + 1 < words.n);
}

static void check_utf8(const char *text, size_t len)
{
	forge_auto_free char *to = malloc(3 * len + 1);
	size_t n;

	if (!to)
		return;
	assert(forge_utf8_copy((const unsigned char *)text, len, true, to, &n) == len);
	json_t *j = json_stringn(to, n); /* checks that it is UTF-8 */
	assert(j);
	json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	forge_auto_free char *s = malloc(size + 1);
	char *line[3], *at;

	if (!s)
		return 0;
	if (size > 0)
		memcpy(s, data, size);
	s[size] = '\0';
	at = s;
	check_utf8(s, size);
	for (int i = 0; i < 3; i++) {
		char *end = strchrnul(at, '\n');
		line[i] = at;
		at = *end ? end + 1 : end;
		*end = '\0';
	}
	check_target(line[0]);
	check_range(line[1]);
	if (forge_host_is_ours(line[2], NULL, 0))
		assert(!strchr(line[2], '@') && !strchr(line[2], '/'));
	check_body(at, size - (size_t)(at - s));
	return 0;
}
