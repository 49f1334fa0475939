/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML tree: positions, and everything that is refused on purpose. */
#include "unit.h"

#include <stdlib.h>

#include "base/yaml.h"
#include "torture.h"

static struct forge_yaml *parse_ok(const char *text)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;
	struct forge_yaml *root = NULL;

	if (forge_yaml_parse(text, strlen(text), "t.yaml", &root, &err) != 0)
		fail_msg("refused: %u:%u: %s", err.line, err.column, err.msg);
	assert_untouched(err);
	assert_non_null(root);
	return root;
}

static void refused(const char *text, size_t len, unsigned line, unsigned column,
		    const char *part)
{
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_yaml *root = NULL;

	assert_int_equal(forge_yaml_parse(text, len, "t.yaml", &root, &err), -EINVAL);
	assert_null(root);
	assert_contains(err.msg, part);
	assert_string_equal(err.file, "t.yaml");
	assert_int_equal(err.line, line);
	assert_int_equal(err.column, column);
	assert_int_equal(forge_yaml_parse(text, len, "t.yaml", &root, NULL), -EINVAL);
}

#define REFUSED(text, line, column, part)                                                \
	refused(text, sizeof(text) - 1, line, column, part)

static void a_tree_knows_its_places(void **state)
{
	forge_auto_yaml struct forge_yaml *root =
		parse_ok("# c\na: 1\nb:\n  - x\n  - {c: 'y z'}\ne: []\n");
	const struct forge_yaml *a = root->child, *b = a->next, *e = b->next;

	(void)state;
	assert_int_equal(root->type, FORGE_YAML_MAP);
	assert_null(root->key);
	assert_string_equal(a->key, "a");
	assert_string_equal(a->scalar, "1");
	assert_int_equal(a->key_line, 2);
	assert_int_equal(a->key_column, 1);
	assert_int_equal(a->line, 2);
	assert_int_equal(a->column, 4);
	assert_int_equal(b->type, FORGE_YAML_LIST);
	assert_string_equal(b->child->scalar, "x");
	assert_null(b->child->key);
	assert_int_equal(b->child->line, 4);
	assert_int_equal(b->child->column, 5);
	assert_string_equal(b->child->next->child->key, "c");
	assert_string_equal(b->child->next->child->scalar, "y z");
	assert_int_equal(e->type, FORGE_YAML_LIST);
	assert_null(e->child);
	assert_null(e->next);
}

static void nothing_is_an_empty_map(void **state)
{
	static const char *const texts[] = {
		"",	"\n\n",		"# only\n", "---\n",	   "~\n",
		"null", "--- ~\n...\n", "{}\n",	    "\xef\xbb\xbf"};

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(texts); i++) {
		forge_auto_yaml struct forge_yaml *root = parse_ok(texts[i]);
		assert_int_equal(root->type, FORGE_YAML_MAP);
		assert_null(root->child);
	}
	forge_auto_yaml struct forge_yaml *none = NULL;
	assert_int_equal(forge_yaml_parse(NULL, 0, "t", &none, NULL), 0);
	assert_null(none->child);
}

static void nulls_are_empty_text_unless_quoted(void **state)
{
	forge_auto_yaml struct forge_yaml *root =
		parse_ok("a: ~\nb: null\nc:\nd: 'null'\ne: \"~\"\nf: |\n  null\n");
	const struct forge_yaml *n = root->child;

	(void)state;
	for (int i = 0; i < 3; i++, n = n->next)
		assert_string_equal(n->scalar, "");
	assert_string_equal(n->scalar, "null");
	assert_string_equal(n->next->scalar, "~");
	assert_string_equal(n->next->next->scalar, "null\n");
}

static void scalars_and_lists_may_be_at_the_top(void **state)
{
	forge_auto_yaml struct forge_yaml *word = parse_ok("word\n");
	forge_auto_yaml struct forge_yaml *list = parse_ok("- a\n- b\n");

	(void)state;
	assert_int_equal(word->type, FORGE_YAML_SCALAR);
	assert_int_equal(list->type, FORGE_YAML_LIST);
}

static void the_clever_parts_are_refused(void **state)
{
	(void)state;
	REFUSED("a: &x 1\n", 1, 4, "anchors are not supported ('&x')");
	REFUSED("a: &x [1]\n", 1, 4, "anchors are not supported");
	REFUSED("a: &x {b: 1}\n", 1, 4, "anchors are not supported");
	REFUSED("&k a: 1\n", 1, 1, "anchors are not supported");
	REFUSED("a: 1\nb: *x\n", 2, 4, "aliases are not supported ('*x')");
	REFUSED("a: !!str 1\n", 1, 4, "tags are not supported ('tag:yaml.org,2002:str')");
	REFUSED("a: !x {}\n", 1, 4, "tags are not supported ('!x')");
	REFUSED("a: !x []\n", 1, 4, "tags are not supported ('!x')");
	REFUSED("a: ! b\n", 1, 4, "tags are not supported");
	REFUSED("a: 1\n---\nb: 1\n", 2, 1, "a second document");
	REFUSED("%YAML 1.1\n---\na: 1\n", 1, 1, "directives");
	REFUSED("%TAG ! tag:x,2000:\n---\na: 1\n", 1, 1, "directives");
}

static void keys_are_words_and_unique(void **state)
{
	(void)state;
	REFUSED("a: 1\nb: 2\na: 3\n", 3, 1, "duplicate key 'a' (first on line 1)");
	REFUSED("x:\n  {a: 1, 'a': 3}\n", 2, 10, "duplicate key 'a' (first on line 2)");
	REFUSED("? [a]\n: 1\n", 1, 3, "a key must be a word, not a list");
	REFUSED("? {a: 1}\n: 1\n", 1, 3, "a key must be a word, not a map");
	REFUSED("'': 1\n", 1, 1, "a key must not be empty");
	forge_auto_yaml struct forge_yaml *root = parse_ok("x: {a: 1}\ny: {a: 1}\n");
	assert_non_null(root);
}

static void malformed_text_has_a_place(void **state)
{
	(void)state;
	REFUSED("a: [1, 2\nb: 3\n", 2, 2, "not valid YAML: ");
	REFUSED("a: 1\n b: 2\n", 2, 3, "mapping values are not allowed");
	REFUSED("a:\n\t- x\n", 2, 1, "cannot start any token");
	REFUSED("a: 'x\n", 2, 1, "unexpected end of stream");
	REFUSED("a: b\n}\n", 2, 1, "not valid YAML: ");
	REFUSED("a: \"\\q\"\n", 1, 5, "unknown escape");
}

static void bytes_that_are_not_text(void **state)
{
	(void)state;
	REFUSED("a: 1\nb: \xff\n", 2, 4, "invalid leading UTF-8");
	REFUSED("a: \xc3\xa9\xc3\n", 1, 6, "invalid trailing UTF-8");
	REFUSED("a: \xed\xa0\x80\n", 1, 4, "invalid Unicode character");
	REFUSED("a: 1\nb: \0\n", 2, 4, "NUL byte");
	REFUSED("a: 1\nb: \"x\\0y\"\n", 2, 4, "NUL byte");
	REFUSED("\"x\\0y\": 1\n", 1, 1, "NUL byte");
	REFUSED("a: \x01\n", 1, 4, "control characters are not allowed");
	REFUSED("\xff\xfe"
		"a\0",
		1, 4, "NUL byte");
	REFUSED("\xff\xfe"
		"ab",
		1, 1, "UTF-8");
}

/* n times open, then a word, then n times close. */
static char *nested(size_t n)
{
	char *s = malloc(2 * n + 2);

	memset(s, '[', n);
	s[n] = 'x';
	memset(s + n + 1, ']', n);
	s[2 * n + 1] = '\0';
	return s;
}

static void depth_is_capped(void **state)
{
	forge_auto_free char *most = nested(16), *more = nested(17),
			     *many = nested(100000);
	forge_auto_yaml struct forge_yaml *root = parse_ok(most);

	(void)state;
	assert_non_null(root);
	refused(more, strlen(more), 1, 17, "nested more than 16 levels deep");
	refused(many, strlen(many), 1, 17, "nested more than 16 levels deep");
}

static char *long_list(size_t n)
{
	char *s = malloc(4 * n + 1);

	for (size_t i = 0; i < n; i++)
		memcpy(s + 4 * i, "- x\n", 4);
	s[4 * n] = '\0';
	return s;
}

static void nodes_are_capped(void **state)
{
	/* The list itself is one. */
	forge_auto_free char *most = long_list(9999), *more = long_list(10000);
	forge_auto_yaml struct forge_yaml *root = parse_ok(most);

	(void)state;
	assert_non_null(root);
	refused(more, strlen(more), 10000, 3, "more than 10000 values");
}

static void size_is_capped(void **state)
{
	const size_t most = 1u << 20;
	forge_auto_free char *text = malloc(most + 2);
	forge_auto_yaml struct forge_yaml *root = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	(void)state;
	memset(text, '#', most + 1);
	text[most + 1] = '\0';
	assert_int_equal(forge_yaml_parse(text, most, "t", &root, &err), 0);
	forge_yaml_free(forge_take_ptr(root));
	assert_int_equal(forge_yaml_parse(text, most + 1, "t", &root, &err), -EFBIG);
	assert_string_equal(err.msg, "t: more than 1 MiB");
}

static const char every_kind[] = "a: 1\nb: [x, 'y', {c: d}]\ne: {f: [], g: ~}\n"
				 "long: |\n  text\n  more\n# end\n";

static int parse_every_kind(void *arg)
{
	forge_auto_yaml struct forge_yaml *root = NULL;
	struct forge_error err = FORGE_ERROR_INIT;

	(void)arg;
	int rc = forge_yaml_parse(every_kind, sizeof(every_kind) - 1, "t", &root, &err);
	assert_int_equal(err.code, -rc);
	assert_true((rc == 0) == (root != NULL));
	return rc;
}

static void memory_may_run_out_anywhere(void **state)
{
	(void)state;
	assert_true(torture(parse_every_kind, NULL) > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tree_knows_its_places),
		cmocka_unit_test(nothing_is_an_empty_map),
		cmocka_unit_test(nulls_are_empty_text_unless_quoted),
		cmocka_unit_test(scalars_and_lists_may_be_at_the_top),
		cmocka_unit_test(the_clever_parts_are_refused),
		cmocka_unit_test(keys_are_words_and_unique),
		cmocka_unit_test(malformed_text_has_a_place),
		cmocka_unit_test(bytes_that_are_not_text),
		cmocka_unit_test(depth_is_capped),
		cmocka_unit_test(nodes_are_capped),
		cmocka_unit_test(size_is_capped),
		cmocka_unit_test(memory_may_run_out_anywhere),
	};

	return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}
