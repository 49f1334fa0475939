/* SPDX-License-Identifier: Apache-2.0 */
/* The option parser: fills the destinations of table rows. */
#include "cli/opt.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/near.h"

struct parser {
	const struct forge_opt *opts;
	uint64_t seen; /* bit n: row n was given */
};

const char *forge_word_next(const char **words, size_t *ret_len)
{
	const char *word = *words;

	if (!word || !*word)
		return NULL;
	*ret_len = strcspn(word, "|");
	*words = word + *ret_len + (word[*ret_len] == '|');
	return word;
}

bool forge_word_is_one(const char *words, const char *text)
{
	size_t len;

	for (const char *w; (w = forge_word_next(&words, &len));)
		if (strlen(text) == len && memcmp(w, text, len) == 0)
			return true;
	return false;
}

static const struct forge_opt *find_name(const struct forge_opt *opts, const char *name,
					 size_t len)
{
	forge_opt_foreach (o, opts) {
		if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
			return o;
	}
	return NULL;
}

static const struct forge_opt *find_letter(const struct forge_opt *opts, char letter)
{
	forge_opt_foreach (o, opts) {
		if (o->letter == letter)
			return o;
	}
	return NULL;
}

const struct forge_opt *forge_opt_of(const struct forge_opt *opts, const char *word)
{
	if (word[0] != '-' || !word[1])
		return NULL;
	if (word[1] != '-')
		return word[2] ? NULL : find_letter(opts, word[1]);
	const struct forge_opt *o = find_name(opts, word + 2, strcspn(word + 2, "="));
	return o && o->type == FORGE_OPT_FLAG && strchr(word, '=') ? NULL : o;
}

/* Names of options in other programs: docker, sbatch, conda and the like. */
static const struct {
	const char *theirs, *ours;
} foreign[] = {
	{ "m", "memory" },
	{ "mem", "memory" },
	{ "mem-limit", "memory" },
	{ "mem-per-cpu", "memory" },
	{ "t", "timeout" },
	{ "time", "timeout" },
	{ "walltime", "timeout" },
	{ "c", "cpus" },
	{ "cpus-per-task", "cpus" },
	{ "ncpus", "cpus" },
	{ "threads", "cpus" },
	{ "v", "input" },
	{ "volume", "input" },
	{ "mount", "input" },
	{ "bind", "input" },
	{ "e", "env" },
	{ "name", "id" },
	{ "job-name", "id" },
	{ "J", "id" },
	{ "image", "runtime" },
	{ "conda", "runtime" },
	{ "environment", "runtime" },
	{ "net", "network" },
	{ "pids-limit", "pids" },
	{ "outdir", "copy" },
};

/* The option of this command for a name of another program; NULL: none. */
static const struct forge_opt *find_foreign(const struct forge_opt *opts,
					    const char *name, size_t len)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(foreign); i++)
		if (strlen(foreign[i].theirs) == len &&
		    strncmp(foreign[i].theirs, name, len) == 0)
			return find_name(opts, foreign[i].ours, strlen(foreign[i].ours));
	return NULL;
}

static int fail_foreign(const struct forge_opt *o, const char *given, int given_len,
			struct forge_error *err)
{
	return forge_fail(err, EINVAL, "unknown option '%.*s' (here it is --%s%s%s: %s)",
			  given_len, given, o->name, o->metavar ? " " : "",
			  o->metavar ? o->metavar : "", o->help);
}

/* given is what the user typed, name the part of it that should have been a name. */
static int fail_unknown(const struct forge_opt *opts, const char *given, int given_len,
			const char *name, size_t name_len, struct forge_error *err)
{
	const char *names[FORGE_OPTS_MAX], *near = NULL;
	char text[64];
	size_t n = 0;
	const struct forge_opt *known = find_foreign(opts, name, name_len);

	if (known)
		return fail_foreign(known, given, given_len, err);
	if ((name_len == 3 && strncmp(name, "gpu", 3) == 0) ||
	    (name_len == 4 && strncmp(name, "gpus", 4) == 0))
		return forge_fail(err, EINVAL,
				  "unknown option '%.*s' (a run sees no GPU yet)",
				  given_len, given);
	forge_opt_foreach (o, opts)
		names[n++] = o->name;
	if (name_len > 0 && name_len < sizeof(text)) {
		memcpy(text, name, name_len);
		text[name_len] = '\0';
		near = forge_near_miss(text, names, n);
	}
	if (near)
		return forge_fail(err, EINVAL,
				  "unknown option '%.*s' (did you mean --%s?)", given_len,
				  given, near);
	return forge_fail(err, EINVAL, "unknown option '%.*s'", given_len, given);
}

static int set_uint(const struct forge_opt *o, const char *value, struct forge_error *err)
{
	char *end;

	errno = 0;
	unsigned long n = strtoul(value, &end, 10);
	/* strtoul accepts blanks and signs; these are refused here. */
	if (*value < '0' || *value > '9' || *end)
		return forge_fail(err, EDOM, "--%s: '%s' is not a whole number", o->name,
				  value);
	if (errno == ERANGE || n > UINT_MAX)
		return forge_fail(err, EDOM, "--%s: %s is too large", o->name, value);
	*(unsigned *)o->dest = (unsigned)n;
	return 0;
}

static int set_word(const struct forge_opt *o, const char *value, struct forge_error *err)
{
	if (!forge_word_is_one(o->metavar, value))
		return forge_fail(err, EDOM, "--%s: '%s' is not one of %s", o->name,
				  value, o->metavar);
	*(const char **)o->dest = value;
	return 0;
}

static int set(struct parser *p, const struct forge_opt *o, const char *value,
	       struct forge_error *err)
{
	size_t row = (size_t)(o - p->opts);

	assert(row < FORGE_OPTS_MAX);
	if (o->type != FORGE_OPT_STRV && (p->seen >> row & 1))
		return forge_fail(err, EINVAL, "option '--%s' is given twice", o->name);
	p->seen |= UINT64_C(1) << row;
	switch (o->type) {
	case FORGE_OPT_FLAG:
		*(bool *)o->dest = true;
		return 0;
	case FORGE_OPT_UINT:
		return set_uint(o, value, err);
	case FORGE_OPT_STRING:
		*(const char **)o->dest = value;
		return 0;
	case FORGE_OPT_WORD:
		return set_word(o, value, err);
	case FORGE_OPT_STRV:
		if (forge_strv_add(o->dest, value) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
		return 0;
	case FORGE_OPT_GROUP:
	case FORGE_OPT_END:
		break;
	}
	assert(!"no such option type");
	return -EINVAL;
}

/* value is NULL when the option's own word has none; then it is the next word. */
static int set_or_take(struct parser *p, const struct forge_opt *o, const char *value,
		       const char *next, struct forge_error *err)
{
	int took = 0;

	if (o->type != FORGE_OPT_FLAG && !value) {
		if (!next)
			return forge_fail(err, EINVAL, "option '--%s' needs a value (%s)",
					  o->name, o->metavar);
		value = next;
		took = 1;
	}
	int rc = set(p, o, value, err);
	return rc < 0 ? rc : took;
}

static int parse_long(struct parser *p, const char *arg, const char *next,
		      struct forge_error *err)
{
	const char *name = arg + 2, *eq = strchr(name, '=');
	size_t len = eq ? (size_t)(eq - name) : strlen(name);
	const struct forge_opt *o = find_name(p->opts, name, len);

	if (!o)
		return fail_unknown(p->opts, arg, (int)len + 2, name, len, err);
	if (o->type == FORGE_OPT_FLAG && eq)
		return forge_fail(err, EINVAL, "option '--%s' takes no value", o->name);
	return set_or_take(p, o, eq ? eq + 1 : NULL, next, err);
}

/* "-memory", "-mem": a long name, of forge or another program, with one dash. */
static bool is_long_name(const struct forge_opt *opts, const char *name)
{
	size_t len = strcspn(name, "=");

	return find_name(opts, name, len) || find_foreign(opts, name, len);
}

/* "-qk" is -q -k; "-iPATH" is -i PATH. */
static int parse_cluster(struct parser *p, const char *arg, const char *next,
			 struct forge_error *err)
{
	for (const char *c = arg + 1; *c; c++) {
		const struct forge_opt *o = find_letter(p->opts, *c);

		const struct forge_opt *known = o ? NULL : find_foreign(p->opts, c, 1);
		if (known && (c != arg + 1 || !c[1] || !is_long_name(p->opts, c)))
			return fail_foreign(known, arg, (int)(c + 1 - arg), err);
		if (!o && c == arg + 1 && c[1]) /* maybe a long name with one dash */
			return fail_unknown(p->opts, arg, (int)strlen(arg), c,
					    strcspn(c, "="), err);
		if (!o)
			return forge_fail(err, EINVAL, "unknown option '-%c'", *c);
		if (o->type != FORGE_OPT_FLAG)
			return set_or_take(p, o, c[1] ? c + 1 : NULL, next, err);
		int rc = set(p, o, "", err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Returns how many words the option at argv[i] used, 1 or 2. */
static int parse_option(struct parser *p, int argc, char **argv, int i,
			struct forge_error *err)
{
	const char *next = i + 1 < argc ? argv[i + 1] : NULL;
	int took = argv[i][1] == '-' ? parse_long(p, argv[i], next, err)
				     : parse_cluster(p, argv[i], next, err);

	return took < 0 ? took : took + 1;
}

static bool is_option(const char *arg)
{
	return arg[0] == '-' && arg[1] != '\0';
}

int forge_opt_parse(const struct forge_opt *opts, int argc, char **argv,
		    struct forge_error *err)
{
	struct parser p = { .opts = opts };
	int i = 1;

	while (i < argc && is_option(argv[i])) {
		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		int used = parse_option(&p, argc, argv, i, err);
		if (used < 0)
			return used;
		i += used;
	}
	return i < argc ? i : argc;
}

int forge_opt_permute(const struct forge_opt *opts, int argc, char **argv,
		      struct forge_error *err)
{
	struct parser p = { .opts = opts };
	bool only_words = false;
	int n = 1;

	for (int i = 1; i < argc;) {
		if (only_words || !is_option(argv[i])) {
			argv[n++] = argv[i++];
		} else if (strcmp(argv[i], "--") == 0) {
			only_words = true;
			i++;
		} else {
			int used = parse_option(&p, argc, argv, i, err);
			if (used < 0)
				return used;
			i += used;
		}
	}
	if (n < argc)
		argv[n] = NULL;
	return n;
}
