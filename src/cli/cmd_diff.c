/* SPDX-License-Identifier: Apache-2.0 */
/* forge diff: shows the differences between two runs. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/strv.h"
#include "cli/session.h"
#include "config/limits.h"
#include "run/runtime_identity.h"
#include "spec/asked.h"
#include "state/home.h"
#include "state/objects.h"

static bool is_json;

static const struct forge_opt *diff_opts(void)
{
	static const struct forge_opt opts[] = {
		FORGE_FLAG(0, "json", &is_json, "Print JSON"),
		FORGE_STORE_ROW,
		FORGE_CONFIG_ROW,
		FORGE_HELP_ROW,
		FORGE_OPTS_END,
	};

	return opts;
}

/* Adds a difference: {"what": "input", "name": "data/x.csv", "a": ..., "b": ...}. */
static void add(json_t *list, const char *what, const char *name, const json_t *a,
		const json_t *b)
{
	json_t *row;

	if ((!a || json_is_null(a)) && (!b || json_is_null(b)))
		return;
	if (a && b && json_equal(a, b))
		return;
	row = json_pack("{s:s, s:s}", "what", what, "name", name ? name : "");
	json_object_set_new(row, "a", a ? json_incref((json_t *)a) : json_null());
	json_object_set_new(row, "b", b ? json_incref((json_t *)b) : json_null());
	json_array_append_new(list, row);
}

/* Compares every key of either object. */
static void add_keys(json_t *list, const char *what, json_t *a, json_t *b)
{
	const char *key;
	json_t *value;

	json_object_foreach(a, key, value)
		add(list, what, key, value, json_object_get(b, key));
	json_object_foreach(b, key, value) if (!json_object_get(a, key))
		add(list, what, key, NULL, value);
}

/* [{path, sha256}] as {path: sha256}. */
static json_t *by_path(const json_t *record, const char *key)
{
	json_t *map = json_object();
	size_t i;
	const json_t *f;

	const json_t *files = json_object_get(record, key);

	/* Removed outputs count as well: the run made them. */
	if (strcmp(key, "outputs") == 0 && json_object_get(record, "outputs_removed"))
		files = json_object_get(record, "outputs_removed");
	json_array_foreach (files, i, f) {
		const char *path = forge_json_string(f, "path");
		json_t *digest = json_object_get(f, "sha256");
		if (path)
			json_object_set(map, path, digest ? digest : json_null());
	}
	return map;
}

/* ["K=V", "K"] as {K: V}. */
static json_t *by_name(const json_t *record)
{
	json_t *map = json_object();
	size_t i;
	const json_t *var;

	json_array_foreach (json_object_get(json_object_get(record, "asked"), "env"), i,
			    var) {
		const char *text = json_string_value(var);
		const char *eq = text ? strchr(text, '=') : NULL;
		forge_auto_free char *name =
			text ? strndup(text, strcspn(text, "=")) : NULL;
		if (name)
			json_object_set_new(map, name,
					    json_string(eq ? eq + 1 : "(not kept)"));
	}
	return map;
}

static void add_files(json_t *list, const char *what, const json_t *a, const json_t *b,
		      const char *key)
{
	json_t *x = by_path(a, key), *y = by_path(b, key);

	add_keys(list, what, x, y);
	json_decref(x);
	json_decref(y);
}

/* Adds every other package, where both lists are known here. */
static void add_packages(json_t *list, const json_t *x, const json_t *y)
{
	forge_auto_home struct forge_home home = FORGE_HOME_INIT;
	size_t i;
	const json_t *row;

	if (forge_home_open(false, &home, NULL) < 0)
		return;
	forge_auto_json json_t *p =
		forge_runtime_packages_of(&home, forge_json_string(x, "digest"));
	forge_auto_json json_t *q =
		forge_runtime_packages_of(&home, forge_json_string(y, "digest"));
	if (!p || !q)
		return;
	/* Those with another version in the probe have their row already. */
	json_array_foreach (list, i, row) {
		const char *name = forge_json_string_or(row, "name", "");
		if (strcmp(forge_json_string_or(row, "what", ""), "package") != 0)
			continue;
		(void)json_object_del(p, name);
		(void)json_object_del(q, name);
	}
	add_keys(list, "package", p, q);
}

static void add_runtime(json_t *list, const json_t *a, const json_t *b)
{
	json_t *x = json_object_get(a, "runtime"), *y = json_object_get(b, "runtime");

	add(list, "runtime", "name", json_object_get(x, "name"),
	    json_object_get(y, "name"));
	add(list, "runtime", "digest", json_object_get(x, "digest"),
	    json_object_get(y, "digest"));
	add_keys(list, "package", json_object_get(x, "versions"),
		 json_object_get(y, "versions"));
	add_packages(list, x, y);
}

static json_t *compare(const json_t *a, const json_t *b)
{
	static const char *const plain[] = {
		"command", "network", "profile", "host",
		"user",	   "status",  "reason",	 "exit_code"
	};
	const json_t *x = json_object_get(a, "asked"), *y = json_object_get(b, "asked");
	json_t *list = json_array(), *e = by_name(a), *f = by_name(b);

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(plain); i++)
		add(list, plain[i], NULL, json_object_get(a, plain[i]),
		    json_object_get(b, plain[i]));
	add(list, "directory", NULL, json_object_get(x, "cwd"),
	    json_object_get(y, "cwd"));
	add(list, "patterns", NULL, json_object_get(x, "outputs"),
	    json_object_get(y, "outputs"));
	add_keys(list, "variable", e, f);
	json_decref(e);
	json_decref(f);
	add_files(list, "input", a, b, "inputs");
	add_runtime(list, a, b);
	add_keys(list, "limit", json_object_get(a, "limits"),
		 json_object_get(b, "limits"));
	add_files(list, "output", a, b, "outputs");
	return list;
}

/* ---- output as text ---- */

static void print_value(const json_t *v)
{
	const char *text = json_string_value(v);
	size_t i;
	const json_t *word;

	if (!v || json_is_null(v)) {
		fputs("-", stdout);
	} else if (text && forge_objects_is_digest(text)) {
		printf("%.19s", text);
	} else if (text) {
		forge_print_clean(stdout, text, strlen(text));
	} else if (json_is_array(v)) {
		json_array_foreach (v, i, word) {
			if (i)
				putchar(' ');
			print_value(word);
		}
	} else {
		forge_auto_free char *dump = json_dumps(
			v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
		if (dump)
			forge_print_clean(stdout, dump, strlen(dump));
	}
}

/* Prints a limit as everywhere else: "2.00 GiB". */
static void print_limit(const struct forge_limit_row *row, const json_t *v)
{
	double scale = row->type == FORGE_LIMIT_DURATION ? 1e6
		       : row->type == FORGE_LIMIT_CPUS	 ? 1e3
							 : 1;
	char text[FORGE_FORMAT_MAX];

	/* Other users may have written any number into the store. */
	if (json_number_value(v) > 0 && json_number_value(v) * scale < 1e19)
		fputs(forge_limit_format(text, row,
					 (uint64_t)(json_number_value(v) * scale + 0.5)),
		      stdout);
	else
		fputs("unlimited", stdout);
}

static const struct forge_limit_row *limit_of(const json_t *row)
{
	if (strcmp(forge_json_string(row, "what"), "limit") != 0)
		return NULL;
	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++)
		if (strcmp(forge_limit_rows[i].json, forge_json_string(row, "name")) == 0)
			return &forge_limit_rows[i];
	return NULL;
}

/* As in diff(1): names the run on the left, whose lines have a minus. */
static void print_runs(const json_t *a, const json_t *b)
{
	char name[FORGE_RUN_NAME_MAX];

	printf("--- %s: %s\n", forge_record_name(a, name),
	       forge_json_string(a, "status"));
	printf("+++ %s: %s\n", forge_record_name(b, name),
	       forge_json_string(b, "status"));
}

static void print_rows(const json_t *list)
{
	size_t i;
	const json_t *row;

	json_array_foreach (list, i, row) {
		const struct forge_limit_row *limit = limit_of(row);
		const char *name = limit ? limit->name : forge_json_string(row, "name");
		printf("%-10s", forge_json_string(row, "what"));
		if (*name) {
			forge_print_clean(stdout, name, strlen(name));
			fputs("  ", stdout);
		}
		for (int side = 0; side < 2; side++) {
			const json_t *v = json_object_get(row, side ? "b" : "a");
			fputs(side ? " -> " : "", stdout);
			if (limit)
				print_limit(limit, v);
			else
				print_value(v);
		}
		putchar('\n');
	}
}

/* ---- the text of the scripts ---- */

#define LINES_MAX 2000

struct text {
	char *all;
	char *line[LINES_MAX];
	size_t n;
};

static int read_script(const struct forge_session *s, const json_t *record,
		       struct text *ret)
{
	const char *digest = forge_asked_script(record);
	forge_auto_close int fd = digest ? forge_objects_get(&s->home, digest) : -ENOENT;
	size_t len = 0;
	int rc = fd < 0 ? fd : forge_read_fd(fd, 1 << 20, &ret->all, &len);

	if (rc < 0)
		return rc;
	for (char *p = ret->all, *next; p && *p && ret->n < LINES_MAX; p = next) {
		char *end = strchr(p, '\n');
		next = end ? end + 1 : NULL;
		if (end)
			*end = '\0';
		ret->line[ret->n++] = p;
	}
	return 0;
}

/* Prints the lines that only one of them has, by the longest common subsequence. */
static void print_lines(const struct text *a, const struct text *b)
{
	size_t width = b->n + 1;
	uint16_t *common = calloc((a->n + 1) * width, sizeof(*common));

	if (!common)
		return;
	for (size_t i = a->n; i-- > 0;)
		for (size_t k = b->n; k-- > 0;) {
			uint16_t down = common[(i + 1) * width + k];
			uint16_t right = common[i * width + k + 1];
			common[i * width + k] =
				strcmp(a->line[i], b->line[k]) == 0
					? (uint16_t)(common[(i + 1) * width + k + 1] + 1)
				: down > right ? down
					       : right;
		}
	for (size_t i = 0, k = 0; i < a->n || k < b->n;) {
		if (i < a->n && k < b->n && strcmp(a->line[i], b->line[k]) == 0) {
			i++;
			k++;
			continue;
		}
		bool is_gone = i < a->n &&
			       (k == b->n ||
				common[(i + 1) * width + k] >= common[i * width + k + 1]);
		const char *line = is_gone ? a->line[i++] : b->line[k++];
		fputs(is_gone ? "  - " : "  + ", stdout);
		forge_print_clean(stdout, line, strlen(line));
		putchar('\n');
	}
	free(common);
}

static void print_scripts(const struct forge_session *s, const json_t *a, const json_t *b)
{
	const char *x = forge_asked_script(a), *y = forge_asked_script(b);
	struct text *texts = calloc(2, sizeof(*texts));

	if (x && y && strcmp(x, y) != 0 && texts && read_script(s, a, &texts[0]) >= 0 &&
	    read_script(s, b, &texts[1]) >= 0) {
		puts("script");
		print_lines(&texts[0], &texts[1]);
		if (texts[0].n == LINES_MAX || texts[1].n == LINES_MAX)
			printf("  (only the first %d lines are compared)\n", LINES_MAX);
	}
	for (int i = 0; texts && i < 2; i++)
		free(texts[i].all);
	free(texts);
}

static int cmd_diff(int argc, char **argv)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_session struct forge_session s = FORGE_SESSION_INIT;
	forge_auto_json json_t *a = NULL, *b = NULL, *list = NULL;

	if (argc != 2) {
		(void)forge_fail(&err, EINVAL, "diff: two runs are needed");
		return forge_print_usage(&forge_cmd_diff, &err);
	}
	forge_session_rule = FORGE_SESSION_LOOKS;
	int rc = forge_session_open(&s, false, &err);
	if (rc == 0)
		rc = forge_session_record(&s, argv[0], &a, &err);
	if (rc == 0)
		rc = forge_session_record(&s, argv[1], &b, &err);
	if (rc < 0) {
		forge_print_error(&err);
		return FORGE_EXIT_USAGE;
	}
	list = compare(a, b);
	if (is_json) {
		forge_print_json(list);
	} else {
		if (json_array_size(list))
			print_runs(a, b);
		print_rows(list);
		print_scripts(&s, a, b);
	}
	return json_array_size(list) ? FORGE_EXIT_FAILED : FORGE_EXIT_OK;
}

const struct forge_cmd forge_cmd_diff = {
	.name = "diff",
	.synopsis = "[OPTIONS] RUN RUN",
	.help = "Show what was different between two runs",
	.about = "Compares command, directory, variables, inputs, runtime and its "
		 "packages, "
		 "limits,\n"
		 "outputs and the text of the script. Exits 0 when all of it is the "
		 "same, 1 "
		 "when\n"
		 "something is not, 2 when they cannot be compared.",
	.first = "RUN",
	.bad_value = FORGE_EXIT_USAGE,
	.run = cmd_diff,
	.opts = diff_opts,
};
