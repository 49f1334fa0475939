/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the tasks of a pipeline: foreach, references between steps, order. */
#include "pipeline/graph.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/glob.h"
#include "base/json.h"
#include "base/near.h"
#include "base/sha256.h"
#include "pipeline/loop.h"
#include "pipeline/order.h"

#define TASKS_MAX   100000
#define SOURCES_MAX 10000000

static int out_of_memory(struct forge_error *err)
{
	return forge_fail(err, ENOMEM, "out of memory");
}

/* Puts the place of a text of the file before an error that has none. */
static int at(const struct forge_graph *g, unsigned line, unsigned column,
	      const struct forge_step *s, const char *key, int rc,
	      const struct forge_error *why, struct forge_error *err)
{
	if (rc == -ENOMEM)
		return out_of_memory(err);
	(void)forge_fail_at(err, g->p->shown, line, column, "steps.%s.%s: %s", s->name,
			    key, why->msg);
	return *why->hint ? forge_hint(err, -EINVAL, "%s", why->hint) : -EINVAL;
}

/* ---- values of a task ---- */

const char *forge_task_value(const struct forge_graph *g, const struct forge_task *t,
			     const char *name, size_t len)
{
	for (size_t i = 0; i < t->step->n_loops; i++)
		if (strncmp(t->step->loops[i].name, name, len) == 0 &&
		    !t->step->loops[i].name[len])
			return t->values[i];
	const struct forge_param *p = forge_pipeline_find_param(g->p, name, len);
	return p && !p->is_list ? p->values.v[0] : NULL;
}

struct finder {
	const struct forge_graph *g;
	const struct forge_task *t;
};

static const char *find_value(const char *name, size_t len, void *arg)
{
	const struct finder *f = arg;

	return forge_task_value(f->g, f->t, name, len);
}

int forge_task_expand(const struct forge_graph *g, const struct forge_task *t,
		      const char *text, char **ret, struct forge_error *err)
{
	struct finder f = { g, t };

	return forge_expand(text, find_value, &f, ret, err);
}

/* ---- references ---- */

/* The pattern after the step. */
static const char *pattern_of(const char *path)
{
	const char *slash = strchr(path, '/');

	return slash && slash[1] ? slash + 1 : "**";
}

static bool is_pattern(const char *text)
{
	return strpbrk(text, "*?") != NULL;
}

/* ---- tasks ---- */

/* "a,b" of the values; the label, which becomes the name of a directory, has no slash. */
static int make_name(struct forge_task *t)
{
	size_t len = 0;

	if (t->step->n_loops == 0)
		return (t->name = strdup(t->step->name)) ? 0 : -ENOMEM;
	for (size_t i = 0; i < t->step->n_loops; i++)
		len += strlen(t->values[i]) + 1;
	forge_auto_free char *joined = calloc(1, len + 1);
	char *out = t->label = calloc(1, 3 * len + 1), *end = joined;
	if (!joined || !out)
		return -ENOMEM;
	for (size_t i = 0; i < t->step->n_loops; i++)
		end = stpcpy(stpcpy(end, i ? "," : ""), t->values[i]);
	for (const char *c = joined; *c; c++)
		if (*c == '/' || *c == '%')
			out += snprintf(out, 4, "%%%02X", (unsigned char)*c);
		else
			*out++ = *c;
	t->name = forge_asprintf("%s[%s]", t->step->name, joined);
	return t->name ? 0 : -ENOMEM;
}

static int expand_outputs(const struct forge_graph *g, struct forge_task *t,
			  struct forge_error *err)
{
	for (size_t i = 0; i < t->step->n_outputs; i++) {
		const struct forge_step_output *o = &t->step->outputs[i];
		struct forge_error why = FORGE_ERROR_INIT;
		char *pattern = NULL;
		int rc = forge_task_expand(g, t, o->pattern, &pattern, &why);
		if (rc == 0)
			rc = forge_strv_take(&t->outputs, pattern);
		if (rc == 0)
			rc = forge_glob_check(pattern, &why);
		if (rc == 0 && (strcmp(pattern, "inputs") == 0 ||
				strncmp(pattern, "inputs/", 7) == 0))
			rc = forge_fail(&why, EINVAL,
					"'%.64s': inputs/ has the inputs of the step",
					pattern);
		if (rc < 0)
			return at(g, o->line, o->column, t->step, "outputs", rc, &why,
				  err);
	}
	return 0;
}

static int evaluate(const struct forge_graph *g, struct forge_task *t,
		    struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	struct finder f = { g, t };

	if (!t->step->when)
		return 0;
	int rc = forge_condition(t->step->when, find_value, &f, &why);
	if (rc < 0)
		return at(g, t->step->line, t->step->column, t->step, "when", rc, &why,
			  err);
	t->is_skipped = rc == 0;
	if (t->is_skipped &&
	    !(t->why_skipped = forge_asprintf("when: %s", t->step->when)))
		return out_of_memory(err);
	return 0;
}

static int add_task(struct forge_graph *g, const struct forge_step *s, size_t number,
		    const struct forge_strv *values, struct forge_error *err)
{
	struct forge_task *t = &g->tasks[g->n++];

	*t = (struct forge_task){ .step = s };
	t->values = s->n_loops ? calloc(s->n_loops, sizeof(char *)) : NULL;
	if (s->n_loops && !t->values)
		return out_of_memory(err);
	/* The last loop changes fastest. */
	for (size_t i = s->n_loops; i-- > 0; number /= values[i].n)
		t->values[i] = values[i].v[number % values[i].n];
	if (make_name(t) < 0)
		return out_of_memory(err);
	int rc = expand_outputs(g, t, err);
	return rc < 0 ? rc : evaluate(g, t, err);
}

/* Names of tasks are the values with commas between them, and names of directories. */
static int check_labels(const struct forge_graph *g, const struct forge_step *s,
			const struct forge_strv *values, struct forge_error *err)
{
	size_t longest = 0;

	for (size_t i = 0; i < s->n_loops; i++) {
		size_t most = 0;
		forge_strv_foreach (value, &values[i]) {
			size_t len = 0;
			for (const char *c = value; *c; c++)
				len += *c == '/' || *c == '%' ? 3 : 1;
			most = len > most ? len : most;
			if (s->n_loops > 1 && strchr(value, ','))
				return forge_fail_at(
					err, g->p->shown, s->loops[i].line,
					s->loops[i].column,
					"steps.%s.foreach: '%.64s' has a comma, which is "
					"between the values in the names of tasks",
					s->name, value);
		}
		longest += most + 1;
	}
	return longest <= 255 ? 0
			      : forge_fail_at(err, g->p->shown, s->line, s->column,
					      "steps.%s.foreach: the names of its tasks "
					      "have more than 255 bytes",
					      s->name);
}

static int add_tasks(struct forge_graph *g, unsigned index, struct forge_error *err)
{
	const struct forge_step *s = &g->p->steps[index];
	struct forge_strv *values = &g->values[g->n_values];
	size_t n = 1;
	int rc = 0;

	for (size_t i = 0; i < s->n_loops && rc == 0; i++) {
		struct forge_error why = FORGE_ERROR_INIT;
		rc = forge_loop_values(g->p, &s->loops[i], &g->values[g->n_values++],
				       &why);
		if (rc < 0)
			return at(g, s->loops[i].line, s->loops[i].column, s, "foreach",
				  rc, &why, err);
		n *= values[i].n;
		if (n > TASKS_MAX)
			break;
	}
	if (n > TASKS_MAX || g->n + n > TASKS_MAX)
		return forge_fail_at(err, g->p->shown, s->line, s->column,
				     "steps.%s: the pipeline has more than %d tasks",
				     s->name, TASKS_MAX);
	rc = check_labels(g, s, values, err);
	if (rc < 0)
		return rc;
	struct forge_task *grown = reallocarray(g->tasks, g->n + n, sizeof(*grown));
	if (!grown)
		return out_of_memory(err);
	g->tasks = grown;
	g->first[index] = (unsigned)g->n;
	g->count[index] = (unsigned)n;
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_task(g, s, i, values, err);
	return rc;
}

/* ---- sources ---- */

struct maker {
	struct forge_graph *g;
	struct forge_task *t;
	size_t cap;
	size_t *total;
	struct forge_error *err;
};

static int add_source(struct maker *m, unsigned input, int task, char *pattern,
		      const char *below)
{
	struct forge_task *t = m->t;

	if (!pattern)
		return out_of_memory(m->err);
	if (t->n_sources == m->cap) {
		size_t cap = m->cap ? 2 * m->cap : 4;
		struct forge_source *grown =
			reallocarray(t->sources, cap, sizeof(*grown));
		if (!grown) {
			free(pattern);
			return out_of_memory(m->err);
		}
		t->sources = grown;
		m->cap = cap;
	}
	t->sources[t->n_sources++] = (struct forge_source){ input, task, pattern, below };
	if (++*m->total > SOURCES_MAX)
		return forge_fail(m->err, E2BIG,
				  "%s: the tasks have more than %d inputs together",
				  m->g->p->shown, SOURCES_MAX);
	return 0;
}

/* Of the loops that both steps have, this task of the other step has the same values. */
static bool is_matching(const struct forge_task *t, const struct forge_task *other)
{
	for (size_t i = 0; i < t->step->n_loops; i++)
		for (size_t k = 0; k < other->step->n_loops; k++)
			if (strcmp(t->step->loops[i].name, other->step->loops[k].name) ==
				    0 &&
			    strcmp(t->values[i], other->values[k]) != 0)
				return false;
	return true;
}

/* Whether the other step has a loop that this one has not: then there are several tasks for one. */
static bool is_gathered(const struct forge_step *s, const struct forge_step *other)
{
	for (size_t k = 0; k < other->n_loops; k++) {
		bool is_shared = false;
		for (size_t i = 0; i < s->n_loops; i++)
			is_shared |= strcmp(s->loops[i].name, other->loops[k].name) == 0;
		if (!is_shared)
			return true;
	}
	return false;
}

/* Whether an output that matches one of these patterns can match the other. */
static bool may_match(const char *wanted, const char *declared)
{
	if (!is_pattern(declared))
		return forge_glob_match(wanted, declared);
	return is_pattern(wanted) || forge_glob_match(declared, wanted);
}

static int check_output(const struct forge_task *other, const char *pattern,
			struct forge_error *why)
{
	char list[256] = "";
	size_t len = 0;

	forge_strv_foreach (declared, &other->outputs) {
		if (may_match(pattern, declared))
			return 0;
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s",
						len ? ", " : "", declared);
	}
	return len ? forge_fail(why, EINVAL, "step %s has no output '%.100s' (has: %s)",
				other->step->name, pattern, list)
		   : forge_fail(why, EINVAL, "step %s declares no outputs",
				other->step->name);
}

static int add_reference(struct maker *m, unsigned input, const char *text,
			 struct forge_error *why)
{
	struct forge_graph *g = m->g;
	unsigned other = (unsigned)forge_step_of(g->p, text);
	bool is_many = is_gathered(m->t->step, &g->p->steps[other]);
	forge_auto_free char *pattern = NULL;
	bool has_any = false;
	int rc = forge_task_expand(g, m->t, pattern_of(text), &pattern, why);

	if (rc < 0)
		return rc;
	if (strncmp(pattern, "../", 3) == 0 || strstr(pattern, "/../"))
		return forge_fail(why, EINVAL, "'%.100s' leads out of the outputs", text);
	unsigned step = (unsigned)(m->t->step - g->p->steps), i = 0,
		 end = g->count[other];
	/* Two steps over the same list: their tasks have the same order. */
	unsigned same = (unsigned)(m->t - g->tasks) - g->first[step];
	if (!is_many && same < end &&
	    is_matching(m->t, &g->tasks[g->first[other] + same])) {
		i = same;
		end = same + 1;
	}
	for (; i < end && rc == 0; i++) {
		struct forge_task *from = &g->tasks[g->first[other] + i];
		if (!is_matching(m->t, from))
			continue;
		if (!has_any)
			rc = check_output(from, pattern, why);
		has_any = true;
		if (rc == 0)
			rc = add_source(m, input, (int)(from - g->tasks), strdup(pattern),
					is_many ? from->label : NULL);
	}
	if (rc == 0 && !has_any)
		rc = forge_fail(why, EINVAL, "no task of step %s has the values of %s",
				g->p->steps[other].name, m->t->name);
	return rc;
}

/* A file whose name is not UTF-8; its bytes are written as in records. */
static int fail_name(const char *pattern, const char *file, struct forge_error *why)
{
	forge_auto_json json_t *name = forge_json_name(file);

	return forge_fail(why, EINVAL,
			  "'%.100s': the name of the file '%.200s' is not UTF-8", pattern,
			  name ? json_string_value(name) : "?");
}

/* A file, or files by a pattern. */
static int add_files(struct maker *m, unsigned input, const char *text,
		     struct forge_error *why)
{
	forge_auto_free char *path = NULL, *full = NULL;
	int rc = forge_task_expand(m->g, m->t, text, &path, why);

	if (rc < 0)
		return rc;
	full = *path == '/' ? strdup(path) : forge_asprintf("%s/%s", m->g->p->dir, path);
	if (!full)
		return -ENOMEM;
	/* "data/" is the directory. */
	for (size_t len = strlen(full); len > 1 && full[len - 1] == '/'; len--)
		full[len - 1] = '\0';
	if (!is_pattern(path))
		return add_source(m, input, -1, forge_take_ptr(full), NULL);
	forge_auto_strv struct forge_strv found = { 0 };
	rc = forge_loop_glob(full, &found);
	if (rc == 0 && found.n == 0)
		return forge_fail(why, ENOENT, "no file matches '%.100s'", path);
	forge_strv_foreach (one, &found) {
		json_t *name = json_string(one);
		json_decref(name);
		if (rc == 0 && !name)
			rc = fail_name(path, one, why);
		if (rc == 0)
			rc = add_source(m, input, -1, strdup(one), NULL);
	}
	return rc;
}

const char *forge_source_name(const struct forge_source *s)
{
	const char *slash = strrchr(s->pattern, '/');

	return slash && slash[1] ? slash + 1 : s->pattern;
}

bool forge_input_is_dir(const struct forge_graph *g, const struct forge_task *t,
			unsigned input)
{
	const struct forge_step_input *in = &t->step->inputs[input];

	if (in->is_list || is_pattern(in->v[0].text))
		return true;
	int other = forge_step_of(g->p, in->v[0].text);
	return other >= 0 && (is_pattern(pattern_of(in->v[0].text)) ||
			      is_gathered(t->step, &g->p->steps[other]));
}

/* The name that a file has in the input, below the task that it is gathered from. NULL: it is known when that has run. */
static const char *known_name(const struct forge_source *s)
{
	if (s->task < 0)
		return forge_source_name(s);
	return is_pattern(s->pattern) ? NULL : s->pattern;
}

static bool have_one_name(const struct forge_source *a, const struct forge_source *b)
{
	const char *x = known_name(a), *y = known_name(b);
	const char *at = a->task < 0 || !a->below ? "" : a->below;
	const char *bt = b->task < 0 || !b->below ? "" : b->below;

	return a->input == b->input && x && y && strcmp(x, y) == 0 && strcmp(at, bt) == 0;
}

/* Two files that are given under one name would hide each other. */
static int check_files(const struct forge_graph *g, const struct forge_task *t,
		       struct forge_error *err)
{
	for (size_t i = 0; i < t->n_sources; i++)
		for (size_t k = 0; k < i && t->n_sources < 1000; k++) {
			const struct forge_source *a = &t->sources[i];
			if (!have_one_name(a, &t->sources[k]))
				continue;
			const struct forge_step_input *in = &t->step->inputs[a->input];
			return forge_fail_at(err, g->p->shown, in->line, in->column,
					     "steps.%s.inputs.%s: two files have the "
					     "name '%.64s'",
					     t->step->name, in->name, known_name(a));
		}
	return 0;
}

static int resolve(struct forge_graph *g, struct forge_task *t, size_t *total,
		   struct forge_error *err)
{
	struct maker m = { g, t, 0, total, err };

	for (unsigned i = 0; i < t->step->n_inputs; i++)
		for (size_t k = 0; k < t->step->inputs[i].n; k++) {
			const struct forge_step_text *v = &t->step->inputs[i].v[k];
			struct forge_error why = FORGE_ERROR_INIT;
			m.err = &why;
			int rc = forge_step_of(g->p, v->text) >= 0
					 ? add_reference(&m, i, v->text, &why)
					 : add_files(&m, i, v->text, &why);
			if (rc < 0)
				return at(g, v->line, v->column, t->step, "inputs", rc,
					  &why, err);
		}
	return check_files(g, t, err);
}

/* ---- the graph ---- */

static int by_number(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return (x > y) - (x < y);
}

/* A task without one of its inputs is skipped; one that gathers takes what is there. */
static int skip_readers(const struct forge_graph *g, struct forge_task *t)
{
	for (unsigned input = 0; input < t->step->n_inputs && !t->is_skipped; input++) {
		const struct forge_task *missing = NULL;
		bool has_any = false;
		for (size_t i = 0; i < t->n_sources; i++) {
			const struct forge_source *s = &t->sources[i];
			if (s->input != input)
				continue;
			if (s->task >= 0 && g->tasks[s->task].is_skipped)
				missing = &g->tasks[s->task];
			else
				has_any = true;
		}
		if (!missing || (has_any && forge_input_is_dir(g, t, input)))
			continue;
		t->is_skipped = true;
		t->why_skipped = forge_asprintf("%s is skipped", missing->name);
		if (!t->why_skipped)
			return -ENOMEM;
	}
	return 0;
}

static int connect(struct forge_graph *g, struct forge_task *t)
{
	t->deps = calloc(t->n_sources + 1, sizeof(*t->deps));
	if (!t->deps)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_sources; i++)
		if (t->sources[i].task >= 0 && !g->tasks[t->sources[i].task].is_skipped)
			t->deps[t->n_deps++] = (unsigned)t->sources[i].task;
	qsort(t->deps, t->n_deps, sizeof(*t->deps), by_number);
	size_t n = 0;
	for (size_t i = 0; i < t->n_deps; i++)
		if (i == 0 || t->deps[i] != t->deps[i - 1])
			t->deps[n++] = t->deps[i];
	t->n_deps = n;
	for (size_t i = 0; i < n; i++)
		g->tasks[t->deps[i]].n_readers++;
	return 0;
}

static int connect_readers(struct forge_graph *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct forge_task *t = &g->tasks[i];
		t->readers = calloc(t->n_readers + 1, sizeof(*t->readers));
		if (!t->readers)
			return -ENOMEM;
		t->n_readers = 0;
	}
	for (unsigned i = 0; i < g->n; i++)
		for (size_t k = 0; k < g->tasks[i].n_deps; k++) {
			struct forge_task *from = &g->tasks[g->tasks[i].deps[k]];
			from->readers[from->n_readers++] = i;
		}
	for (size_t i = g->n; i-- > 0;) {
		struct forge_task *t = &g->tasks[i];
		for (size_t k = 0; k < t->n_readers; k++)
			if (g->tasks[t->readers[k]].length > t->length)
				t->length = g->tasks[t->readers[k]].length;
		t->length++;
	}
	return 0;
}

int forge_graph_make(const struct forge_pipeline *p, struct forge_graph *ret,
		     struct forge_error *err)
{
	forge_auto_free unsigned *order = calloc(p->n_steps, sizeof(*order));
	size_t n_loops = 0, total = 0;

	*ret = (struct forge_graph){ .p = p };
	for (size_t i = 0; i < p->n_steps; i++)
		n_loops += p->steps[i].n_loops;
	ret->first = calloc(p->n_steps, sizeof(*ret->first));
	ret->count = calloc(p->n_steps, sizeof(*ret->count));
	ret->values = calloc(n_loops + 1, sizeof(*ret->values));
	if (!order || !ret->first || !ret->count || !ret->values)
		return out_of_memory(err);
	int rc = forge_order_steps(p, order, err);
	for (size_t i = 0; i < p->n_steps && rc == 0; i++)
		rc = add_tasks(ret, order[i], err);
	for (size_t i = 0; i < ret->n && rc == 0; i++)
		rc = resolve(ret, &ret->tasks[i], &total, err);
	for (size_t i = 0; i < ret->n && rc == 0; i++) {
		if (skip_readers(ret, &ret->tasks[i]) < 0 ||
		    connect(ret, &ret->tasks[i]) < 0)
			rc = out_of_memory(err);
	}
	if (rc == 0 && connect_readers(ret) < 0)
		rc = out_of_memory(err);
	return rc;
}

/* What was meant may be a file or a step. */
static int no_file(const struct forge_graph *g, const struct forge_task *t,
		   const struct forge_step_input *in, const char *path, int code,
		   struct forge_error *err)
{
	forge_auto_strv struct forge_strv steps = { 0 };
	char word[64], near[160] = "";
	/* As it was written, if it is below the pipeline. */
	size_t top = strlen(g->p->dir);
	const char *written = strncmp(path, g->p->dir, top) == 0 && path[top] == '/'
				      ? path + top + 1
				      : "";

	(void)forge_fail_at(err, g->p->shown, in->line, in->column,
			    "steps.%s.inputs.%s: %s: %s", t->step->name, in->name, path,
			    strerror(code));
	(void)snprintf(word, sizeof(word), "%.*s", (int)strcspn(written, "/"), written);
	for (size_t i = 0; i < g->p->n_steps; i++)
		if (forge_strv_add(&steps, g->p->steps[i].name) < 0)
			return out_of_memory(err);
	const char *meant =
		code == ENOENT && strchr(written, '/') && steps.n
			? forge_near_miss(word, (const char *const *)steps.v, steps.n)
			: NULL;
	if (meant)
		(void)snprintf(near, sizeof(near), "; did you mean the step '%s'?",
			       meant);
	return forge_hint(err, -code,
			  "Paths are relative to the pipeline; STEP/PATTERN names "
			  "outputs of a step%s",
			  near);
}

int forge_graph_check_files(const struct forge_graph *g, const struct forge_task *t,
			    struct forge_error *err)
{
	for (size_t i = 0; i < t->n_sources; i++) {
		const struct forge_step_input *in = &t->step->inputs[t->sources[i].input];
		if (t->sources[i].task >= 0 || access(t->sources[i].pattern, F_OK) == 0)
			continue;
		return no_file(g, t, in, t->sources[i].pattern, errno, err);
	}
	return 0;
}

void forge_graph_done(struct forge_graph *g)
{
	for (size_t i = 0; i < g->n; i++) {
		struct forge_task *t = &g->tasks[i];
		for (size_t k = 0; k < t->n_sources; k++)
			free(t->sources[k].pattern);
		free(t->sources);
		free(t->values);
		free(t->name);
		free(t->label);
		free(t->deps);
		free(t->readers);
		free(t->why_skipped);
		forge_strv_done(&t->outputs);
	}
	for (size_t i = 0; i < g->n_values; i++)
		forge_strv_done(&g->values[i]);
	free(g->values);
	free(g->tasks);
	free(g->first);
	free(g->count);
	*g = (struct forge_graph){ .p = NULL };
}

int forge_graph_find(const struct forge_graph *g, const char *word, size_t *ret_n,
		     struct forge_error *err)
{
	size_t len = strcspn(word, "[");
	int step = forge_pipeline_find_step(g->p, word, len);

	if (step < 0)
		return forge_pipeline_unknown_step(g->p, word, err);
	*ret_n = g->count[step];
	if (!word[len])
		return (int)g->first[step];
	*ret_n = 1;
	for (unsigned i = 0; i < g->count[step]; i++)
		if (strcmp(g->tasks[g->first[step] + i].name, word) == 0)
			return (int)(g->first[step] + i);
	return forge_hint(err, forge_fail(err, ENOENT, "unknown task '%.100s'", word),
			  "Step %s has %u tasks, the first is %s", g->p->steps[step].name,
			  g->count[step], g->tasks[g->first[step]].name);
}

const char *forge_task_id(const struct forge_graph *g, const struct forge_task *t,
			  char buf[FORGE_TASK_ID_MAX])
{
	forge_auto_free char *whole =
		forge_asprintf("%s.%s%s%s", g->p->name, t->step->name,
			       t->label ? "." : "", t->label ? t->label : "");
	bool is_changed = !whole || strlen(whole) >= FORGE_TASK_ID_MAX;

	(void)snprintf(buf, FORGE_TASK_ID_MAX, "%s", whole ? whole : t->step->name);
	for (char *c = buf; *c; c++)
		if (!(isalnum((unsigned char)*c) || strchr("._-", *c)) ||
		    (c > buf && *c == '.' && c[-1] == '.')) {
			*c = '_';
			is_changed = true;
		}
	if (is_changed) { /* two names must not become one */
		char digest[FORGE_DIGEST_MAX];
		struct forge_sha256 h;
		forge_sha256_init(&h);
		forge_sha256_add(&h, whole ? whole : "", whole ? strlen(whole) : 0);
		(void)forge_sha256_done(&h, digest);
		if (strlen(buf) > FORGE_TASK_ID_MAX - 10)
			buf[FORGE_TASK_ID_MAX - 10] = '\0';
		size_t len = strlen(buf);
		(void)snprintf(buf + len, FORGE_TASK_ID_MAX - len, "-%.8s",
			       digest + strlen("sha256:"));
	}
	return buf;
}
