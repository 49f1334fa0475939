/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a task, and what changed between two of them. */
#include "pipeline/key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* Of more files the parts have a number and a digest: a record has to stay small. */
#define LISTED_MAX 100

/* ---- files ---- */

int forge_task_files_add(struct forge_task_files *f, unsigned input, char *name,
			 const char *path, const char *digest)
{
	if (!name)
		return -ENOMEM;
	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 8;
		struct forge_task_file *grown = reallocarray(f->v, cap, sizeof(*grown));
		if (!grown) {
			free(name);
			return -ENOMEM;
		}
		f->v = grown;
		f->cap = cap;
	}
	struct forge_task_file *one = &f->v[f->n++];
	*one = (struct forge_task_file){ .input = input, .name = name, .path = path };
	(void)snprintf(one->digest, sizeof(one->digest), "%s", digest);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct forge_task_file *x = a, *y = b;

	if (x->input != y->input)
		return x->input < y->input ? -1 : 1;
	return strcmp(x->name, y->name);
}

int forge_task_files_sort(struct forge_task_files *f, const struct forge_task *t,
			  struct forge_error *err)
{
	if (f->n)
		qsort(f->v, f->n, sizeof(*f->v), by_name);
	for (size_t i = 1; i < f->n; i++)
		if (by_name(&f->v[i - 1], &f->v[i]) == 0)
			return forge_fail(
				err, EEXIST, "input %s: two files have the name '%.100s'",
				t->step->inputs[f->v[i].input].name, f->v[i].name);
	return 0;
}

void forge_task_files_done(struct forge_task_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->v[i].name);
	free(f->v);
	*f = (struct forge_task_files){ .v = NULL };
}

/* ---- variables ---- */

struct collector {
	const struct forge_graph *g;
	const struct forge_task *t;
	struct forge_strv *ret;
	int rc;
};

/* A name in a text of a shell that is neither a parameter nor of foreach is the shell's own. */
static void add_variable(const char *name, size_t len, void *arg)
{
	struct collector *c = arg;
	const char *value = forge_task_value(c->g, c->t, name, len);
	const struct forge_param *p = forge_pipeline_find_param(c->g->p, name, len);
	forge_auto_free char *key = strndup(name, len);

	if (c->rc < 0 || !(value || p))
		return;
	if (!key) {
		c->rc = -ENOMEM;
	} else if (value) {
		c->rc = forge_strv_setenv(c->ret, key, value);
	} else {
		/* A list: its values with blanks between them. */
		char *text = NULL;
		size_t size = 0;
		FILE *f = open_memstream(&text, &size);
		for (size_t i = 0; f && i < p->values.n; i++)
			fprintf(f, "%s%s", i ? " " : "", p->values.v[i]);
		c->rc = f && fclose(f) == 0 ? forge_strv_setenv(c->ret, key, text)
					    : -ENOMEM;
		free(text);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int forge_task_variables(const struct forge_graph *g, const struct forge_task *t,
			 struct forge_strv *ret, struct forge_error *err)
{
	struct collector c = { g, t, ret, 0 };

	if (t->step->run)
		forge_expand_names(t->step->run, add_variable, &c);
	forge_strv_foreach (name, &t->step->params)
		add_variable(name, strlen(name), &c);
	/* A script always knows which task of several it is. */
	for (size_t i = 0; t->step->script && i < t->step->n_loops; i++)
		add_variable(t->step->loops[i].name, strlen(t->step->loops[i].name), &c);
	if (c.rc == 0 && ret->n)
		qsort(ret->v, ret->n, sizeof(char *), by_text);
	return c.rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

/* ---- parts ---- */

static json_t *command_json(const struct forge_task_facts *f, struct forge_error *err)
{
	const struct forge_step *s = f->t->step;
	json_t *args;

	if (s->run)
		return json_pack("{s:s, s:s}", "run", s->run, "shell",
				 s->shell ? s->shell : "bash");
	args = json_array();
	forge_strv_foreach (arg, &s->args) {
		forge_auto_free char *text = NULL;
		if (forge_task_expand(f->g, f->t, arg, &text, err) < 0) {
			json_decref(args);
			return NULL;
		}
		json_array_append_new(args, json_string(text));
	}
	const char *slash = strrchr(s->script, '/');
	return json_pack("{s:s, s:s, s:o}", "script", slash ? slash + 1 : s->script,
			 "sha256", f->script, "args", args);
}

static json_t *pairs_json(const struct forge_strv *pairs)
{
	json_t *o = json_object();

	forge_strv_foreach (pair, pairs) {
		size_t len = strcspn(pair, "=");
		forge_auto_free char *key = strndup(pair, len);
		if (key)
			json_object_set_new(o, key, forge_json_text(pair + len + 1));
	}
	return o;
}

/* Variables of the configuration (env.set), then those of the step. */
static json_t *env_json(const struct forge_task_facts *f, struct forge_error *err)
{
	json_t *o = f->env_set ? pairs_json(f->env_set) : json_object();

	forge_strv_foreach (pair, &f->t->step->env) {
		size_t len = strcspn(pair, "=");
		forge_auto_free char *key = strndup(pair, len), *value = NULL;
		if (!key ||
		    forge_task_expand(f->g, f->t, pair + len + 1, &value, err) < 0) {
			json_decref(o);
			return NULL;
		}
		json_object_set_new(o, key, json_string(value));
	}
	return o;
}

/* The files v[from..to) of one input. */
static json_t *input_json(const struct forge_task_files *files, size_t from, size_t to)
{
	struct forge_sha256 h;
	char digest[FORGE_DIGEST_MAX], text[128];

	if (to - from <= LISTED_MAX) {
		json_t *o = json_object();
		for (size_t i = from; i < to; i++) {
			json_t *name = forge_json_name(files->v[i].name);
			if (name)
				json_object_set_new(o, json_string_value(name),
						    json_string(files->v[i].digest));
			json_decref(name);
		}
		return o;
	}
	forge_sha256_init(&h);
	for (size_t i = from; i < to; i++) {
		forge_sha256_add(&h, files->v[i].digest, strlen(files->v[i].digest));
		forge_sha256_add(&h, files->v[i].name, strlen(files->v[i].name) + 1);
	}
	(void)snprintf(text, sizeof(text), "%zu files, %s", to - from,
		       forge_sha256_done(&h, digest));
	return json_string(text);
}

static json_t *inputs_json(const struct forge_task_facts *f)
{
	json_t *o = json_object();

	for (size_t i = 0; i < f->files->n;) {
		size_t end = i;
		while (end < f->files->n &&
		       f->files->v[end].input == f->files->v[i].input)
			end++;
		json_object_set_new(o, f->t->step->inputs[f->files->v[i].input].name,
				    input_json(f->files, i, end));
		i = end;
	}
	return o;
}

/* The inputs whose variable is a directory, also with one file in it. */
static json_t *directories_json(const struct forge_task_facts *f)
{
	json_t *a = json_array();

	for (unsigned i = 0; i < f->t->step->n_inputs; i++)
		if (forge_input_is_dir(f->g, f->t, i))
			json_array_append_new(a, json_string(f->t->step->inputs[i].name));
	return a;
}

int forge_task_key(const struct forge_task_facts *f, json_t **ret_parts,
		   char ret_key[FORGE_DIGEST_MAX], struct forge_error *err)
{
	forge_auto_strv struct forge_strv variables = { 0 };
	struct forge_sha256 h;
	int rc = forge_task_variables(f->g, f->t, &variables, err);

	if (rc < 0)
		return rc;
	struct forge_error why = FORGE_ERROR_INIT;
	json_t *command = command_json(f, &why), *env = env_json(f, &why);
	json_t *parts =
		json_pack("{s:o, s:o, s:s?, s:o, s:o, s:o, s:o, s:s}", "command", command,
			  "params", pairs_json(&variables), "runtime", f->runtime,
			  "inputs", inputs_json(f), "directories", directories_json(f),
			  "outputs", forge_json_texts(&f->t->outputs), "env", env,
			  "network", f->t->step->network ? f->t->step->network : "none");
	forge_auto_free char *text =
		parts ? json_dumps(parts, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	if (!text) {
		json_decref(parts);
		if (why.code && err)
			*err = why;
		return why.code ? -why.code : forge_fail(err, ENOMEM, "out of memory");
	}
	forge_sha256_init(&h);
	/* A new meaning of the parts needs another number. */
	forge_sha256_add(&h, "forge step 1\n", 13);
	forge_sha256_add(&h, text, strlen(text));
	(void)forge_sha256_done(&h, ret_key);
	*ret_parts = parts;
	return 0;
}

/* ---- what changed ---- */

/* "ab12cd34" of "sha256:ab12cd34..."; other texts are cut. */
static void shorten(const char *text, char buf[40])
{
	bool is_digest = strncmp(text, "sha256:", 7) == 0;

	(void)snprintf(buf, 40, is_digest ? "%.8s..." : "%.32s",
		       is_digest ? text + 7 : text);
}

static const char *text_of(const json_t *j)
{
	return json_is_string(j) ? json_string_value(j) : "none";
}

/* The first key whose value differs; what is "parameter", "variable", "file". */
static bool describe_map(const char *what, const json_t *was, const json_t *is,
			 char buf[FORGE_CHANGE_MAX])
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)is, key, value)
	{
		const json_t *old = json_object_get(was, key);
		char a[40], b[40];
		if (json_equal(old, value))
			continue;
		bool is_digest = strncmp(text_of(value), "sha256:", 7) == 0;
		shorten(text_of(old), a);
		shorten(text_of(value), b);
		if (!old)
			(void)snprintf(buf, FORGE_CHANGE_MAX, "%s%.100s is new", what,
				       key);
		else
			(void)snprintf(buf, FORGE_CHANGE_MAX,
				       "%s%.100s changed (%s%s -> %s)", what, key,
				       is_digest ? "sha256 " : "", a, b);
		return true;
	}
	json_object_foreach((json_t *)was, key, value) if (!json_object_get(is, key))
	{
		(void)snprintf(buf, FORGE_CHANGE_MAX, "%s%.100s is gone", what, key);
		return true;
	}
	return false;
}

static bool describe_inputs(const json_t *was, const json_t *is,
			    char buf[FORGE_CHANGE_MAX])
{
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)is, name, value)
	{
		const json_t *old = json_object_get(was, name);
		char what[128];
		if (json_equal(old, value))
			continue;
		(void)snprintf(what, sizeof(what), "input %.64s: ", name);
		if (json_is_object(old) && json_is_object(value))
			return describe_map(what, old, value, buf);
		(void)snprintf(buf, FORGE_CHANGE_MAX, "input %.64s %s", name,
			       old ? "has other files" : "is new");
		return true;
	}
	return describe_map("input ", was, is, buf);
}

static bool describe_command(const json_t *was, const json_t *is,
			     char buf[FORGE_CHANGE_MAX])
{
	const char *script = forge_json_string(is, "script");

	if (script && forge_json_string(was, "script") &&
	    strcmp(forge_json_string_or(was, "sha256", ""),
		   forge_json_string_or(is, "sha256", "")) != 0) {
		char a[40], b[40];
		shorten(forge_json_string_or(was, "sha256", "none"), a);
		shorten(forge_json_string_or(is, "sha256", "none"), b);
		(void)snprintf(buf, FORGE_CHANGE_MAX,
			       "script %.100s changed (sha256 %s -> %s)", script, a, b);
	} else {
		(void)snprintf(buf, FORGE_CHANGE_MAX, "the %s changed",
			       script ? "arguments of the script" : "command");
	}
	return true;
}

const char *forge_parts_change(const json_t *was, const json_t *is,
			       char buf[FORGE_CHANGE_MAX])
{
	static const char *const order[] = {
		"command", "params", "runtime", "inputs",
		"outputs", "env",    "network", "directories"
	};
	bool found = false;

	buf[0] = '\0';
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(order) && !found; i++) {
		const json_t *a = json_object_get(was, order[i]);
		const json_t *b = json_object_get(is, order[i]);
		char x[40], y[40];
		if (json_equal(a, b))
			continue;
		switch (i) {
		case 0:
			found = describe_command(a, b, buf);
			break;
		case 1:
			found = describe_map("parameter ", a, b, buf);
			break;
		case 3:
			found = describe_inputs(a, b, buf);
			break;
		case 5:
			found = describe_map("variable ", a, b, buf);
			break;
		case 4:
			(void)snprintf(buf, FORGE_CHANGE_MAX,
				       "the declared outputs changed");
			break;
		case 7:
			(void)snprintf(buf, FORGE_CHANGE_MAX,
				       "an input is a file now, or a directory");
			break;
		default:
			shorten(text_of(a), x);
			shorten(text_of(b), y);
			(void)snprintf(buf, FORGE_CHANGE_MAX, "the %s changed (%s -> %s)",
				       order[i], x, y);
		}
		found = true;
	}
	return buf;
}
