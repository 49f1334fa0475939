/* SPDX-License-Identifier: Apache-2.0 */
/* Commands whose first word is a verb, such as forge runtime list, by their rows. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/near.h"
#include "cli/cli.h"

/* More verbs than any command has. */
#define VERBS_MAX 16

static size_t names_of(const struct forge_cmd *cmd, const char *names[VERBS_MAX])
{
	size_t n = 0;

	for (const struct forge_verb *v = cmd->verbs; v->name && n < VERBS_MAX; v++)
		names[n++] = v->name;
	return n;
}

/* Joins the names with this text between them. */
static void join(const struct forge_cmd *cmd, const char *between, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (const struct forge_verb *v = cmd->verbs; v->name && len < size; v++)
		len += (size_t)snprintf(buf + len, size - len, "%s%s", len ? between : "",
					v->name);
}

const char *forge_cmd_first(const struct forge_cmd *cmd, char buf[FORGE_SYNOPSIS_MAX])
{
	if (!cmd->verbs)
		return cmd->first;
	join(cmd, "|", buf, FORGE_SYNOPSIS_MAX);
	return buf;
}

const char *forge_cmd_synopsis(const struct forge_cmd *cmd, char buf[FORGE_SYNOPSIS_MAX])
{
	if (!cmd->verbs)
		return cmd->synopsis;
	size_t len = (size_t)snprintf(buf, FORGE_SYNOPSIS_MAX, "[OPTIONS]");
	for (const struct forge_verb *v = cmd->verbs; v->name && len < FORGE_SYNOPSIS_MAX;
	     v++)
		len += (size_t)snprintf(buf + len, FORGE_SYNOPSIS_MAX - len, "%s%s%s%s",
					v == cmd->verbs ? " " : " | ", v->name,
					v->words ? " " : "", v->words ? v->words : "");
	return buf;
}

void forge_verbs_print(FILE *f, const struct forge_cmd *cmd)
{
	size_t width = 0;

	for (const struct forge_verb *v = cmd->verbs; v->name; v++) {
		size_t len = strlen(v->name) + (v->words ? 1 + strlen(v->words) : 0);
		width = len > width ? len : width;
	}
	for (const struct forge_verb *v = cmd->verbs; v->name; v++) {
		int len = fprintf(f, "%s%s%s", v->name, v->words ? " " : "",
				  v->words ? v->words : "");
		fprintf(f, "%*s%s\n", (int)width + 2 - len, "", v->help);
	}
}

static int fail_unknown(const struct forge_cmd *cmd, const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *names[VERBS_MAX];
	char have[FORGE_SYNOPSIS_MAX];
	size_t n = names_of(cmd, names);
	const char *near = word ? forge_near_miss(word, names, n) : NULL;

	join(cmd, ", ", have, sizeof(have));
	if (word)
		(void)forge_fail(&err, EINVAL,
				 "%s: unknown word '%.64s' (have: %s)%s%s%s", cmd->name,
				 word, have, near ? "; did you mean '" : "",
				 near ? near : "", near ? "'?" : "");
	else
		(void)forge_fail(&err, EINVAL, "%s: a word is missing (have: %s)",
				 cmd->name, have);
	return forge_print_usage(cmd, &err);
}

int forge_verb_run(const struct forge_cmd *cmd, int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const struct forge_verb *v = cmd->verbs;

	while (argc > 0 && v->name && strcmp(v->name, argv[0]) != 0)
		v++;
	if (argc == 0 || !v->name)
		return fail_unknown(cmd, argc ? argv[0] : NULL);
	int refused = forge_refuse_words(cmd, argc, argv, v->words ? 2 : 1);
	if (refused)
		return refused;
	if (v->words && *v->words != '[' && argc < 2) {
		(void)forge_fail(&err, EINVAL, "%s %s: no %s given", cmd->name, v->name,
				 v->words);
		return forge_print_usage(cmd, &err);
	}
	refused = cmd->check ? cmd->check(v->name) : 0;
	return refused ? refused : v->run(argc > 1 ? argv[1] : NULL);
}
