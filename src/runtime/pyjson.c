/* SPDX-License-Identifier: Apache-2.0 */
/* Turns numbers into tagged strings before jansson reads them, and prints them as Python does. */
#include "runtime/pyjson.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/strv.h"

#define NUMBER_MAX 4300 /* digits; Python refuses longer integers too */

static bool is_word(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && strncmp(text, word, len) == 0;
}

static size_t count_digits(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && isdigit((unsigned char)text[n]))
		n++;
	return n;
}

/* JSON's grammar of numbers, and the three words that Python adds. */
static bool is_number(const char *text, size_t len)
{
	if (is_word(text, len, "NaN") || is_word(text, len, "Infinity") ||
	    is_word(text, len, "-Infinity"))
		return true;
	size_t at = len > 0 && text[0] == '-';
	size_t whole = count_digits(text + at, len - at);
	if (whole == 0 || whole > NUMBER_MAX || (whole > 1 && text[at] == '0'))
		return false;
	at += whole;
	if (at < len && text[at] == '.') {
		size_t part = count_digits(text + at + 1, len - at - 1);
		if (part == 0)
			return false;
		at += 1 + part;
	}
	if (at < len && (text[at] == 'e' || text[at] == 'E')) {
		at++;
		at += at < len && (text[at] == '+' || text[at] == '-');
		size_t part = count_digits(text + at, len - at);
		if (part == 0)
			return false;
		at += part;
	}
	return at == len;
}

/* Length from the opening quote to the closing one, inclusive; 0: it is not closed. */
static size_t string_length(const char *text, size_t len)
{
	for (size_t i = 1; i < len; i++) {
		if (text[i] == '"')
			return i + 1;
		i += text[i] == '\\';
	}
	return 0;
}

static size_t token_length(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && !strchr(",:]} \t\r\n", text[n]))
		n++;
	return n;
}

static int tag(const char *text, size_t len, FILE *out)
{
	for (size_t at = 0, n; at < len; at += n) {
		const char *p = text + at;
		if (*p == '"') {
			n = string_length(p, len - at);
			if (n == 0)
				return -EINVAL;
			(void)fputs("\"s", out);
			(void)fwrite(p + 1, 1, n - 1, out);
		} else if (isdigit((unsigned char)*p) || *p == '-' || *p == 'N' ||
			   *p == 'I') {
			n = token_length(p, len - at);
			if (!is_number(p, n))
				return -EINVAL;
			(void)fprintf(out, "\"n%.*s\"", (int)n, p);
		} else {
			n = 1;
			(void)fputc(*p, out);
		}
	}
	return 0;
}

int forge_pyjson_load(const char *text, size_t len, json_t **ret)
{
	forge_auto_free char *tagged = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&tagged, &size);

	if (!out)
		return -ENOMEM;
	int rc = memchr(text, '\0', len) ? -EINVAL : tag(text, len, out);
	if (fclose(out) != 0)
		return -ENOMEM;
	if (rc < 0)
		return rc;
	*ret = json_loadb(tagged, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	return *ret ? 0 : -EINVAL;
}

/* The fewest digits that read back as the same number, in the form of Python's repr(). */
static char *float_text(double value)
{
	char digits[40];
	int precision = 0;

	if (isnan(value))
		return strdup("nan");
	if (isinf(value))
		return strdup(value < 0 ? "-inf" : "inf");
	do
		(void)snprintf(digits, sizeof(digits), "%.*e", precision, value);
	while (strtod(digits, NULL) != value && ++precision < 17);
	long exponent = strtol(strchr(digits, 'e') + 1, NULL, 10);
	if (exponent < -4 || exponent >= 16)
		return strdup(digits);
	long behind = precision - exponent;
	return forge_asprintf("%.*f", behind > 0 ? (int)behind : 1, value);
}

static char *number_text(const char *text)
{
	if (strcmp(text, "NaN") == 0 || strstr(text, "Infinity"))
		return float_text(strcmp(text, "NaN") == 0 ? NAN
				  : *text == '-'	   ? -INFINITY
							   : INFINITY);
	if (strpbrk(text, ".eE"))
		return float_text(strtod(text, NULL));
	return strdup(strcmp(text, "-0") == 0 ? "0" : text);
}

int forge_pyjson_str(const json_t *value, char **ret)
{
	const char *text = json_string_value(value);

	if (json_is_array(value) || json_is_object(value) ||
	    (text && strlen(text) != json_string_length(value)))
		return -EINVAL;
	*ret = !text	      ? strdup(json_is_true(value)    ? "True"
				       : json_is_false(value) ? "False"
							      : "")
	       : *text == 'n' ? number_text(text + 1)
			      : strdup(text + 1);
	return *ret ? 0 : -ENOMEM;
}
