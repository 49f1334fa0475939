/* SPDX-License-Identifier: Apache-2.0 */
/* forge token: who may ask the server. */
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/session.h"
#include "cli/table.h"
#include "server/token.h"

/* Times of records have years of four digits. */
#define EXPIRES_MAX (100ULL * 366 * 24 * 3600)

static bool is_json, is_operator;
static const char *expires;

static const struct forge_opt *token_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "operator", &is_operator,
			   "new: it may start and end runs, too"),
		FORGE_STRING(0, "expires", "TIME", &expires,
			     "new: it is of no use after 30d, 12h ... (default: never)"),
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

static int open_home(struct forge_home *home)
{
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_home_open(true, home, &err);

	return rc < 0 ? forge_session_fail(&err) : 0;
}

static int parse_expiry(int64_t *ret, struct forge_error *err)
{
	uint64_t usec;

	*ret = 0;
	if (!expires)
		return 0;
	int rc = forge_parse_duration(expires, &usec, err);
	if (rc < 0)
		return forge_wrap(err, rc, "--expires");
	if (usec != FORGE_UNLIMITED && usec / 1000000 > EXPIRES_MAX)
		return forge_fail(err, EINVAL, "--expires: %s is more than 100 years",
				  expires);
	if (usec != FORGE_UNLIMITED)
		*ret = (int64_t)time(NULL) + (int64_t)(usec / 1000000);
	return 0;
}

static int run_new(const char *name)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	forge_auto_json json_t *made = NULL;
	char token[FORGE_TOKEN_MAX];
	int64_t until;
	int rc = name ? forge_parse_id(name, NULL) : 0;

	if (rc < 0)
		rc = forge_fail(&err, EINVAL,
				"NAME: '%.64s' is not a name for a token (write 1 to 64 "
				"letters, digits, '.', '_' or '-', first a letter or "
				"digit, without '..')",
				name);
	if (rc == 0)
		rc = parse_expiry(&until, &err);
	if (rc < 0)
		return forge_session_fail(&err);
	if (open_home(&home) != 0)
		return FORGE_EXIT_FAILED;
	rc = forge_token_new(&home, name ? name : "",
			     is_operator ? FORGE_ACCESS_OPERATOR : FORGE_ACCESS_READ,
			     until, token, &made, &err);
	if (rc < 0)
		return forge_session_fail(&err);
	if (is_json) {
		json_object_set_new(made, "token", json_string(token));
		forge_print_json(made);
	} else {
		puts(token);
		fprintf(stderr, "forge: token %s may %s; it is not shown again\n",
			forge_json_string(made, "id"),
			is_operator ? "see, start and end runs" : "see runs");
	}
	return FORGE_EXIT_OK;
}

static int run_list(const char *word)
{
	enum { ID, NAME, ACCESS, CREATED, EXPIRES, COLUMNS };
	static const char *const keys[COLUMNS] = { "id", "name", "access", "created_at",
						   "expires_at" };
	static const char *const heads[COLUMNS] = { "TOKEN", "NAME", "MAY", "MADE",
						    "EXPIRES" };
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	forge_auto_json json_t *list = NULL;
	size_t i;
	json_t *token;

	(void)word;
	if (open_home(&home) != 0)
		return FORGE_EXIT_FAILED;
	if (forge_token_list(&home, &list, &err) < 0)
		return forge_session_fail(&err);
	if (is_json) {
		forge_print_json(list);
		return FORGE_EXIT_OK;
	}
	size_t n = json_array_size(list);
	forge_auto_free struct forge_cell *cells =
		calloc((n + 1) * COLUMNS, sizeof(*cells));
	for (size_t c = 0; cells && c < COLUMNS; c++)
		cells[c] = (struct forge_cell){ heads[c], FORGE_BOLD };
	if (cells) {
		json_array_foreach (list, i, token)
			for (size_t c = 0; c < COLUMNS; c++)
				cells[(i + 1) * COLUMNS + c].text = forge_json_string_or(
					token, keys[c], c == EXPIRES ? "never" : "");
		forge_table_print(stdout, cells, COLUMNS, n + 1);
	}
	return FORGE_EXIT_OK;
}

static int run_revoke(const char *word)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;

	if (open_home(&home) != 0)
		return FORGE_EXIT_FAILED;
	return forge_token_revoke(&home, word, &err) < 0 ? forge_session_fail(&err)
							 : FORGE_EXIT_OK;
}

static const struct forge_verb verbs[] = {
	{ "new", "[NAME]", "makes one and prints it, this once", run_new },
	{ "list", NULL, "shows which there are", run_list },
	{ "revoke", "TOKEN", "ends one, by its id or name", run_revoke },
	{ .name = NULL },
};

const struct forge_cmd forge_cmd_token = {
	.name = "token",
	.help = "Tokens for the HTTP interface",
	.examples = "  forge token new grafana\n"
		    "  forge token new --operator --expires 30d pipeline\n",
	.about = "A token that is made without --operator may see everything that `forge "
		 "serve` "
		 "shows, and\n"
		 "change nothing. Only digests of tokens are stored. A running server "
		 "notices new and "
		 "revoked\n"
		 "tokens at once.",
	.bad_value = FORGE_EXIT_FAILED,
	.verbs = verbs,
	.opts = token_opts,
};
