/* SPDX-License-Identifier: Apache-2.0 */
/* Builds forge_error messages in place, without allocating. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

FORGE_PRINTF(3, 0)
static void vset(struct forge_error *err, int code, const char *fmt, va_list ap)
{
	*err = (struct forge_error){ .code = code };
	(void)vsnprintf(err->msg, sizeof(err->msg), fmt, ap); /* truncation is fine */
}

int forge_fail(struct forge_error *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		vset(err, code, fmt, ap);
		va_end(ap);
	}
	return -code;
}

int forge_fail_errno(struct forge_error *err, int code, const char *fmt, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		vset(err, code, fmt, ap);
		va_end(ap);
		size_t n = strlen(err->msg);
		(void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s",
			       strerror(code));
	}
	return -code;
}

int forge_fail_at(struct forge_error *err, const char *file, unsigned line,
		  unsigned column, const char *fmt, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, fmt);
		vset(err, EINVAL, fmt, ap);
		va_end(ap);
		(void)snprintf(err->file, sizeof(err->file), "%s", file);
		err->line = line;
		err->column = column;
	}
	return -EINVAL;
}

int forge_wrap(struct forge_error *err, int rc, const char *fmt, ...)
{
	if (err) {
		char inner[sizeof(err->msg)];
		va_list ap;
		memcpy(inner, err->msg, sizeof(inner));
		va_start(ap, fmt);
		int n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
		if (n >= 0 && (size_t)n < sizeof(err->msg))
			(void)snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s",
				       inner);
		if (err->code == 0)
			err->code = -rc;
	}
	return rc;
}

int forge_hint(struct forge_error *err, int rc, const char *fmt, ...)
{
	static const char cut[] = "...";

	if (err) {
		va_list ap;
		va_start(ap, fmt);
		int n = vsnprintf(err->hint, sizeof(err->hint), fmt, ap);
		va_end(ap);
		if (n >= (int)sizeof(err->hint)) {
			size_t at = sizeof(err->hint) - sizeof(cut);
			/* Not inside a character of UTF-8. */
			while (at > 0 && (err->hint[at] & 0xC0) == 0x80)
				at--;
			memcpy(err->hint + at, cut, sizeof(cut));
		}
	}
	return rc;
}
