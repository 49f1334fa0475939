/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, durations, counts, CPU shares and ids: integers only, so 1.5G is exact. */
#include "base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"

#define DIGITS	"0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

#define MSEC_USEC UINT64_C(1000)
#define SEC_USEC  (1000 * MSEC_USEC)
#define MIN_USEC  (60 * SEC_USEC)
#define HOUR_USEC (60 * MIN_USEC)
#define DAY_USEC  (24 * HOUR_USEC)

struct unit {
	const char *name;
	uint64_t scale;
};

/* One kind of number: how it may be written, and how error messages name it. */
struct kind {
	const char *what;
	const char *forms;
	const struct unit *units; /* ends with a NULL name */
	bool any_case;		  /* not for durations: "M" could be months or minutes */
	bool may_be_unlimited;
	size_t max_decimals;
	uint64_t least;
	const char *least_text;
};

static const struct unit size_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "KB", UINT64_C(1) << 10 }, /* as Docker and Slurm mean it */
	{ "KiB", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "MB", UINT64_C(1) << 20 },
	{ "MiB", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "GB", UINT64_C(1) << 30 },
	{ "GiB", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
	{ "TB", UINT64_C(1) << 40 },
	{ "TiB", UINT64_C(1) << 40 },
	{ "P", UINT64_C(1) << 50 },
	{ "PB", UINT64_C(1) << 50 },
	{ "PiB", UINT64_C(1) << 50 },
	{ NULL, 0 },
};

static const struct unit duration_units[] = {
	{ "", SEC_USEC },	 { "ms", MSEC_USEC },	 { "s", SEC_USEC },
	{ "sec", SEC_USEC },	 { "secs", SEC_USEC },	 { "second", SEC_USEC },
	{ "seconds", SEC_USEC }, { "m", MIN_USEC },	 { "min", MIN_USEC },
	{ "mins", MIN_USEC },	 { "minute", MIN_USEC }, { "minutes", MIN_USEC },
	{ "h", HOUR_USEC },	 { "hr", HOUR_USEC },	 { "hrs", HOUR_USEC },
	{ "hour", HOUR_USEC },	 { "hours", HOUR_USEC }, { "d", DAY_USEC },
	{ "day", DAY_USEC },	 { "days", DAY_USEC },	 { NULL, 0 },
};

static const struct unit count_units[] = { { "", 1 }, { NULL, 0 } };
static const struct unit cpu_units[] = { { "", 1000 }, { NULL, 0 } };

static const struct kind size_kind = {
	.what = "a size",
	.forms = "512M, 2G, 2GiB or unlimited",
	.units = size_units,
	.any_case = true,
	.may_be_unlimited = true,
	.max_decimals = SIZE_MAX,
	.least = 1,
	.least_text = "1 byte",
};

static const struct kind duration_kind = {
	.what = "a duration",
	.forms = "250ms, 90s, 30m, 2h, 1:30:00, 1d or unlimited",
	.units = duration_units,
	.may_be_unlimited = true,
	.max_decimals = SIZE_MAX,
	.least = 1,
	.least_text = "1 microsecond",
};

static const struct kind count_kind = {
	.what = "a whole number",
	.forms = "1, 1024 or unlimited",
	.units = count_units,
	.may_be_unlimited = true,
	.least = 1,
	.least_text = "1",
};

/* "unlimited" is not here: every run has a CPU share, if only the whole machine's. */
static const struct kind cpus_kind = {
	.what = "a number of CPUs",
	.forms = "1, 0.5 or 2.25",
	.units = cpu_units,
	.max_decimals = 3,
	.least = 10,
	.least_text = "0.01",
};

/* A value in a form for messages: short, and without control characters. */
#define QUOTED_MAX 72
static const char *quoted(char buf[QUOTED_MAX], const char *s, size_t len)
{
	const size_t room = QUOTED_MAX - sizeof("''...");
	size_t shown = len <= room ? len : room, n = 0;

	buf[n++] = '\'';
	for (size_t i = 0; i < shown; i++) {
		unsigned char c = (unsigned char)s[i];
		buf[n++] = c < 0x20 || c == 0x7f ? '?' : s[i];
	}
	(void)snprintf(buf + n, QUOTED_MAX - n, "%s'", shown < len ? "..." : "");
	return buf;
}

/* The parts of "12.50GiB": views into the text. */
struct decimal {
	const char *whole, *fraction, *unit;
	size_t n_whole, n_fraction;
};

static bool split_decimal(const char *s, struct decimal *ret)
{
	struct decimal d = { .whole = s, .n_whole = strspn(s, DIGITS) };

	/* "010" can mean eight or ten, so it is refused. */
	if (d.n_whole == 0 || (d.n_whole > 1 && s[0] == '0'))
		return false;
	d.unit = s + d.n_whole;
	if (*d.unit == '.') {
		d.fraction = d.unit + 1;
		d.n_fraction = strspn(d.fraction, DIGITS);
		if (d.n_fraction == 0)
			return false;
		d.unit = d.fraction + d.n_fraction;
	}
	*ret = d;
	return true;
}

/* The decimal times scale, rounded down; false when it does not fit. */
static bool scale_decimal(const struct decimal *d, uint64_t scale, uint64_t *ret)
{
	uint64_t whole = 0, part = 0;

	for (size_t i = 0; i < d->n_whole; i++)
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(d->whole[i] - '0'), &whole))
			return false;
	if (__builtin_mul_overflow(whole, scale, &whole))
		return false;
	/* From the last digit: each rounding down is exact, and 9 * scale fits easily. */
	for (size_t i = d->n_fraction; i > 0; i--)
		part = (part + (uint64_t)(d->fraction[i - 1] - '0') * scale) / 10;
	if (__builtin_add_overflow(whole, part, &whole) || whole == FORGE_UNLIMITED)
		return false;
	*ret = whole;
	return true;
}

static const struct unit *find_unit(const struct kind *k, const char *name)
{
	for (const struct unit *u = k->units; u->name; u++)
		if ((k->any_case ? strcasecmp : strcmp)(u->name, name) == 0)
			return u;
	return NULL;
}

static int parse_number(const struct kind *k, const char *s, uint64_t *ret,
			struct forge_error *err)
{
	char q[QUOTED_MAX];
	struct decimal d;
	uint64_t value;

	if (k->may_be_unlimited && strcmp(s, "unlimited") == 0) {
		*ret = FORGE_UNLIMITED;
		return 0;
	}
	(void)quoted(q, s, strlen(s));
	const struct unit *unit = split_decimal(s, &d) ? find_unit(k, d.unit) : NULL;
	/* Half a byte or half a process is a misunderstanding and must not be rounded. */
	if (!unit || (d.n_fraction > 0 && unit->scale == 1) ||
	    d.n_fraction > k->max_decimals)
		return forge_fail(err, EINVAL, "%s is not %s (write %s)", q, k->what,
				  k->forms);
	if (!scale_decimal(&d, unit->scale, &value))
		return forge_fail(err, ERANGE, "%s is too large for %s (write %s)", q,
				  k->what, k->forms);
	if (value < k->least)
		return forge_fail(err, EINVAL, "%s is not %s: the least is %s (write %s)",
				  q, k->what, k->least_text, k->forms);
	*ret = value;
	return 0;
}

int forge_parse_size(const char *s, uint64_t *ret_bytes, struct forge_error *err)
{
	return parse_number(&size_kind, s, ret_bytes, err);
}

/* Reads one or two digits, below 60 unless it is the first part. */
static bool take_part(const char **at, bool is_first, uint64_t *ret)
{
	size_t n = strspn(*at, DIGITS);
	uint64_t v = 0;

	if (n == 0 || n > (is_first ? 6u : 2u) || (!is_first && n != 2))
		return false;
	for (size_t i = 0; i < n; i++)
		v = v * 10 + (uint64_t)((*at)[i] - '0');
	*at += n;
	*ret = v;
	return is_first || v < 60;
}

/* "1:30:00" and "2-12:00:00", as in Slurm. Not "1:30", which can mean minutes or hours. */
static bool parse_clock(const char *s, uint64_t *ret_usec)
{
	uint64_t part[3] = { 0 }, days = 0;
	const char *dash = strchr(s, '-');
	size_t n = 0;

	if (!strchr(s, ':'))
		return false;
	if (dash && (!take_part(&s, true, &days) || *s++ != '-'))
		return false;
	do {
		if (n == 3 || !take_part(&s, n == 0, &part[n]))
			return false;
		n++;
	} while (*s == ':' && s++);
	if (*s || n != 3)
		return false;
	*ret_usec = days * DAY_USEC + part[0] * HOUR_USEC + part[1] * MIN_USEC +
		    part[2] * SEC_USEC;
	return *ret_usec > 0;
}

int forge_parse_duration(const char *s, uint64_t *ret_usec, struct forge_error *err)
{
	uint64_t usec;

	if (parse_clock(s, &usec)) {
		*ret_usec = usec;
		return 0;
	}
	return parse_number(&duration_kind, s, ret_usec, err);
}

int forge_parse_count(const char *s, uint64_t *ret_n, struct forge_error *err)
{
	return parse_number(&count_kind, s, ret_n, err);
}

int forge_parse_cpus(const char *s, uint64_t *ret_milli, struct forge_error *err)
{
	return parse_number(&cpus_kind, s, ret_milli, err);
}

int forge_parse_id(const char *s, struct forge_error *err)
{
	size_t len = strlen(s);
	char q[QUOTED_MAX];

	if (len >= 1 && len <= 64 && strspn(s, LETTERS DIGITS) > 0 &&
	    strspn(s, LETTERS DIGITS "._-") == len && !strstr(s, ".."))
		return 0;
	return forge_fail(
		err, EINVAL,
		"%s is not an id (write 1 to 64 letters, digits, '.', '_' or '-', "
		"first a letter or digit, without '..')",
		quoted(q, s, len));
}

int forge_parse_address(const char *s, char ret_host[FORGE_HOST_MAX],
			char ret_port[FORGE_PORT_MAX], struct forge_error *err)
{
	const char *colon = strrchr(s, ':');
	const char *port = colon ? colon + 1 : "";
	bool is_bracketed = *s == '[' && colon && colon > s && colon[-1] == ']';
	const char *host = s + is_bracketed;
	size_t len = colon ? (size_t)(colon - host) - is_bracketed : 0;
	size_t digits = strspn(port, DIGITS);
	unsigned long n = digits && digits < FORGE_PORT_MAX ? strtoul(port, NULL, 10) : 0;
	char q[QUOTED_MAX];

	if (len == 0 || len >= FORGE_HOST_MAX || port[digits] || !digits ||
	    (!is_bracketed && strcspn(host, ":[] \t") < len))
		return forge_fail(err, EINVAL,
				  "%s is not host:port (an IPv6 address is in brackets)",
				  quoted(q, s, strlen(s)));
	if (n < 1 || n > 65535)
		return forge_fail(err, EINVAL, "%s: port %.10s is not one of 1 to 65535",
				  quoted(q, s, strlen(s)), port);
	(void)snprintf(ret_host, FORGE_HOST_MAX, "%.*s", (int)len, host);
	(void)snprintf(ret_port, FORGE_PORT_MAX, "%s", port);
	return 0;
}

int forge_parse_env_name(const char *name, size_t len, struct forge_error *err)
{
	bool ok = len > 0 && !memchr(DIGITS, name[0], strlen(DIGITS));
	char q[QUOTED_MAX];

	for (size_t i = 0; ok && i < len; i++)
		ok = memchr(LETTERS DIGITS "_", name[i], strlen(LETTERS DIGITS "_"));
	if (ok)
		return 0;
	return forge_fail(
		err, EINVAL,
		"%s is not the name of an environment variable (write letters, digits "
		"and '_', first not a digit)",
		quoted(q, name, len));
}

static const char *format_word(char buf[FORGE_FORMAT_MAX], const char *word)
{
	(void)snprintf(buf, FORGE_FORMAT_MAX, "%s", word);
	return buf;
}

/* "1.25", "1.5", "1": thousandths without needless zeros. */
static int format_milli(char buf[FORGE_FORMAT_MAX], uint64_t milli)
{
	int n = snprintf(buf, FORGE_FORMAT_MAX, "%" PRIu64 ".%03u", milli / 1000,
			 (unsigned)(milli % 1000));
	while (buf[n - 1] == '0')
		n--;
	if (buf[n - 1] == '.')
		n--;
	buf[n] = '\0';
	return n;
}

const char *forge_format_size(char buf[FORGE_FORMAT_MAX], uint64_t bytes)
{
	static const char letters[] = "KMGTP";
	unsigned shift = 10;

	if (bytes == FORGE_UNLIMITED)
		return format_word(buf, "unlimited");
	if (bytes < 1024) {
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%u B", (unsigned)bytes);
		return buf;
	}
	for (size_t i = 0;; i++, shift += 10) {
		uint64_t rest = bytes & ((UINT64_C(1) << shift) - 1);
		uint64_t cents = (bytes >> shift) * 100 +
				 ((rest * 100 + (UINT64_C(1) << (shift - 1))) >> shift);
		/* Compared after rounding, so that "1024.00 MiB" becomes "1.00 GiB". */
		if (cents >= 102400 && letters[i + 1])
			continue;
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%" PRIu64 ".%02u %ciB",
			       cents / 100, (unsigned)(cents % 100), letters[i]);
		return buf;
	}
}

const char *forge_format_duration(char buf[FORGE_FORMAT_MAX], uint64_t usec)
{
	static const struct unit steps[] = {
		{ "d", DAY_USEC },
		{ "h", HOUR_USEC },
		{ "min", MIN_USEC },
		{ "s", SEC_USEC },
	};
	size_t i = 0;

	if (usec == FORGE_UNLIMITED)
		return format_word(buf, "unlimited");
	if (usec > 0 && usec < MSEC_USEC) {
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%u us", (unsigned)usec);
		return buf;
	}
	if (usec > 0 && usec < SEC_USEC) {
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%u ms",
			       (unsigned)(usec / MSEC_USEC));
		return buf;
	}
	if (usec < MIN_USEC) {
		/* Two decimals, rounded down: never more than the time that passed. */
		int n = format_milli(buf, usec / (10 * MSEC_USEC) * 10);
		(void)snprintf(buf + n, (size_t)(FORGE_FORMAT_MAX - n), " s");
		return buf;
	}
	while (usec < steps[i].scale)
		i++;
	uint64_t lesser = usec % steps[i].scale / steps[i + 1].scale;
	int n = snprintf(buf, FORGE_FORMAT_MAX, "%" PRIu64 " %s", usec / steps[i].scale,
			 steps[i].name);
	if (lesser > 0)
		(void)snprintf(buf + n, (size_t)(FORGE_FORMAT_MAX - n), " %u %s",
			       (unsigned)lesser, steps[i + 1].name);
	return buf;
}

const char *forge_format_cpus(char buf[FORGE_FORMAT_MAX], uint64_t milli)
{
	if (milli == FORGE_UNLIMITED)
		return format_word(buf, "unlimited");
	(void)format_milli(buf, milli);
	return buf;
}

/* value in units of scale, rounded up to a tenth. */
static void format_tenths(char buf[FORGE_FORMAT_MAX], uint64_t value, uint64_t scale,
			  const char *unit)
{
	uint64_t tenths = value / scale * 10 + (value % scale * 10 + scale - 1) / scale;
	int n = format_milli(buf, tenths * 100);
	(void)snprintf(buf + n, (size_t)(FORGE_FORMAT_MAX - n), "%s", unit);
}

/* Rounding up may exceed the largest value; "unlimited" is then still at least as much. */
static const char *or_unlimited(char buf[FORGE_FORMAT_MAX], const struct kind *k)
{
	uint64_t ignored;

	return parse_number(k, buf, &ignored, NULL) < 0 ? format_word(buf, "unlimited")
							: buf;
}

const char *forge_format_size_arg(char buf[FORGE_FORMAT_MAX], uint64_t bytes)
{
	static const struct unit steps[] = {
		{ "P", UINT64_C(1) << 50 }, { "T", UINT64_C(1) << 40 },
		{ "G", UINT64_C(1) << 30 }, { "M", UINT64_C(1) << 20 },
		{ "K", UINT64_C(1) << 10 },
	};

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(steps); i++) {
		if (bytes < steps[i].scale)
			continue;
		format_tenths(buf, bytes, steps[i].scale, steps[i].name);
		return or_unlimited(buf, &size_kind);
	}
	(void)snprintf(buf, FORGE_FORMAT_MAX, "%u", bytes ? (unsigned)bytes : 1);
	return buf;
}

const char *forge_format_duration_arg(char buf[FORGE_FORMAT_MAX], uint64_t usec)
{
	static const struct unit steps[] = { { "d", DAY_USEC / SEC_USEC },
					     { "h", HOUR_USEC / SEC_USEC },
					     { "m", MIN_USEC / SEC_USEC },
					     { "s", 1 } };
	uint64_t seconds = usec / SEC_USEC + (usec % SEC_USEC > 0);
	size_t i = 0;

	if (usec <= 999 * MSEC_USEC) {
		uint64_t ms = (usec + MSEC_USEC - 1) / MSEC_USEC;
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%ums", ms ? (unsigned)ms : 1);
		return buf;
	}
	if (usec < 10 * SEC_USEC) {
		format_tenths(buf, usec, SEC_USEC, "s");
		return buf;
	}
	while (seconds % steps[i].scale != 0)
		i++;
	(void)snprintf(buf, FORGE_FORMAT_MAX, "%" PRIu64 "%s", seconds / steps[i].scale,
		       steps[i].name);
	return or_unlimited(buf, &duration_kind);
}
