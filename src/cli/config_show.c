/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a configuration: the limits as a table, the rest as "key: value" lines. */
#include "cli/config_show.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "config/budget.h"
#include "store/store.h"

static const char *const cgroup_names[] = {
	[FORGE_CGROUP_AUTO] = "auto",	    [FORGE_CGROUP_V2] = "v2",
	[FORGE_CGROUP_SYSTEMD] = "systemd", [FORGE_CGROUP_V1] = "v1",
	[FORGE_CGROUP_NONE] = "none",
};

/* The limits of a run with this profile: unset values come from "default". */
static struct forge_limits effective(const struct forge_config *cfg,
				     const struct forge_profile *profile)
{
	struct forge_limits limits = { 0 };
	const struct forge_profile *base;

	if (forge_config_profile(cfg, NULL, &base, NULL) == 0)
		limits = base->limits;
	forge_limits_overlay(&limits, &profile->limits);
	return limits;
}

#define PER_TABLE 6 /* profiles side by side */

/* One column: a heading, then the limits in the order of the rows. */
struct column {
	const char *name;
	struct forge_limits limits;
	const char *unset; /* what 0 means here */
	char text[FORGE_LIMIT_COUNT_ROWS][FORGE_FORMAT_MAX];
};

static void print_limits(struct column *columns, size_t n)
{
	struct forge_cell cells[(1 + FORGE_LIMIT_COUNT_ROWS) * (PER_TABLE + 2)] = {
		{ 0 }
	};
	size_t width = n + 1;

	cells[0] = (struct forge_cell){ "LIMIT", FORGE_BOLD };
	for (size_t r = 0; r < FORGE_LIMIT_COUNT_ROWS; r++)
		cells[(r + 1) * width].text = forge_limit_rows[r].key;
	for (size_t c = 0; c < n; c++) {
		cells[c + 1] = (struct forge_cell){ columns[c].name, FORGE_BOLD };
		for (size_t r = 0; r < FORGE_LIMIT_COUNT_ROWS; r++) {
			const struct forge_limit_row *row = &forge_limit_rows[r];
			uint64_t value = forge_limit_value(&columns[c].limits, row);

			cells[(r + 1) * width + c + 1].text =
				value ? forge_limit_format(columns[c].text[r], row, value)
				      : columns[c].unset;
		}
	}
	forge_table_print(stdout, cells, width, 1 + FORGE_LIMIT_COUNT_ROWS);
	putchar('\n');
}

static void print_profiles(const struct forge_config *cfg)
{
	for (size_t first = 0; first < cfg->n_profiles; first += PER_TABLE) {
		struct column columns[PER_TABLE + 1];
		size_t n = 0;

		for (size_t i = first; i < cfg->n_profiles && n < PER_TABLE; i++, n++)
			columns[n] = (struct column){
				.name = cfg->profiles[i].name,
				.limits = effective(cfg, &cfg->profiles[i]),
			};
		columns[n++] = (struct column){
			.name = "host.max",
			.limits = cfg->caps,
			.unset = "no cap",
		};
		print_limits(columns, n);
	}
}

static void print_list(const char *key, const struct forge_strv *list)
{
	const char *separator = " ";

	printf("%s:", key);
	if (list->n == 0)
		fputs(" (none)", stdout);
	forge_strv_foreach (s, list) {
		fputs(separator, stdout);
		forge_print_clean(stdout, s, strlen(s));
		separator = ", ";
	}
	putchar('\n');
}

static void print_missing(unsigned mask)
{
	const char *separator = " ";

	fputs("sandbox.allow_missing:", stdout);
	for (unsigned m = 0; m < FORGE_MECH_COUNT; m++) {
		if (!(mask >> m & 1))
			continue;
		printf("%s%s", separator, forge_mechanism_names[m]);
		separator = ", ";
	}
	puts(mask ? "" : " (none)");
}

static void print_retry(const struct forge_retry_policy *p)
{
	char text[FORGE_RETRY_TEXT_MAX];
	const char *separator = " ";

	fputs("retry:", stdout);
	for (int i = 0; i < FORGE_RETRY_COUNT; i++) {
		if (!p->rules[i].times)
			continue;
		printf("%s%s", separator, forge_retry_format(text, i, &p->rules[i]));
		separator = ", ";
	}
	puts(forge_retry_is_empty(p) ? " (none)" : "");
}

/* Prints the settings of the budget, store, queue, outputs and retention. */
static void print_state(const struct forge_config *cfg)
{
	char a[FORGE_FORMAT_MAX];
	struct forge_budget b;
	forge_auto_free char *url = cfg->store ? forge_store_display(cfg->store) : NULL;

	forge_budget_of(cfg, &b);
	printf("host.budget.memory: %s\n", forge_format_size(a, b.memory_bytes));
	printf("host.budget.cpus: %s\n", forge_format_cpus(a, b.cpus_milli));
	if (cfg->budget_runs)
		printf("host.budget.runs: %" PRIu64 "\n", cfg->budget_runs);
	printf("store: %s\n", url ? url : "forge.db in FORGE_HOME");
	printf("queue.max_wait: %s\n", forge_format_duration(a, cfg->queue_usec));
	printf("outputs.default: %s\n", forge_outputs_names[cfg->outputs_default]);
	printf("outputs.max_size: %s\n",
	       cfg->outputs_max_bytes ? forge_format_size(a, cfg->outputs_max_bytes)
				      : "the disk limit");
	printf("outputs.max_files: %" PRIu64 "\n", cfg->outputs_max_files);
	print_list("post_process", &cfg->post_process);
	print_retry(&cfg->retry);
	printf("retention.logs: %s\n", forge_format_duration(a, cfg->keep.logs_usec));
	printf("retention.logs_size: %s\n", forge_format_size(a, cfg->keep.logs_bytes));
	printf("retention.workdirs: %s\n",
	       forge_format_duration(a, cfg->keep.workdirs_usec));
	printf("retention.objects: %s\n",
	       forge_format_duration(a, cfg->keep.objects_usec));
}

int forge_config_show(const struct forge_config *cfg, struct forge_error *err)
{
	char size[FORGE_FORMAT_MAX];

	(void)err; /* the same shape as the JSON printer, which can fail */
	printf("file: %s\n\n", cfg->path ? cfg->path : "none, built-in defaults");
	print_profiles(cfg);
	printf("workdir: %s\n", cfg->workdir);
	print_list("read_only", &cfg->read_only);
	printf("host.allow_unlimited: %s\n", cfg->allow_unlimited ? "true" : "false");
	print_state(cfg);
	printf("sandbox.cgroup: %s\n", cgroup_names[cfg->cgroup]);
	print_missing(cfg->allow_missing);
	printf("sandbox.tmp_size: %s\n", cfg->tmp_bytes
						 ? forge_format_size(size, cfg->tmp_bytes)
						 : "half the memory limit");
	printf("sandbox.shm_size: %s\n", cfg->shm_bytes
						 ? forge_format_size(size, cfg->shm_bytes)
						 : "the memory limit");
	printf("sandbox.uid_base: %u\n", cfg->uid_base);
	printf("sandbox.uid_count: %u\n", cfg->uid_count);
	print_list("env.pass", &cfg->env_pass);
	print_list("env.set", &cfg->env_set);
	return 0;
}

/* value / unit, whole where it divides. */
static json_t *ratio(uint64_t value, uint64_t unit)
{
	return value % unit == 0 ? json_integer((json_int_t)(value / unit))
				 : json_real((double)value / (double)unit);
}

/* The units of the record: bytes, seconds, CPUs. Unset is null. */
static json_t *limit_json(const struct forge_limit_row *row, uint64_t value)
{
	if (value == 0)
		return json_null();
	if (value == FORGE_UNLIMITED)
		return json_string("unlimited");
	switch (row->type) {
	case FORGE_LIMIT_DURATION:
		return ratio(value, 1000000);
	case FORGE_LIMIT_CPUS:
		return ratio(value, 1000);
	case FORGE_LIMIT_SIZE:
	case FORGE_LIMIT_COUNT:
		break;
	}
	return json_integer((json_int_t)value);
}

static json_t *limits_json(const struct forge_limits *limits)
{
	json_t *object = json_object();

	for (size_t i = 0; i < FORGE_LIMIT_COUNT_ROWS; i++) {
		const struct forge_limit_row *row = &forge_limit_rows[i];

		if (json_object_set_new(object, row->json,
					limit_json(row, forge_limit_value(limits, row))) <
		    0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *profiles_json(const struct forge_config *cfg)
{
	json_t *object = json_object();

	for (size_t i = 0; i < cfg->n_profiles; i++) {
		struct forge_limits limits = effective(cfg, &cfg->profiles[i]);

		if (json_object_set_new(object, cfg->profiles[i].name,
					limits_json(&limits)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *list_json(const struct forge_strv *list)
{
	json_t *array = json_array();

	forge_strv_foreach (s, list) {
		if (json_array_append_new(array, json_string(s)) < 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *missing_json(unsigned mask)
{
	json_t *array = json_array();

	for (unsigned m = 0; m < FORGE_MECH_COUNT; m++)
		if (mask >> m & 1)
			(void)json_array_append_new(
				array, json_string(forge_mechanism_names[m]));
	return array;
}

static json_t *usec_json(uint64_t usec)
{
	return usec == FORGE_UNLIMITED ? json_string("unlimited") : ratio(usec, 1000000);
}

static json_t *retry_json(const struct forge_retry_policy *p)
{
	char text[FORGE_RETRY_TEXT_MAX];
	json_t *array = json_array();

	for (int i = 0; i < FORGE_RETRY_COUNT; i++)
		if (p->rules[i].times)
			(void)json_array_append_new(
				array,
				json_string(forge_retry_format(text, i, &p->rules[i])));
	return array;
}

/* The parts of print_state(). */
static json_t *state_json(const struct forge_config *cfg)
{
	struct forge_budget b;
	forge_auto_free char *url = cfg->store ? forge_store_display(cfg->store) : NULL;

	forge_budget_of(cfg, &b);
	return json_pack(
		"{s:s?, s:{s:I, s:o, s:I}, s:{s:o}, s:{s:s, s:I, s:I}, s:o, s:o, s:{s:o, "
		"s:o, s:o, s:o}}",
		"store", url, "budget", "memory", (json_int_t)b.memory_bytes, "cpus",
		ratio(b.cpus_milli, 1000), "runs", (json_int_t)cfg->budget_runs, "queue",
		"max_wait", usec_json(cfg->queue_usec), "outputs", "default",
		forge_outputs_names[cfg->outputs_default], "max_size",
		(json_int_t)cfg->outputs_max_bytes, "max_files",
		(json_int_t)cfg->outputs_max_files, "post_process",
		list_json(&cfg->post_process), "retry", retry_json(&cfg->retry),
		"retention", "logs", usec_json(cfg->keep.logs_usec), "logs_size",
		cfg->keep.logs_bytes == FORGE_UNLIMITED
			? json_string("unlimited")
			: json_integer((json_int_t)cfg->keep.logs_bytes),
		"workdirs", usec_json(cfg->keep.workdirs_usec), "objects",
		usec_json(cfg->keep.objects_usec));
}

int forge_config_show_json(const struct forge_config *cfg, struct forge_error *err)
{
	/* json_pack takes ownership of the "o" values, also when it fails. */
	json_t *json = json_pack(
		"{s:s?, s:s, s:o, s:o, s:{s:o, s:b},"
		" s:{s:s, s:o, s:I, s:I, s:I, s:I}, s:{s:o, s:o}}",
		"path", cfg->path, "workdir", cfg->workdir, "read_only",
		list_json(&cfg->read_only), "profiles", profiles_json(cfg), "host", "max",
		limits_json(&cfg->caps), "allow_unlimited", cfg->allow_unlimited,
		"sandbox", "cgroup", cgroup_names[cfg->cgroup], "allow_missing",
		missing_json(cfg->allow_missing), "tmp_size", (json_int_t)cfg->tmp_bytes,
		"shm_size", (json_int_t)cfg->shm_bytes, "uid_base",
		(json_int_t)cfg->uid_base, "uid_count", (json_int_t)cfg->uid_count, "env",
		"pass", list_json(&cfg->env_pass), "set", list_json(&cfg->env_set));

	json_t *state = json ? state_json(cfg) : NULL;
	json_t *budget = json_object_get(state, "budget");
	if (state) {
		(void)json_object_set(json_object_get(json, "host"), "budget", budget);
		(void)json_object_del(state, "budget");
		(void)json_object_update(json, state);
	}
	json_decref(state);
	if (!json)
		return forge_fail(err, ENOMEM, "show: out of memory or text not UTF-8");
	forge_print_json(json);
	json_decref(json);
	return 0;
}

struct origins {
	const struct forge_config *cfg;
	json_t *list;
};

static void add_origin(struct origins *o, const char *key, const char *value,
		       const char *from)
{
	/* A password may stand in the URL of a store. */
	forge_auto_free char *shown =
		strcmp(key, "store") == 0 ? forge_store_display(value) : NULL;

	json_array_append_new(o->list, json_pack("{s:s, s:s?, s:s}", "key", key, "value",
						 shown ? shown : value, "from", from));
}

static void visit_key(const struct forge_config_key *key, void *arg)
{
	struct origins *o = arg;
	const struct forge_origin *written = forge_config_origin(o->cfg, key->path);

	/* Keys with a NAME: only those that a file has. */
	if (strstr(key->path, ".NAME."))
		return;
	if (written)
		add_origin(o, key->path, written->value, written->from);
	else
		add_origin(o, key->path, key->builtin, "built-in");
}

int forge_config_show_origin(const struct forge_config *cfg, bool is_json,
			     struct forge_error *err)
{
	struct origins o = { cfg, json_array() };
	size_t i;
	json_t *row;

	if (!o.list)
		return forge_fail(err, ENOMEM, "out of memory");
	forge_config_each_key(visit_key, &o);
	for (i = 0; i < cfg->n_origins; i++)
		if (strncmp(cfg->origins[i].key, "profiles.", 9) == 0)
			add_origin(&o, cfg->origins[i].key, cfg->origins[i].value,
				   cfg->origins[i].from);
	if (is_json) {
		forge_print_json(o.list);
	} else {
		size_t n = json_array_size(o.list);
		struct forge_cell *cells = calloc((n + 1) * 3, sizeof(*cells));
		if (cells) {
			cells[0] = (struct forge_cell){ "KEY", FORGE_BOLD };
			cells[1] = (struct forge_cell){ "VALUE", FORGE_BOLD };
			cells[2] = (struct forge_cell){ "FROM", FORGE_BOLD };
			json_array_foreach (o.list, i, row) {
				struct forge_cell *c = &cells[(i + 1) * 3];
				c[0].text = forge_json_string(row, "key");
				c[1].text = forge_json_string(row, "value");
				c[2].text = forge_json_string(row, "from");
			}
			forge_table_print(stdout, cells, 3, n + 1);
		}
		free(cells);
		forge_strv_foreach (text, &cfg->held_back)
			printf("held back: %s\n", text);
	}
	json_decref(o.list);
	return 0;
}
