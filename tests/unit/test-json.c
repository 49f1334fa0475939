/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files as JSON: no two are written alike. */
#include "unit.h"

#include <string.h>

#include "base/json.h"

static void names_are_written_so(void **state)
{
	static const struct {
		const char *name, *written;
	} rows[] = {
		{ "plain", "plain" },
		{ "", "" },
		{ "\xc3\xa4", "\xc3\xa4" },
		{ "back\\slash", "back\\slash" },
		{ "back\\xslash", "back\\xslash" },
		{ "\xff", "\\xff" },
		{ "\\xff", "\\\\xff" },
		{ "\\\\xff", "\\\\\\\\xff" },
		{ "\\\xff", "\\\\\\xff" },
		{ "\\xff\xff", "\\\\xff\\xff" },
		{ "\xc3\xa4\\xe4", "\xc3\xa4\\\\xe4" },
		{ "a\\\\b", "a\\\\\\\\b" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		json_t *j = forge_json_name(rows[i].name);
		assert_string_equal(json_string_value(j), rows[i].written);
		json_decref(j);
	}
}

/* All names of up to five characters out of those that matter. */
static void no_two_names_are_written_alike(void **state)
{
	static const char letters[] = { '\\', 'x', 'f', '\xff' };
	enum { MOST = 4 + 16 + 64 + 256 + 1024 + 4096 };
	json_t *seen = json_object();
	size_t n = 0;

	(void)state;
	for (int len = 1; len <= 6; len++) {
		for (unsigned i = 0; i < 1u << (2 * len); i++) {
			char name[8] = "";
			for (int at = 0; at < len; at++)
				name[at] = letters[i >> (2 * at) & 3];
			json_t *j = forge_json_name(name);
			assert_null(json_object_get(seen, json_string_value(j)));
			json_object_set_new(seen, json_string_value(j), json_true());
			json_decref(j);
			n++;
		}
	}
	assert_int_equal(n, MOST);
	json_decref(seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_written_so),
		cmocka_unit_test(no_two_names_are_written_alike),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
