/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a pipeline file. Every error has its place in the file. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/glob.h"
#include "base/parse.h"
#include "base/yaml.h"
#include "config/config.h"
#include "config/named.h"
#include "config/values.h"
#include "pipeline/pipeline.h"

#define FILE_MAX (16u << 20)

struct reader {
	struct forge_loader ld; /* for errors and for the tables */
	struct forge_pipeline *p;
};

static int out_of_memory(struct forge_error *err)
{
	return forge_fail(err, ENOMEM, "out of memory");
}

/* Fails at the key of a node. */
#define FAIL_KEY(r, node, err, ...)                                                      \
	forge_fail_at(err, (r)->ld.name, (node)->key_line, (node)->key_column,           \
		      __VA_ARGS__)
#define FAIL_STEP(r, s, err, ...)                                                        \
	forge_fail_at(err, (r)->ld.name, (s)->line, (s)->column, __VA_ARGS__)

/* ---- freeing ---- */

static void input_done(struct forge_step_input *in)
{
	for (size_t i = 0; i < in->n; i++)
		free(in->v[i].text);
	free(in->v);
	free(in->name);
}

static void step_done(struct forge_step *s)
{
	forge_named_done(&forge_step_rows, s);
	free(s->name);
	for (size_t i = 0; i < s->n_inputs; i++)
		input_done(&s->inputs[i]);
	for (size_t i = 0; i < s->n_outputs; i++)
		free(s->outputs[i].pattern);
	for (size_t i = 0; i < s->n_loops; i++) {
		free(s->loops[i].name);
		forge_strv_done(&s->loops[i].values);
	}
	free(s->inputs);
	free(s->outputs);
	free(s->loops);
}

void forge_pipeline_free(struct forge_pipeline *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_steps; i++)
		step_done(&p->steps[i]);
	for (size_t i = 0; i < p->n_params; i++) {
		free(p->params[i].name);
		forge_strv_done(&p->params[i].values);
	}
	for (size_t i = 0; i < p->n_entries; i++) {
		free(p->entries[i].name);
		forge_strv_done(&p->entries[i].steps);
	}
	forge_named_done(&forge_pipeline_rows, p);
	free(p->steps);
	free(p->by_name);
	free(p->params);
	free(p->entries);
	free(p->shown);
	free(p->path);
	free(p->dir);
	free(p);
}

/* ---- finding ---- */

struct wanted {
	const struct forge_pipeline *p;
	const char *name;
	size_t len;
};

static int by_wanted(const void *key, const void *element)
{
	const struct wanted *w = key;
	const char *name = w->p->steps[*(const size_t *)element].name;
	int order = strncmp(w->name, name, w->len);

	return order ? order : (name[w->len] ? -1 : 0);
}

int forge_pipeline_find_step(const struct forge_pipeline *p, const char *name, size_t len)
{
	const struct wanted w = { p, name, len };
	const size_t *found = p->n_steps ? bsearch(&w, p->by_name, p->n_steps,
						   sizeof(size_t), by_wanted)
					 : NULL;

	return found ? (int)*found : -1;
}

static int by_step_name(const void *a, const void *b, void *arg)
{
	const struct forge_step *steps = arg;

	return strcmp(steps[*(const size_t *)a].name, steps[*(const size_t *)b].name);
}

/* The reader of YAML refuses two steps of one name. */
static int index_steps(struct forge_pipeline *p, struct forge_error *err)
{
	p->by_name = calloc(p->n_steps + 1, sizeof(size_t));
	if (!p->by_name)
		return out_of_memory(err);
	for (size_t i = 0; i < p->n_steps; i++)
		p->by_name[i] = i;
	qsort_r(p->by_name, p->n_steps, sizeof(size_t), by_step_name, p->steps);
	return 0;
}

int forge_pipeline_unknown_step(const struct forge_pipeline *p, const char *name,
				struct forge_error *err)
{
	const char *words[64];
	char text[FORGE_UNKNOWN_MAX];
	size_t n = 0;

	for (; n < p->n_steps && n < FORGE_ARRAY_SIZE(words); n++)
		words[n] = p->steps[n].name;
	return forge_fail(err, ENOENT, "%s",
			  forge_describe_unknown(text, "unknown step", name, words, n));
}

const struct forge_param *forge_pipeline_find_param(const struct forge_pipeline *p,
						    const char *name, size_t len)
{
	for (size_t i = 0; i < p->n_params; i++)
		if (strncmp(p->params[i].name, name, len) == 0 && !p->params[i].name[len])
			return &p->params[i];
	return NULL;
}

/* ---- values ---- */

/* One value, or a list of them. */
static int read_values(const struct reader *r, const struct forge_yaml *node,
		       const char *path, struct forge_strv *ret, bool *ret_is_list,
		       struct forge_error *err)
{
	*ret_is_list = node->type == FORGE_YAML_LIST;
	if (node->type == FORGE_YAML_MAP)
		return forge_loader_fail(&r->ld, node, path, err,
					 "must be a value or a list of values");
	for (const struct forge_yaml *n = *ret_is_list ? node->child : node; n;
	     n = *ret_is_list ? n->next : NULL) {
		if (n->type != FORGE_YAML_SCALAR)
			return forge_loader_fail(&r->ld, n, path, err,
						 "must be a list of plain values");
		if (forge_strv_add(ret, n->scalar) < 0)
			return out_of_memory(err);
	}
	return 0;
}

static int check_variable(const struct reader *r, const struct forge_yaml *node,
			  const char *path, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;

	return forge_variable_check(node->key, &why) < 0
		       ? FAIL_KEY(r, node, err, "%s: %s", path, why.msg)
		       : 0;
}

static size_t count(const struct forge_yaml *node)
{
	size_t n = 0;

	for (const struct forge_yaml *c = node ? node->child : NULL; c; c = c->next)
		n++;
	return n;
}

static int need_map(const struct reader *r, const struct forge_yaml *node,
		    const char *path, const char *example, struct forge_error *err)
{
	return node->type == FORGE_YAML_MAP
		       ? 0
		       : forge_loader_fail(&r->ld, node, path, err,
					   "must be a map, as in %s", example);
}

static int read_params(struct reader *r, struct forge_error *err)
{
	const struct forge_yaml *map = r->p->params_node;
	int rc = map ? need_map(r, map, "params", "{min_quality: 20}", err) : 0;

	if (!map || rc < 0)
		return rc;
	r->p->params = calloc(count(map) + 1, sizeof(*r->p->params));
	if (!r->p->params)
		return out_of_memory(err);
	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next) {
		struct forge_param *one = &r->p->params[r->p->n_params++];
		*one = (struct forge_param){ .line = n->key_line,
					     .column = n->key_column };
		one->name = strdup(n->key);
		rc = one->name ? check_variable(r, n, "params", err) : out_of_memory(err);
		if (rc == 0)
			rc = read_values(r, n, "params", &one->values, &one->is_list,
					 err);
	}
	return rc;
}

/* A file that the user named; links are followed. */
static int read_whole(const char *path, char **ret, size_t *ret_len,
		      struct forge_error *err)
{
	struct stat st;
	forge_auto_close int fd =
		open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0)
		return forge_fail_errno(err, errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return forge_fail(err, EINVAL, "%s is no regular file", path);
	int rc = forge_read_fd(fd, FILE_MAX, ret, ret_len);
	return rc < 0 ? forge_fail(err, -rc, "%s: %s", path, forge_regular_problem(rc))
		      : 0;
}

/* ---- parameters of the caller ---- */

static int unknown_param(const struct forge_pipeline *p, const char *name,
			 struct forge_error *err)
{
	const char *words[64];
	char text[FORGE_UNKNOWN_MAX];
	size_t n = 0;

	for (; n < p->n_params && n < FORGE_ARRAY_SIZE(words); n++)
		words[n] = p->params[n].name;
	return forge_fail(
		err, EINVAL, "%s",
		forge_describe_unknown(text, "unknown parameter", name, words, n));
}

/* A list is given as "a,b,c". */
static int set_param(struct forge_pipeline *p, const char *name, size_t len,
		     const char *value, struct forge_error *err)
{
	struct forge_param *one =
		(struct forge_param *)forge_pipeline_find_param(p, name, len);
	int rc = 0;

	if (!one) {
		forge_auto_free char *copy = strndup(name, len);
		return copy ? unknown_param(p, copy, err) : out_of_memory(err);
	}
	/* The value is part of keys, which are JSON. */
	json_t *text = json_string(value);
	json_decref(text);
	if (!text)
		return forge_fail(err, EINVAL, "the value of '%s' is not UTF-8",
				  one->name);
	forge_strv_done(&one->values);
	one->values = (struct forge_strv){ 0 };
	while (one->is_list && rc == 0 && strchr(value, ',')) {
		size_t part = strcspn(value, ",");
		rc = forge_strv_take(&one->values, strndup(value, part));
		value += part + 1;
	}
	if (rc == 0)
		rc = forge_strv_add(&one->values, value);
	return rc < 0 ? out_of_memory(err) : 0;
}

static int apply_file(struct reader *r, const char *path, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	forge_auto_yaml struct forge_yaml *tree = NULL;
	size_t len;
	int rc = read_whole(path, &text, &len, err);

	if (rc < 0)
		return forge_wrap(err, rc, "--params");
	rc = forge_yaml_parse_large(text, len, path, &tree, err);
	if (rc < 0)
		return rc;
	const struct reader file = { .ld = { .name = path }, .p = r->p };
	rc = need_map(&file, tree, "parameters", "{min_quality: 20}", err);
	for (const struct forge_yaml *n = rc == 0 ? tree->child : NULL; n && rc == 0;
	     n = n->next) {
		struct forge_error why = FORGE_ERROR_INIT;
		struct forge_param *one = (struct forge_param *)forge_pipeline_find_param(
			r->p, n->key, strlen(n->key));
		bool is_list;
		if (!one) {
			(void)unknown_param(r->p, n->key, &why);
			return FAIL_KEY(&file, n, err, "%s", why.msg);
		}
		forge_strv_done(&one->values);
		one->values = (struct forge_strv){ 0 };
		rc = read_values(&file, n, n->key, &one->values, &is_list, err);
		if (rc == 0 && is_list != one->is_list)
			rc = forge_loader_fail(&file.ld, n, n->key, err,
					       one->is_list ? "must be a list"
							    : "must be one value");
	}
	return rc;
}

static int apply_given(struct reader *r, const struct forge_pipeline_given *given,
		       struct forge_error *err)
{
	int rc = given && given->params_file ? apply_file(r, given->params_file, err) : 0;

	for (size_t i = 0; rc == 0 && given && given->params && i < given->params->n;
	     i++) {
		const char *text = given->params->v[i];
		size_t len = strcspn(text, "=");
		rc = text[len]
			     ? set_param(r->p, text, len, text + len + 1, err)
			     : forge_fail(err, EINVAL, "'%.64s' is not NAME=VALUE", text);
		if (rc < 0)
			rc = forge_wrap(err, rc, "-p");
	}
	return rc;
}

/* ---- steps ---- */

static int read_input(const struct reader *r, const struct forge_yaml *node,
		      const char *path, struct forge_step_input *ret,
		      struct forge_error *err)
{
	ret->line = node->key_line;
	ret->column = node->key_column;
	ret->is_list = node->type == FORGE_YAML_LIST;
	ret->name = strdup(node->key);
	ret->v = calloc(count(ret->is_list ? node : NULL) + 1, sizeof(*ret->v));
	if (!ret->name || !ret->v)
		return out_of_memory(err);
	if (node->type == FORGE_YAML_MAP)
		return forge_loader_fail(
			&r->ld, node, path, err,
			"must be a file, STEP/PATTERN, or a list of these");
	for (const struct forge_yaml *n = ret->is_list ? node->child : node; n;
	     n = ret->is_list ? n->next : NULL) {
		if (n->type != FORGE_YAML_SCALAR || !*n->scalar)
			return forge_loader_fail(&r->ld, n, path, err,
						 "must be a list of files");
		ret->v[ret->n].text = strdup(n->scalar);
		ret->v[ret->n].line = n->line;
		ret->v[ret->n].column = n->column;
		if (!ret->v[ret->n++].text)
			return out_of_memory(err);
	}
	return ret->n ? 0
		      : forge_loader_fail(&r->ld, node, path, err, "the list is empty");
}

static int read_inputs(struct reader *r, struct forge_step *s, const char *path,
		       struct forge_error *err)
{
	const struct forge_yaml *map = s->inputs_node;
	char at[160];

	(void)snprintf(at, sizeof(at), "%s.inputs", path);
	int rc = map ? need_map(r, map, at, "{reads: data/reads.fq}", err) : 0;
	if (!map || rc < 0)
		return rc;
	s->inputs = calloc(count(map) + 1, sizeof(*s->inputs));
	if (!s->inputs)
		return out_of_memory(err);
	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next) {
		rc = check_variable(r, n, at, err);
		if (rc == 0)
			rc = read_input(r, n, at, &s->inputs[s->n_inputs++], err);
	}
	return rc;
}

/* {path: PATTERN, temp: true} */
static int read_output_map(const struct reader *r, const struct forge_yaml *map,
			   const char *path, struct forge_step_output *ret,
			   struct forge_error *err)
{
	static const char *const words[] = { "path", "temp" };
	int rc = 0;

	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next) {
		const struct forge_value v = { &r->ld, n, path, NULL };
		if (strcmp(n->key, "temp") == 0)
			rc = forge_value_bool(&v, &ret->is_temp, err);
		else if (strcmp(n->key, "path") == 0 && n->type == FORGE_YAML_SCALAR)
			rc = forge_value_copy(&v, &ret->pattern, err);
		else if (strcmp(n->key, "path") == 0)
			rc = forge_loader_fail(&r->ld, n, path, err,
					       "path must be one pattern");
		else
			rc = forge_named_unknown(&r->ld, n, path, words, 2, err);
	}
	if (rc == 0 && !ret->pattern)
		rc = forge_loader_fail(&r->ld, map, path, err, "has no path");
	return rc;
}

static int add_output(struct reader *r, struct forge_step *s, const struct forge_yaml *n,
		      const char *path, struct forge_error *err)
{
	struct forge_step_output *one = &s->outputs[s->n_outputs++];
	int rc = 0;

	*one = (struct forge_step_output){ .line = n->line, .column = n->column };
	if (n->type == FORGE_YAML_MAP)
		rc = read_output_map(r, n, path, one, err);
	else if (n->type == FORGE_YAML_LIST || !*n->scalar)
		rc = forge_loader_fail(&r->ld, n, path, err,
				       "must be a list of patterns");
	else if (!(one->pattern = strdup(n->scalar)))
		rc = out_of_memory(err);
	one->is_temp = one->is_temp || s->is_temp;
	for (size_t i = 0; rc == 0 && i + 1 < s->n_outputs; i++)
		if (strcmp(s->outputs[i].pattern, one->pattern) == 0)
			rc = forge_loader_fail(&r->ld, n, path, err,
					       "'%.64s' is there twice", one->pattern);
	return rc;
}

static int read_outputs(struct reader *r, struct forge_step *s, const char *path,
			struct forge_error *err)
{
	const struct forge_yaml *list = s->outputs_node;
	char at[160];
	int rc = 0;

	if (!list)
		return 0;
	(void)snprintf(at, sizeof(at), "%s.outputs", path);
	bool is_list = list->type == FORGE_YAML_LIST;
	s->outputs = calloc(count(is_list ? list : NULL) + 1, sizeof(*s->outputs));
	if (!s->outputs)
		return out_of_memory(err);
	for (const struct forge_yaml *n = is_list ? list->child : list; n && rc == 0;
	     n = is_list ? n->next : NULL)
		rc = add_output(r, s, n, at, err);
	return rc;
}

static int read_loops(struct reader *r, struct forge_step *s, const char *path,
		      struct forge_error *err)
{
	const struct forge_yaml *map = s->foreach_node;
	char at[160];

	(void)snprintf(at, sizeof(at), "%s.foreach", path);
	int rc = map ? need_map(r, map, at, "{sample: [a, b]}", err) : 0;
	if (!map || rc < 0)
		return rc;
	s->loops = calloc(count(map) + 1, sizeof(*s->loops));
	if (!s->loops)
		return out_of_memory(err);
	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next) {
		struct forge_step_loop *one = &s->loops[s->n_loops++];
		*one = (struct forge_step_loop){ .line = n->line, .column = n->column };
		one->name = strdup(n->key);
		rc = one->name ? check_variable(r, n, at, err) : out_of_memory(err);
		if (rc == 0)
			rc = read_values(r, n, at, &one->values, &one->is_list, err);
		if (rc == 0 && one->is_list && one->values.n == 0)
			rc = forge_loader_fail(&r->ld, n, at, err, "the list is empty");
	}
	return rc;
}

/* ---- rules that hold within one step ---- */

/* A variable of the run has one meaning. */
static int check_names(const struct reader *r, const struct forge_step *s,
		       struct forge_error *err)
{
	for (size_t i = 0; i < s->n_inputs; i++) {
		const struct forge_step_input *in = &s->inputs[i];
		if (forge_pipeline_find_param(r->p, in->name, strlen(in->name)))
			return FAIL_STEP(r, in, err,
					 "steps.%s: '%s' is an input and a parameter",
					 s->name, in->name);
		for (size_t k = 0; k < s->n_loops; k++)
			if (strcmp(s->loops[k].name, in->name) == 0)
				return FAIL_STEP(r, in, err,
						 "steps.%s: '%s' is an input and a name "
						 "of foreach",
						 s->name, in->name);
		if (forge_strv_getenv(&s->env, in->name))
			return FAIL_STEP(r, in, err,
					 "steps.%s: '%s' is an input and in env", s->name,
					 in->name);
	}
	for (size_t k = 0; k < s->n_loops; k++)
		if (forge_pipeline_find_param(r->p, s->loops[k].name,
					      strlen(s->loops[k].name)))
			return FAIL_STEP(
				r, &s->loops[k], err,
				"steps.%s: '%s' is a parameter and a name of foreach",
				s->name, s->loops[k].name);
	forge_strv_foreach (name, &s->params) {
		bool is_known = forge_pipeline_find_param(r->p, name, strlen(name));
		for (size_t k = 0; k < s->n_loops && !is_known; k++)
			is_known = strcmp(s->loops[k].name, name) == 0;
		if (!is_known) {
			struct forge_error why = FORGE_ERROR_INIT;
			(void)unknown_param(r->p, name, &why);
			return FAIL_STEP(r, s, err, "steps.%s.params: %s", s->name,
					 why.msg);
		}
	}
	return 0;
}

static int check_command(const struct reader *r, const struct forge_step *s,
			 struct forge_error *err)
{
	if (!s->run == !s->script)
		return FAIL_STEP(r, s, err, "steps.%s: %s", s->name,
				 s->run ? "has both run and script"
					: "has neither run nor script");
	if (s->args.n && !s->script)
		return FAIL_STEP(r, s, err, "steps.%s: args are for a script", s->name);
	if (s->shell && !s->run)
		return FAIL_STEP(r, s, err, "steps.%s: shell is for run", s->name);
	return 0;
}

static int check_checkpoint(const struct reader *r, const struct forge_step *s,
			    struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;

	if (!s->checkpoint)
		return 0;
	const char *dot = s->script ? strrchr(s->script, '.') : NULL;
	if (dot && strcmp(dot, ".ipynb") == 0)
		return FAIL_STEP(r, s, err, "steps.%s: a notebook has no checkpoint",
				 s->name);
	if (forge_glob_check(s->checkpoint, &why) < 0)
		return FAIL_STEP(r, s, err, "steps.%s.checkpoint: %s", s->name, why.msg);
	if (strpbrk(s->checkpoint, "*?$") || strcmp(s->checkpoint, ".") == 0 ||
	    strcmp(s->checkpoint, "inputs") == 0 ||
	    strncmp(s->checkpoint, "inputs/", 7) == 0)
		return FAIL_STEP(
			r, s, err,
			"steps.%s.checkpoint: '%.64s' is not the plain name of a "
			"directory of its own",
			s->name, s->checkpoint);
	return 0;
}

static int read_step(struct reader *r, const struct forge_yaml *node,
		     struct forge_error *err)
{
	struct forge_step *s = &r->p->steps[r->p->n_steps++];
	struct forge_error why = FORGE_ERROR_INIT;
	char path[96];

	s->line = node->key_line;
	s->column = node->key_column;
	if (forge_parse_id(node->key, &why) < 0)
		return FAIL_KEY(r, node, err, "steps: %s", why.msg);
	s->name = strdup(node->key);
	if (!s->name)
		return out_of_memory(err);
	(void)snprintf(path, sizeof(path), "steps.%s", s->name);
	int rc = forge_named_read(&r->ld, node, path, &forge_step_rows, s, err);
	if (rc == 0)
		rc = check_command(r, s, err);
	if (rc == 0)
		rc = read_inputs(r, s, path, err);
	if (rc == 0)
		rc = read_outputs(r, s, path, err);
	if (rc == 0)
		rc = read_loops(r, s, path, err);
	if (rc == 0 && s->retry_node) {
		char at[128];
		(void)snprintf(at, sizeof(at), "%s.retry", path);
		s->has_retry = true;
		rc = forge_retry_read(&r->ld, s->retry_node, at, &s->retry, err);
	}
	if (rc == 0)
		rc = check_names(r, s, err);
	if (rc == 0)
		rc = check_checkpoint(r, s, err);
	s->inputs_node = s->outputs_node = s->foreach_node = s->retry_node = NULL;
	return rc;
}

static int read_steps(struct reader *r, const struct forge_yaml *root,
		      struct forge_error *err)
{
	const struct forge_yaml *map = r->p->steps_node;
	int rc = 0;

	if (!map)
		return forge_loader_fail(&r->ld, root, "steps", err, "there are none");
	rc = need_map(r, map, "steps", "{align: {run: ...}}", err);
	if (rc == 0 && !map->child)
		rc = forge_loader_fail(&r->ld, map, "steps", err, "there are none");
	if (rc < 0)
		return rc;
	r->p->steps = calloc(count(map) + 1, sizeof(*r->p->steps));
	if (!r->p->steps)
		return out_of_memory(err);
	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next)
		rc = read_step(r, n, err);
	return rc < 0 ? rc : index_steps(r->p, err);
}

static int read_entries(struct reader *r, struct forge_error *err)
{
	const struct forge_yaml *map = r->p->entries_node;
	int rc = map ? need_map(r, map, "entries", "{qc: trim}", err) : 0;

	if (!map || rc < 0)
		return rc;
	r->p->entries = calloc(count(map) + 1, sizeof(*r->p->entries));
	if (!r->p->entries)
		return out_of_memory(err);
	for (const struct forge_yaml *n = map->child; n && rc == 0; n = n->next) {
		struct forge_entry *one = &r->p->entries[r->p->n_entries++];
		struct forge_error why = FORGE_ERROR_INIT;
		bool is_list;
		one->line = n->line;
		one->column = n->column;
		one->name = strdup(n->key);
		rc = one->name ? read_values(r, n, "entries", &one->steps, &is_list, err)
			       : out_of_memory(err);
		forge_strv_foreach (name, &one->steps)
			if (rc == 0 &&
			    forge_pipeline_find_step(r->p, name, strlen(name)) < 0) {
				(void)forge_pipeline_unknown_step(r->p, name, &why);
				rc = forge_loader_fail(&r->ld, n, "entries", err, "%s",
						       why.msg);
			}
	}
	return rc;
}

/* ---- the file ---- */

/* Of "dir/pipeline.yaml" the name is "dir", of "dir/calls.yaml" it is "calls". */
static int set_default_name(struct forge_pipeline *p, struct forge_error *err)
{
	forge_auto_free char *copy = strdup(p->shown);
	const char *name = copy ? basename(copy) : NULL;

	if (!copy)
		return out_of_memory(err);
	if (strncmp(name, "pipeline.", 9) == 0) {
		const char *slash = strrchr(p->dir, '/');
		p->name = strdup(slash && slash[1] ? slash + 1 : "pipeline");
	} else {
		p->name = strndup(name, strcspn(name, "."));
	}
	return p->name ? 0 : out_of_memory(err);
}

int forge_pipeline_parse(const char *text, size_t len, const char *name, const char *dir,
			 const struct forge_pipeline_given *given,
			 struct forge_pipeline **ret, struct forge_error *err)
{
	forge_auto_yaml struct forge_yaml *tree = NULL;
	forge_auto_pipeline struct forge_pipeline *p = calloc(1, sizeof(*p));
	struct reader r = { .ld = { .name = name, .base_dir = dir }, .p = p };
	struct forge_error why = FORGE_ERROR_INIT;

	if (!p || !(p->shown = strdup(name)) || !(p->dir = strdup(dir)))
		return out_of_memory(err);
	int rc = forge_yaml_parse_large(text, len, name, &tree, err);
	if (rc == 0)
		rc = forge_named_read(&r.ld, tree, "pipeline", &forge_pipeline_rows, p,
				      err);
	if (rc == 0)
		rc = read_params(&r, err);
	if (rc == 0)
		rc = read_steps(&r, tree, err);
	if (rc == 0)
		rc = read_entries(&r, err);
	if (rc == 0)
		rc = apply_given(&r, given, err);
	if (rc == 0 && !p->name)
		rc = set_default_name(p, err);
	if (rc == 0 && forge_parse_id(p->name, &why) < 0)
		rc = forge_hint(err,
				forge_fail(err, EINVAL, "%s: name: %s", name, why.msg),
				"Give the pipeline a name: in the file");
	p->params_node = p->steps_node = p->entries_node = NULL;
	if (rc == 0)
		*ret = forge_take_ptr(p);
	return rc;
}

int forge_pipeline_read(const char *path, const struct forge_pipeline_given *given,
			struct forge_pipeline **ret, struct forge_error *err)
{
	forge_auto_free char *named = strdup(path ? path : "pipeline.yaml");
	forge_auto_free char *text = NULL;
	struct stat st;
	size_t len;

	if (named && stat(named, &st) == 0 && S_ISDIR(st.st_mode)) {
		free(named);
		named = forge_asprintf("%s/pipeline.yaml", path);
	}
	if (!named)
		return out_of_memory(err);
	forge_auto_free char *real = realpath(named, NULL);
	if (!real)
		return forge_hint(err, forge_fail_errno(err, errno, "pipeline %s", named),
				  "Name the file, or a directory with a pipeline.yaml");
	int rc = read_whole(real, &text, &len, err);
	if (rc < 0)
		return forge_wrap(err, rc, "pipeline");
	forge_auto_free char *dir = strdup(real);
	if (!dir)
		return out_of_memory(err);
	*strrchr(dir, '/') = '\0';
	rc = forge_pipeline_parse(text, len, named, *dir ? dir : "/", given, ret, err);
	if (rc == 0)
		(*ret)->path = forge_take_ptr(real);
	return rc;
}
