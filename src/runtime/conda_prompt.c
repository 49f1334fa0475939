/* SPDX-License-Identifier: Apache-2.0 */
/* CONDA_PROMPT_MODIFIER: conda's env_prompt, filled in as Python's str.format() does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "runtime/conda_parts.h"

#define WIDTH_MAX 1000

static bool is_continuation(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

/* Bytes of the character at text. */
static size_t letter_length(const char *text)
{
	size_t n = *text ? 1 : 0;

	while (n && is_continuation(text[n]))
		n++;
	return n;
}

static size_t count_letters(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += !is_continuation(*text);
	return n;
}

/* Code point of a character that is valid UTF-8. */
static unsigned long code_of(const char *text, size_t len)
{
	unsigned long code = (unsigned char)*text;

	if (len > 1)
		code &= 0xffu >> (len + 1);
	for (size_t i = 1; i < len; i++)
		code = code << 6 | ((unsigned char)text[i] & 0x3f);
	return code;
}

static void print_letter(FILE *out, const char *p, size_t len, char quote, bool is_ascii)
{
	unsigned long code = code_of(p, len);

	if (*p == '\\' || *p == quote)
		fprintf(out, "\\%c", *p);
	else if (*p == '\n' || *p == '\r' || *p == '\t')
		fprintf(out, "\\%c", *p == '\n' ? 'n' : *p == '\r' ? 'r' : 't');
	else if (code < ' ' || code == 0x7f || (code >= 0x80 && code < 0xa1))
		fprintf(out, "\\x%02lx", code);
	else if (!is_ascii || code < 0x80)
		(void)fwrite(p, 1, len, out);
	else
		fprintf(out,
			code < 0x100	 ? "\\x%02lx"
			: code < 0x10000 ? "\\u%04lx"
					 : "\\U%08lx",
			code);
}

/* repr(), and ascii() */
static char *quoted(const char *text, bool is_ascii)
{
	char quote = strchr(text, '\'') && !strchr(text, '"') ? '"' : '\'', *ret = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&ret, &size);

	if (!out)
		return NULL;
	fputc(quote, out);
	for (size_t n; (n = letter_length(text)); text += n)
		print_letter(out, text, n, quote, is_ascii);
	fputc(quote, out);
	return fclose(out) == 0 ? ret : (free(ret), NULL);
}

/* "[[fill]align][0][width][.precision][s]" */
struct layout {
	const char *fill;
	size_t fill_len, width, precision;
	char align;
};

static bool read_size(const char **p, size_t *ret)
{
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	unsigned long n = strtoul(*p, &end, 10);
	*p = end;
	*ret = n;
	return n <= WIDTH_MAX;
}

static bool read_layout(const char *spec, struct layout *ret)
{
	size_t first = letter_length(spec);

	*ret = (struct layout){
		.fill = " ", .fill_len = 1, .precision = WIDTH_MAX, .align = '<'
	};
	if (first && spec[first] && strchr("<>^", spec[first])) {
		ret->fill = spec;
		ret->fill_len = first;
		ret->align = spec[first];
		spec += first + 1;
	} else if (*spec && strchr("<>^", *spec)) {
		ret->align = *spec++;
	}
	if (*spec == '0' && ret->fill_len == 1 && *ret->fill == ' ') {
		ret->fill = "0";
		spec++;
	}
	if (*spec >= '0' && *spec <= '9' && !read_size(&spec, &ret->width))
		return false;
	if (*spec == '.' && (spec++, !read_size(&spec, &ret->precision)))
		return false;
	spec += *spec == 's';
	return !*spec;
}

static void print_fill(FILE *out, const struct layout *l, size_t n)
{
	while (n--)
		(void)fwrite(l->fill, 1, l->fill_len, out);
}

static void print_laid_out(FILE *out, const struct layout *l, const char *text)
{
	size_t have = count_letters(text);
	size_t shown = have < l->precision ? have : l->precision;
	size_t rest = l->width > shown ? l->width - shown : 0;
	size_t before = l->align == '>' ? rest : l->align == '^' ? rest / 2 : 0;
	const char *end = text;

	for (size_t i = 0; i < shown; i++)
		end += letter_length(end);
	print_fill(out, l, before);
	(void)fwrite(text, 1, have > shown ? (size_t)(end - text) : strlen(text), out);
	print_fill(out, l, rest - before);
}

/* One "{name!r:>10}" without its braces. False: conda would refuse it. */
static bool print_field(FILE *out, const char *field, const struct forge_conda_names *n)
{
	const struct {
		const char *key, *value;
	} known[] = {
		{ "default_env", n->default_env },
		{ "stacked_env", n->stacked_env },
		{ "prefix", n->prefix },
		{ "name", n->name },
	};
	size_t len = strcspn(field, "!:");
	const char *spec = field + len, *value = NULL;
	char conversion = 's';
	struct layout l;

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(known); i++)
		if (len == strlen(known[i].key) && strncmp(field, known[i].key, len) == 0)
			value = known[i].value;
	if (*spec == '!') {
		conversion = spec[1];
		if (!conversion || !strchr("rsa", conversion))
			return false;
		spec += 2;
	}
	if (!value || (*spec && *spec != ':') || !read_layout(spec + (*spec == ':'), &l))
		return false;
	forge_auto_free char *text =
		conversion == 's' ? strdup(value) : quoted(value, conversion == 'a');
	if (text)
		print_laid_out(out, &l, text);
	return text;
}

char *forge_conda_prompt(const char *format, const struct forge_conda_names *names,
			 struct forge_strv *warnings)
{
	char *text = NULL;
	size_t size = 0;
	bool is_odd = false;
	FILE *out = open_memstream(&text, &size);

	for (const char *p = format; out && *p;) {
		const char *end = *p == '{' ? strpbrk(p + 1, "{}") : NULL;
		if ((*p == '{' || *p == '}') && p[1] == *p) {
			fputc(*p, out);
			p += 2;
			continue;
		}
		if (end && *end == '}') {
			forge_auto_free char *field =
				strndup(p + 1, (size_t)(end - p) - 1);
			if (field && print_field(out, field, names)) {
				p = end + 1;
				continue;
			}
		}
		is_odd |= *p == '{' || *p == '}';
		fputc(*p++, out);
	}
	if (is_odd)
		forge_conda_warn(warnings, "env_prompt: '%.80s' is not understood",
				 format);
	if (out && fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}
