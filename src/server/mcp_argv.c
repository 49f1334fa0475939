/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may ask for, and the arguments that it becomes. Everything that the caller of the server
 * fixed is checked here. forge itself checks inputs once more (--input-below), when it resolves them for the
 * last time.
 */
#include "server/mcp_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"

/* The kernel allows 128 KiB for one argument of a program. */
#define CODE_MAX (120u << 10)
/* ... and 2 MiB for all, together with the environment. */
#define COMMAND_MAX (1u << 20)
#define WORDS_MAX   4096

/* ---- limits ---- */

/* The rows of the limits that can be asked for, and the option that caps each. */
static const struct {
	const char *name, *cap;
} limited[] = { { "memory", "--max-memory" },
		{ "cpus", "--max-cpus" },
		{ "timeout", "--max-time" },
		{ "disk", "--max-disk" } };

static const struct forge_limit_row *row_of(const char *name)
{
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].name, name) == 0)
			return &forge_limit_rows[i];
	return NULL;
}

bool forge_mcp_has_caps(const struct forge_mcp_options *o)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(limited); i++)
		if (forge_limit_value(&o->caps, row_of(limited[i].name)))
			return true;
	return false;
}

/* The value as forge reads it back: the same, never more. */
static int add_limit(struct forge_strv *options, const struct forge_limit_row *row,
		     uint64_t value)
{
	char text[FORGE_FORMAT_MAX];

	if (value == FORGE_UNLIMITED)
		return forge_strv_addf(options, "--%s=unlimited", row->name);
	if (row->type == FORGE_LIMIT_CPUS)
		return forge_strv_addf(options, "--%s=%s", row->name,
				       forge_format_cpus(text, value));
	if (row->type == FORGE_LIMIT_DURATION)
		return forge_strv_addf(options, "--%s=%llums", row->name,
				       (unsigned long long)(value / 1000));
	return forge_strv_addf(options, "--%s=%llu", row->name,
			       (unsigned long long)value);
}

static int too_much(const struct forge_limit_row *row, const char *option, uint64_t value,
		    uint64_t cap, const char *whose, struct forge_error *err)
{
	char have[FORGE_FORMAT_MAX], most[FORGE_FORMAT_MAX];

	return forge_hint(
		err,
		forge_fail(err, EPERM, "%s%s %s is above %s %s of this server", whose,
			   row->name, forge_limit_format(have, row, value), option,
			   forge_limit_format(most, row, cap)),
		"Ask for at most %s; only the person who started the server can "
		"allow more",
		forge_limit_format(most, row, cap));
}

/* A string or a number, as text. */
static const char *amount_text(const json_t *value, char buf[FORGE_FORMAT_MAX])
{
	if (json_is_string(value))
		return json_string_value(value);
	if (json_is_integer(value))
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%lld",
			       (long long)json_integer_value(value));
	else
		(void)snprintf(buf, FORGE_FORMAT_MAX, "%.3f", json_real_value(value));
	return buf;
}

static int read_limits(struct forge_mcp_call *c, struct forge_error *err)
{
	char buf[FORGE_FORMAT_MAX];

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(limited); i++) {
		const struct forge_limit_row *row = row_of(limited[i].name);
		const json_t *asked = json_object_get(c->args, limited[i].name);
		uint64_t cap = forge_limit_value(&c->m->o->caps, row);
		if (!asked)
			continue;
		int rc = forge_limit_set(&c->given, row, amount_text(asked, buf), err);
		if (rc < 0)
			return forge_wrap(err, rc, "%s", row->name);
		uint64_t value = forge_limit_value(&c->given, row);
		if (cap && value > cap)
			return too_much(row, limited[i].cap, value, cap, "", err);
		if (add_limit(&c->options, row, value) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

/*
 * The command line goes before the profile, the runtime and the script, whatever is in them by then. Where a
 * default is above the cap, the cap is the limit; what a script asks for is a request.
 */
int forge_mcp_build_limits(struct forge_mcp_call *c, const json_t *explained,
			   struct forge_error *err)
{
	size_t i;
	const json_t *line;

	json_array_foreach (explained, i, line) {
		const char *key = forge_json_string_or(line, "limit", "");
		const char *from = forge_json_string_or(line, "from", "");
		const json_t *number = json_object_get(line, "number");
		bool is_request =
			strcmp(from, "script") == 0 || strcmp(from, "forge.yaml") == 0;
		for (size_t k = 0; k < FORGE_ARRAY_SIZE(limited); k++) {
			const struct forge_limit_row *row = row_of(limited[k].name);
			uint64_t cap = forge_limit_value(&c->m->o->caps, row);
			uint64_t value = json_is_integer(number)
						 ? (uint64_t)json_integer_value(number)
						 : FORGE_UNLIMITED;
			if (strcmp(row->key, key) != 0 || !cap ||
			    forge_limit_value(&c->given, row))
				continue;
			if (is_request && value > cap)
				return too_much(row, limited[k].cap, value, cap,
						"the script's ", err);
			if (add_limit(&c->options, row, value < cap ? value : cap) < 0)
				return forge_fail(err, ENOMEM, "out of memory");
		}
	}
	return 0;
}

/* ---- advice ---- */

/* "4G": how much of which limit; NULL: it is none that a tool has. */
static const struct forge_limit_row *advised(const char *option, size_t len,
					     const char *text, const char **ret_cap,
					     uint64_t *ret_value)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(limited); i++) {
		struct forge_limits l = { .memory_bytes = 0 };
		if (strlen(limited[i].name) != len ||
		    strncmp(limited[i].name, option, len) != 0)
			continue;
		const struct forge_limit_row *row = row_of(limited[i].name);
		if (forge_limit_set(&l, row, text, NULL) < 0)
			return NULL;
		*ret_cap = limited[i].cap;
		*ret_value = forge_limit_value(&l, row);
		return row;
	}
	return NULL;
}

/* How much longer the sentence can become. */
#define ADDED_MAX 200

const char *forge_mcp_notes(const struct forge_mcp_options *o, const char *notes,
			    char buf[FORGE_MCP_NOTES_MAX])
{
	static const char advice[] = "Retry with --";
	const char *at = NULL, *cap = NULL;
	char text[FORGE_FORMAT_MAX], most[FORGE_FORMAT_MAX];
	uint64_t value = 0;

	(void)snprintf(buf, FORGE_MCP_NOTES_MAX, "%s", notes);
	/* The last one: what is before it may be the name of a process. */
	for (const char *p = notes; (p = strstr(p, advice)); p++)
		at = p;
	/* A record from elsewhere can have any length. */
	if (!at || strlen(notes) + ADDED_MAX > FORGE_MCP_NOTES_MAX)
		return buf;
	const char *option = at + strlen(advice);
	size_t len = strcspn(option, " "), n = (size_t)(at - notes);
	const char *amount = option + len + (option[len] == ' ');
	size_t size = strspn(amount, "0123456789abcdefghijklmnopqrstuvwxyz"
				     "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
	const char *rest = amount + size;
	(void)snprintf(text, sizeof(text), "%.*s", (int)(size < 32 ? size : 0), amount);
	const struct forge_limit_row *row = advised(option, len, text, &cap, &value);
	uint64_t fixed = row && o ? forge_limit_value(&o->caps, row) : 0;
	if (!o)
		(void)snprintf(buf + n, FORGE_MCP_NOTES_MAX - n,
			       "Its limit is in the file of the pipeline (%.*s)%s",
			       (int)len, option, rest);
	else if (!row)
		(void)snprintf(buf + n, FORGE_MCP_NOTES_MAX - n,
			       "No argument of a tool changes this limit (%.*s)%s",
			       (int)len, option, rest);
	else if (fixed && value > fixed)
		(void)snprintf(buf + n, FORGE_MCP_NOTES_MAX - n,
			       "%s %s would be above the %s that were fixed for this "
			       "server (%s): make it need less%s",
			       row->name, text, forge_limit_format(most, row, fixed), cap,
			       rest);
	else
		(void)snprintf(buf + n, FORGE_MCP_NOTES_MAX - n, "Retry with %s %s%s",
			       row->name, text, rest);
	return buf;
}

void forge_mcp_reword(const struct forge_mcp_options *o, json_t *list, const char *key)
{
	char notes[FORGE_MCP_NOTES_MAX];
	size_t i;
	json_t *one;

	json_array_foreach (list, i, one) {
		const char *said = forge_json_string(one, key);
		if (said)
			json_object_set_new(one, key,
					    json_string(forge_mcp_notes(o, said, notes)));
	}
}

/* ---- inputs ---- */

static int not_allowed(const char *what, const char *path,
		       const struct forge_mcp_options *o, struct forge_error *err)
{
	int rc = forge_fail(err, EPERM, "%s %s is not below a directory of --allow-input",
			    what, path);

	if (!o->inputs.n)
		return forge_hint(err, rc,
				  "This server allows no inputs; only the person who "
				  "started it can allow a directory");
	return forge_hint(err, rc, "Allowed: %s%s", o->inputs.v[0],
			  o->inputs.n > 1 ? " and others" : "");
}

/* Says it in words of the server; forge checks it again when nothing can change any more. */
static int check_input(const struct forge_mcp_options *o, const char *what,
		       const char *path, struct forge_error *err)
{
	forge_auto_free char *real = realpath(path, NULL);

	forge_strv_foreach (top, &o->inputs)
		if (real && forge_path_is_below(real, top))
			return 0;
	/* Whether a file outside exists is not reported. */
	forge_auto_free char *cwd = getcwd(NULL, 0);
	forge_auto_free char *whole =
		*path == '/' ? strdup(path)
			     : forge_asprintf("%s/%s", cwd ? cwd : "", path);
	forge_strv_foreach (top, &o->inputs)
		if (!real && whole && !strstr(whole, "..") &&
		    forge_path_is_below(whole, top))
			return forge_fail(err, ENOENT, "%s %s: No such file or directory",
					  what, path);
	return not_allowed(what, path, o, err);
}

/* A command that is a file of the host becomes an input. */
static int check_program(const struct forge_mcp_options *o, const char *word,
			 struct forge_error *err)
{
	forge_auto_free char *real = realpath(word, NULL);
	struct stat st;

	if (!real || stat(real, &st) < 0 || !S_ISREG(st.st_mode) ||
	    forge_path_is_below(real, "/usr"))
		return 0; /* forge looks for it on the PATH of the run */
	return strchr(word, '/') ? check_input(o, "the script", word, err) : 0;
}

static int add_roots(const struct forge_mcp_options *o, struct forge_strv *options)
{
	int rc = o->inputs.n ? 0 : forge_strv_add(options, "--input-below=none");

	forge_strv_foreach (top, &o->inputs)
		if (rc == 0)
			rc = forge_strv_addf(options, "--input-below=%s", top);
	return rc;
}

static int add_inputs(struct forge_mcp_call *c, struct forge_error *err)
{
	size_t i;
	const json_t *path;

	json_array_foreach (json_object_get(c->args, "inputs"), i, path) {
		int rc = check_input(c->m->o, "input", json_string_value(path), err);
		if (rc < 0)
			return rc;
		if (forge_strv_addf(&c->options, "--input=%s", json_string_value(path)) <
		    0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return add_roots(c->m->o, &c->options) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

/* ---- runtime, network, executor, variables ---- */

static void list_names(const struct forge_strv *names, char *buf, size_t size)
{
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < names->n && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? ", " : "",
				      names->v[i]);
}

int forge_mcp_check_runtime(const struct forge_mcp_options *o, const char *name,
			    struct forge_error *err)
{
	char names[256];

	/* A path would make a directory of the host visible. */
	if (forge_parse_id(name, NULL) < 0)
		return forge_fail(err, EINVAL, "runtime: '%.64s' is not a name", name);
	if (!o->runtimes.n)
		return 0;
	forge_strv_foreach (allowed, &o->runtimes)
		if (strcmp(allowed, name) == 0)
			return 0;
	list_names(&o->runtimes, names, sizeof(names));
	return forge_hint(
		err,
		forge_fail(err, EPERM, "runtime %s is not one of this server's", name),
		"It has: %s (--runtime)", names);
}

/* Where the server has runtimes, a run is in one of them. */
static int choose_runtime(struct forge_mcp_call *c, const char *name,
			  struct forge_error *err)
{
	const struct forge_mcp_options *o = c->m->o;
	char names[256];

	if (!name && !o->runtimes.n)
		return 0;
	if (!name && o->runtimes.n > 1) {
		list_names(&o->runtimes, names, sizeof(names));
		return forge_fail(err, EINVAL, "runtime is needed here: one of %s",
				  names);
	}
	name = name ? name : o->runtimes.v[0];
	int rc = forge_mcp_check_runtime(o, name, err);
	if (rc == 0 && forge_strv_addf(&c->options, "--runtime=%s", name) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}

static int choose_network(struct forge_mcp_call *c, const char *network,
			  struct forge_error *err)
{
	if (network && strcmp(network, "host") == 0 && !c->m->o->allow_network)
		return forge_hint(err,
				  forge_fail(err, EPERM,
					     "the network is not allowed on this server"),
				  "Only the person who started it can allow it "
				  "(--allow-network)");
	return forge_strv_addf(&c->options, "--network=%s", network ? network : "none") <
			       0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int add_variables(struct forge_mcp_call *c, struct forge_error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach(json_object_get(c->args, "env"), name, value)
	{
		int rc = forge_parse_env_name(name, strlen(name), err);
		if (rc < 0)
			return forge_wrap(err, rc, "env");
		if (forge_strv_addf(&c->options, "--env=%s=%s", name,
				    json_string_value(value)) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

static int add_rest(struct forge_mcp_call *c, struct forge_error *err)
{
	const char *name = forge_json_string(c->args, "name");
	size_t i;
	const json_t *pattern;
	int rc = 0;

	json_array_foreach (json_object_get(c->args, "outputs"), i, pattern)
		if (rc == 0)
			rc = forge_strv_addf(&c->options, "--output=%s",
					     json_string_value(pattern));
	if (rc == 0 && name)
		rc = forge_strv_addf(&c->options, "--id=%s", name);
	if (rc == 0 && c->m->o->executor)
		rc = forge_strv_addf(&c->options, "--executor=%s", c->m->o->executor);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

/* ---- the command ---- */

static int add_words(struct forge_strv *to, const char *const *words)
{
	int rc = 0;

	for (; *words && rc == 0; words++)
		rc = forge_strv_add(to, *words);
	return rc;
}

/*
 * The code is an argument: it is then in the record, and the run can be repeated. R reads no text of several lines
 * there, so that it gets the text as an argument of its own program.
 */
static int code_command(struct forge_mcp_call *c, const char *code,
			struct forge_error *err)
{
	const char *language = forge_json_string_or(c->args, "language", "python");
	static const char *const python[] = { "python3", "-c", NULL },
				 *const bash[] = { "bash", "-c", NULL },
				 *const r[] = { "Rscript", "-e",
						"source(exprs=parse(text=commandArgs("
						"TRUE)[1]),print.eval=TRUE)",
						NULL };

	if (!*code)
		return forge_fail(err, EINVAL, "code is empty");
	if (strlen(code) > CODE_MAX)
		return forge_hint(
			err,
			forge_fail(err, E2BIG,
				   "code has %zu bytes; at most %u are possible",
				   strlen(code), CODE_MAX),
			"Give what is data as an input, or make it in the code");
	int rc = add_words(&c->command, strcmp(language, "bash") == 0 ? bash
					: strcmp(language, "R") == 0  ? r
								      : python);
	if (rc == 0)
		rc = forge_strv_add(&c->command, code);
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

static int check_command(const struct forge_mcp_options *o, const json_t *command,
			 struct forge_error *err)
{
	size_t i, n = json_array_size(command), bytes = 0;
	const json_t *word;

	if (n == 0 || n > WORDS_MAX)
		return forge_fail(err, EINVAL, "command has %zu words, not 1 to %d", n,
				  WORDS_MAX);
	json_array_foreach (command, i, word) {
		bytes += json_string_length(word) + 1;
		if (json_string_length(word) > CODE_MAX || bytes > COMMAND_MAX)
			return forge_fail(err, E2BIG,
					  "command is too long: a word can have %u "
					  "bytes, and all %u",
					  CODE_MAX, COMMAND_MAX);
	}
	return check_program(o, json_string_value(json_array_get(command, 0)), err);
}

static int set_command(struct forge_mcp_call *c, struct forge_error *err)
{
	const char *code = forge_json_string(c->args, "code");
	const json_t *command = json_object_get(c->args, "command"), *word;
	size_t i;

	if (!code == !command)
		return forge_fail(err, EINVAL,
				  code ? "code and command exclude each other"
				       : "code or command is needed");
	if (code)
		return code_command(c, code, err);
	if (json_object_get(c->args, "language"))
		return forge_fail(err, EINVAL, "language belongs to code");
	int rc = check_command(c->m->o, command, err);
	json_array_foreach (command, i, word)
		if (rc == 0 && forge_strv_add(&c->command, json_string_value(word)) < 0)
			rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}

int forge_mcp_build_run(struct forge_mcp_call *c, struct forge_error *err)
{
	int rc = set_command(c, err);

	if (rc == 0)
		rc = read_limits(c, err);
	if (rc == 0)
		rc = add_inputs(c, err);
	if (rc == 0)
		rc = choose_runtime(c, forge_json_string(c->args, "runtime"), err);
	if (rc == 0)
		rc = choose_network(c, forge_json_string(c->args, "network"), err);
	if (rc == 0)
		rc = add_variables(c, err);
	return rc < 0 ? rc : add_rest(c, err);
}

/* ---- again ---- */

/* What a run may have been asked for to be repeated: all of it can be checked here. */
static int check_asked(const json_t *asked, const char *run_id, struct forge_error *err)
{
	static const char *const known[] = { "command",	 "cwd",		"inputs",
					     "outputs",	 "env",		"runtime",
					     "executor", "profile",	"id",
					     "network",	 "parameters",	"limits",
					     "script",	 "input_below", "retry" };
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach((json_t *)asked, key, value)
	{ /* NOLINT: not changed */
		bool is_known = false;
		for (size_t k = 0; k < FORGE_ARRAY_SIZE(known); k++)
			is_known = is_known || strcmp(key, known[k]) == 0;
		if (!is_known)
			return forge_fail(err, EPERM,
					  "run %s was asked for with '%s', which this "
					  "server does not repeat",
					  run_id, key);
	}
	json_array_foreach (json_object_get(asked, "env"), i, value)
		if (!json_string_value(value) || !strchr(json_string_value(value), '='))
			return forge_fail(
				err, EPERM,
				"run %s had the variable %s, whose value was not "
				"kept",
				run_id,
				json_string_value(value) ? json_string_value(value) : "");
	return 0;
}

/* The configuration of another directory is not the one that this server was started with. */
static int check_place(const json_t *asked, const char *run_id, struct forge_error *err)
{
	forge_auto_free char *cwd = getcwd(NULL, 0);
	const char *there = forge_json_string_or(asked, "cwd", "");

	return cwd && strcmp(cwd, there) == 0
		       ? 0
		       : forge_fail(
				 err, EPERM,
				 "run %s was asked for in %s, not where this server is",
				 run_id, there);
}

static int check_executor(const struct forge_mcp_options *o, const json_t *asked,
			  const char *run_id, struct forge_error *err)
{
	const char *name = forge_json_string(asked, "executor");

	return !name || o->executor
		       ? 0
		       : forge_fail(err, EPERM,
				    "run %s was asked for on the executor %s, which this "
				    "server does not use",
				    run_id, name);
}

/* What it had, where nothing else is asked for now. */
static int repeat_limits(struct forge_mcp_call *c, struct forge_error *err)
{
	const json_t *had = json_object_get(c->record, "limits");

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(limited); i++) {
		const struct forge_limit_row *row = row_of(limited[i].name);
		uint64_t cap = forge_limit_value(&c->m->o->caps, row);
		const json_t *value = json_object_get(had, row->json);
		double scale = row->type == FORGE_LIMIT_DURATION ? 1e6
			       : row->type == FORGE_LIMIT_CPUS	 ? 1e3
								 : 1;
		if (!cap || forge_limit_value(&c->given, row))
			continue;
		uint64_t n = json_is_number(value)
				     ? (uint64_t)(json_number_value(value) * scale + 0.5)
				     : FORGE_UNLIMITED;
		if (n > cap)
			return too_much(row, limited[i].cap, n, cap, "the run's ", err);
		if (add_limit(&c->options, row, n) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}

int forge_mcp_build_rerun(struct forge_mcp_call *c, struct forge_error *err)
{
	const json_t *asked = json_object_get(c->record, "asked"), *path;
	const json_t *command = json_object_get(asked, "command");
	const char *run_id = forge_json_string_or(c->record, "run_id", "");
	size_t i;

	if (!json_is_object(asked) || json_object_get(c->record, "step"))
		return forge_fail(err, EINVAL,
				  "run %s is one that cannot be repeated here", run_id);
	int rc = check_asked(asked, run_id, err);
	if (rc == 0)
		rc = check_place(asked, run_id, err);
	if (rc == 0)
		rc = check_executor(c->m->o, asked, run_id, err);
	if (rc == 0)
		rc = check_command(c->m->o, command, err);
	json_array_foreach (json_object_get(asked, "inputs"), i, path)
		if (rc == 0)
			rc = check_input(c->m->o, "input",
					 json_string_value(path) ? json_string_value(path)
								 : "",
					 err);
	if (rc == 0)
		rc = read_limits(c, err);
	if (rc == 0)
		rc = repeat_limits(c, err);
	if (rc == 0)
		rc = choose_runtime(c, forge_json_string(asked, "runtime"), err);
	if (rc == 0)
		rc = choose_network(c, forge_json_string(asked, "network"), err);
	if (rc == 0 && add_roots(c->m->o, &c->options) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc < 0 ? rc : add_rest(c, err);
}

/* ---- pipelines ---- */

const char *forge_mcp_find_pipeline(const struct forge_mcp_options *o, const char *name,
				    struct forge_error *err)
{
	forge_strv_foreach (known, &o->pipelines)
		if (strcmp(known, name) == 0)
			return known;
	(void)forge_hint(
		err,
		forge_fail(err, ENOENT, "'%.200s' is no pipeline of this server", name),
		"list_pipelines lists them");
	return NULL;
}

/* As a file has it: 1, 0.5, true. The shortest text of a number that is still the same number. */
static char *param_text(const json_t *value)
{
	char *text = NULL;

	if (json_is_string(value))
		return strdup(json_string_value(value));
	for (size_t digits = 15; digits <= 17; digits++) {
		free(text);
		text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
		if (!json_is_real(value) ||
		    (text && strtod(text, NULL) == json_real_value(value)))
			break;
	}
	return text;
}

int forge_mcp_add_params(const struct forge_mcp_options *o, const json_t *params,
			 struct forge_strv *argv, struct forge_error *err)
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)params, name, value)
	{ /* NOLINT: not changed */
		forge_auto_free char *text = param_text(value);
		int rc = forge_parse_env_name(name, strlen(name), err);
		if (rc < 0)
			return forge_wrap(err, rc, "params");
		if (!text)
			return forge_fail(err, ENOMEM, "out of memory");
		/* A step may make a path of it. */
		if (strstr(text, ".."))
			return forge_fail(err, EPERM, "params: %s has '..' in it", name);
		if (strchr(text, '/'))
			rc = *text == '/' ? check_input(o, "parameter", text, err)
					  : not_allowed("parameter", text, o, err);
		if (rc < 0)
			return rc;
		if (forge_strv_addf(argv, "--param=%s=%s", name, text) < 0)
			return forge_fail(err, ENOMEM, "out of memory");
	}
	return 0;
}
