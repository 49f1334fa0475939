/* SPDX-License-Identifier: Apache-2.0 */
/* Variables in the texts of a pipeline file, and conditions. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "pipeline/pipeline.h"

static size_t name_length(const char *s)
{
	size_t n = 0;

	if (!isalpha((unsigned char)*s) && *s != '_')
		return 0;
	while (isalnum((unsigned char)s[n]) || s[n] == '_')
		n++;
	return n;
}

int forge_expand(const char *text, forge_variable_finder *find, void *arg, char **ret,
		 struct forge_error *err)
{
	forge_auto_free char *out = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&out, &size);
	int rc = f ? 0 : forge_fail(err, ENOMEM, "out of memory");

	for (const char *p = text; rc == 0 && *p; p++) {
		if (*p != '$') {
			putc(*p, f);
			continue;
		}
		bool is_braced = p[1] == '{';
		const char *name = p + 1 + is_braced;
		size_t len = name_length(name);
		if (p[1] == '$') {
			putc('$', f);
			p++;
			continue;
		}
		if (len == 0 || (is_braced && name[len] != '}')) {
			rc = forge_hint(
				err, forge_fail(err, EINVAL, "'%.32s' is no variable", p),
				"Write $NAME or ${NAME}; $$ is a dollar sign");
			break;
		}
		const char *value = find(name, len, arg);
		if (!value) {
			rc = forge_fail(err, ENOENT, "there is no parameter '%.*s'",
					(int)(len < 64 ? len : 64), name);
			break;
		}
		fputs(value, f);
		p = name + len - 1 + is_braced;
	}
	if (f && fclose(f) != 0 && rc == 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0)
		*ret = forge_take_ptr(out);
	return rc;
}

void forge_expand_names(const char *text,
			void (*visit)(const char *name, size_t len, void *arg), void *arg)
{
	for (const char *p = strchr(text, '$'); p; p = strchr(p + 1, '$')) {
		const char *name = p + 1;
		/* ${NAME}, ${#NAME}, ${!NAME} */
		if (*name == '{')
			name += 1 + (name[1] == '#' || name[1] == '!');
		size_t len = name_length(name);
		if (len)
			visit(name, len, arg);
	}
}

/* ---- conditions ---- */

enum comparison { EQUAL, UNEQUAL, LESS, LESS_EQUAL, MORE, MORE_EQUAL, NO_COMPARISON };
static const char *const signs[] = { "==", "!=", "<", "<=", ">", ">=" };

static enum comparison comparison_of(const char *word)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(signs); i++)
		if (strcmp(signs[i], word) == 0)
			return (enum comparison)i;
	return NO_COMPARISON;
}

static bool is_number(const char *s, double *ret)
{
	char *end;

	*ret = strtod(s, &end);
	return *s && !*end && !isspace((unsigned char)*s);
}

/* Numbers are compared as numbers, so that 20 == 20.0; other values as texts. */
static int compare(const char *a, enum comparison how, const char *b,
		   struct forge_error *err)
{
	double x, y;
	bool are_numbers = is_number(a, &x) && is_number(b, &y);

	if (!are_numbers && how != EQUAL && how != UNEQUAL)
		return forge_fail(err, EINVAL, "'%.64s %s %.64s' compares no numbers", a,
				  signs[how], b);
	int order = are_numbers ? (x > y) - (x < y) : strcmp(a, b);
	switch (how) {
	case EQUAL:
		return order == 0;
	case UNEQUAL:
		return order != 0;
	case LESS:
		return order < 0;
	case LESS_EQUAL:
		return order <= 0;
	case MORE:
		return order > 0;
	case MORE_EQUAL:
		return order >= 0;
	case NO_COMPARISON:
		break;
	}
	return 0;
}

static bool is_true(const char *word)
{
	static const char *const false_words[] = { "", "0", "false", "no" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(false_words); i++)
		if (strcmp(false_words[i], word) == 0)
			return false;
	return true;
}

int forge_condition(const char *text, forge_variable_finder *find, void *arg,
		    struct forge_error *err)
{
	forge_auto_strv struct forge_strv words = { 0 };
	enum comparison how = NO_COMPARISON;

	/* Split first: a value with blanks is one word. */
	for (const char *p = text + strspn(text, " \t"); *p; p += strspn(p, " \t")) {
		size_t len = strcspn(p, " \t");
		forge_auto_free char *word = strndup(p, len);
		char *value = NULL;
		int rc = word ? forge_expand(word, find, arg, &value, err)
			      : forge_fail(err, ENOMEM, "out of memory");
		if (rc < 0)
			return rc;
		if (forge_strv_take(&words, value) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
		if (words.n == 2)
			how = comparison_of(word);
		p += len;
	}
	if (words.n == 1)
		return is_true(words.v[0]);
	if (words.n != 3 || how == NO_COMPARISON)
		return forge_hint(
			err, forge_fail(err, EINVAL, "'%.100s' is no condition", text),
			"Write $NAME, or one comparison with blanks around its sign: "
			"$NAME == value (also != < <= > >=)");
	return compare(words.v[0], how, words.v[2], err);
}

/* ---- names ---- */

int forge_variable_check(const char *name, struct forge_error *err)
{
	static const char *const taken[] = { "PATH",	"HOME",	 "TMPDIR", "USER",
					     "LOGNAME", "SHELL", "PWD",	   "OLDPWD",
					     "IFS",	"ENV",	 "LANG",   "TERM",
					     "UID",	"EUID",	 "PPID",   "HOSTNAME" };
	static const char *const families[] = { "FORGE_", "LD_",    "LC_", "BASH",
						"PYTHON", "CONDA_", "R_" };
	int rc = forge_parse_env_name(name, strlen(name), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(taken); i++)
		if (strcmp(taken[i], name) == 0)
			return forge_fail(err, EINVAL,
					  "'%s' is a variable that every run has", name);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(families); i++)
		if (strncmp(families[i], name, strlen(families[i])) == 0)
			return forge_fail(err, EINVAL, "'%.64s': names with %s are taken",
					  name, families[i]);
	return strlen(name) <= 64
		       ? 0
		       : forge_fail(err, EINVAL, "'%.32s...' has more than 64 characters",
				    name);
}
