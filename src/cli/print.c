/* SPDX-License-Identifier: Apache-2.0 */
/* The output of all commands: errors, warnings, colour, JSON. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/reconcile.h"

void forge_print_clean(FILE *f, const char *text, size_t len)
{
	/* stderr is unbuffered: without this buffer every byte would be a write(2). */
	char buf[256];
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		/* C1 controls are two bytes in UTF-8: 0xc2, then 0x80 to 0x9f. */
		bool is_c1 =
			c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0;

		if (is_c1)
			i++;
		buf[n++] = c < 0x20 || c == 0x7f || is_c1 ? '?' : (char)c;
		if (n == sizeof(buf)) {
			(void)!fwrite(buf, 1, n, f);
			n = 0;
		}
	}
	(void)!fwrite(buf, 1, n, f);
}

void forge_print_word(FILE *f, const char *word)
{
	size_t plain = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789_./=:,@%+-");

	putc(' ', f);
	if (*word && !word[plain]) {
		fputs(word, f);
		return;
	}
	putc('\'', f);
	for (const char *p = word; *p; p++)
		if (*p == '\'')
			fputs("'\\''", f);
		else
			putc(*p, f);
	putc('\'', f);
}

static void print_problem(const char *kind, const struct forge_error *err)
{
	fprintf(stderr, "forge: %s", kind);
	if (err->file[0]) {
		forge_print_clean(stderr, err->file, strlen(err->file));
		if (err->line)
			fprintf(stderr, ":%u:%u", err->line, err->column);
		fputs(": ", stderr);
	}
	const char *msg = err->msg[0] ? err->msg : strerror(err->code);
	forge_print_clean(stderr, msg, strlen(msg));
	putc('\n', stderr);
	if (err->hint[0]) {
		fputs("  hint: ", stderr);
		forge_print_clean(stderr, err->hint, strlen(err->hint));
		putc('\n', stderr);
	}
}

void forge_print_error(const struct forge_error *err)
{
	print_problem("", err);
}

void forge_print_warning(const struct forge_error *err)
{
	print_problem("warning: ", err);
}

bool forge_ask(const char *fmt, ...)
{
	char answer[16];
	va_list ap;

	if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
		return true;
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs(" [y/N] ", stderr);
	return fgets(answer, sizeof(answer), stdin) &&
	       (answer[0] == 'y' || answer[0] == 'Y');
}

int forge_print_usage(const struct forge_cmd *cmd, const struct forge_error *err)
{
	if (err)
		forge_print_error(err);
	char synopsis[FORGE_SYNOPSIS_MAX];

	fprintf(stderr, "usage: forge %s %s\n", cmd->name,
		forge_cmd_synopsis(cmd, synopsis));
	if (err && !err->hint[0])
		fprintf(stderr, "  hint: see forge %s --help\n", cmd->name);
	return FORGE_EXIT_USAGE;
}

int forge_refuse_words(const struct forge_cmd *cmd, int argc, char **argv, int n)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (argc <= n)
		return 0;
	(void)forge_fail(&err, EINVAL, "%s: unexpected argument '%s'", cmd->name,
			 argv[n]);
	return forge_print_usage(cmd, &err);
}

void forge_print_json(const json_t *json)
{
	/* A failed write is noticed when main() flushes. */
	(void)json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
}

bool forge_has_colour(FILE *f)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fileno(f)) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

const char *forge_colour_code(enum forge_colour colour)
{
	static const char *const codes[] = {
		[FORGE_PLAIN] = "\033[0m",  [FORGE_BOLD] = "\033[1m",
		[FORGE_DIM] = "\033[2m",    [FORGE_RED] = "\033[31m",
		[FORGE_GREEN] = "\033[32m", [FORGE_YELLOW] = "\033[33m",
	};

	return codes[colour];
}

void forge_reconcile_before_run(void)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_reconcile_cheaply(&err) < 0)
		forge_reconcile_first(); /* reports the error */
}

void forge_reconcile_first(void)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_reconcile(NULL, false, &err);

	if (rc < 0) {
		(void)forge_wrap(&err, rc, "repair what earlier runs left");
		forge_print_warning(&err);
	}
}
