/* SPDX-License-Identifier: Apache-2.0 */
/* Outcomes as JSON, by a table of their fields. */
#include "executor/outcome.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

enum type { NUMBER, COUNT, FLAG, TEXT };

struct row {
	const char *key;
	enum type type;
	size_t offset, size;
};

#define ROW(name, type)                                                                  \
	{                                                                                \
#name, type, offsetof(struct forge_outcome, name),                       \
			sizeof(((struct forge_outcome *)0)->name)                        \
	}

static const struct row rows[] = {
	ROW(has_started, FLAG),
	ROW(has_status, FLAG),
	ROW(wait_status, NUMBER),
	ROW(is_exec_failure, FLAG),
	ROW(network_tries, COUNT),
	ROW(tmp_files, COUNT),
	ROW(tmp_bytes, COUNT),
	ROW(wall_usec, COUNT),
	ROW(cpu_usec, COUNT),
	ROW(memory_peak_bytes, COUNT),
	ROW(pids_peak, COUNT),
	ROW(disk_peak_bytes, COUNT),
	ROW(inodes_peak, COUNT),
	ROW(io_read_bytes, COUNT),
	ROW(io_write_bytes, COUNT),
	ROW(stream_bytes[0], COUNT),
	ROW(stream_bytes[1], COUNT),
	ROW(is_truncated[0], FLAG),
	ROW(is_truncated[1], FLAG),
	ROW(oom_kills, COUNT),
	ROW(pids_refused, COUNT),
	ROW(sockets_refused, COUNT),
	ROW(largest_name, TEXT),
	ROW(largest_bytes, COUNT),
	ROW(kernel_memory_bytes, COUNT),
	ROW(oom_elsewhere, FLAG),
	ROW(is_too_deep, FLAG),
	ROW(is_stuck, FLAG),
	ROW(has_quota, FLAG),
	ROW(is_interrupted, FLAG),
	ROW(landlock_abi, NUMBER),
};

/* Causes by name: their numbers may change from one version to the next. */
static const char *const stops[] = {
	[FORGE_STOP_NONE] = "none",	[FORGE_STOP_WALL] = "wall_time",
	[FORGE_STOP_CPU] = "cpu_time",	[FORGE_STOP_MEMORY] = "memory",
	[FORGE_STOP_DISK] = "disk",	[FORGE_STOP_OUTPUT] = "output",
	[FORGE_STOP_CANCEL] = "cancel", [FORGE_STOP_PENDING] = "pending",
};

/* Numbers as text: one that is not known is larger than an integer of JSON. */
static json_t *count_json(uint64_t n)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, n);
	return json_string(text);
}

static json_t *value_json(const struct row *row, const void *field)
{
	switch (row->type) {
	case NUMBER:
		return json_integer(*(const int *)field);
	case COUNT:
		return count_json(*(const uint64_t *)field);
	case FLAG:
		return json_boolean(*(const bool *)field);
	case TEXT:
		break;
	}
	return forge_json_text(field);
}

static json_t *missing_json(unsigned missing)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < FORGE_MECH_COUNT; i++)
		if (missing & (1u << i))
			json_array_append_new(list,
					      json_string(forge_mechanism_names[i]));
	return list;
}

json_t *forge_error_json(const struct forge_error *e)
{
	return json_pack("{s:i, s:o, s:o}", "code", e->code, "message",
			 forge_json_text(e->msg), "hint", forge_json_text(e->hint));
}

void forge_error_restore(const json_t *j, struct forge_error *ret)
{
	*ret = FORGE_ERROR_INIT;
	ret->code = (int)json_integer_value(json_object_get(j, "code"));
	(void)snprintf(ret->msg, sizeof(ret->msg), "%s",
		       forge_json_string_or(j, "message", ""));
	(void)snprintf(ret->hint, sizeof(ret->hint), "%s",
		       forge_json_string_or(j, "hint", ""));
}

json_t *forge_outcome_json(const struct forge_outcome *o)
{
	json_t *j = json_pack("{s:s, s:o, s:o}", "stop", stops[o->stop], "missing",
			      missing_json(o->missing), "start_error",
			      forge_error_json(&o->start_error));

	if (!j)
		return NULL;
	if (o->cgroup_manager)
		json_object_set_new(j, "cgroup_manager", json_string(o->cgroup_manager));
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(rows); i++)
		json_object_set_new(
			j, rows[i].key,
			value_json(&rows[i], (const char *)o + rows[i].offset));
	return j;
}

static void restore_value(const struct row *row, const json_t *value, void *field)
{
	switch (row->type) {
	case NUMBER:
		*(int *)field = (int)json_integer_value(value);
		break;
	case COUNT:
		if (json_is_string(value))
			*(uint64_t *)field = strtoull(json_string_value(value), NULL, 10);
		break;
	case FLAG:
		*(bool *)field = json_is_true(value);
		break;
	case TEXT:
		(void)snprintf(field, row->size, "%s",
			       json_is_string(value) ? json_string_value(value) : "");
		break;
	}
}

/* The record borrows the name for ever, so it must be one of these. */
static const char *manager_of(const char *name)
{
	static const char *const names[] = { "v1", "v2", "systemd", "none" };

	for (size_t i = 0; name && i < FORGE_ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return names[i];
	return name ? "other" : NULL;
}

int forge_outcome_restore(const json_t *j, struct forge_outcome *ret)
{
	const char *stop = forge_json_string(j, "stop");
	size_t i;
	const json_t *name;

	*ret = FORGE_OUTCOME_INIT;
	ret->stop = FORGE_STOP_NONE;
	size_t n = 0;
	while (stop && n < FORGE_ARRAY_SIZE(stops) && strcmp(stops[n], stop) != 0)
		n++;
	if (!stop || n == FORGE_ARRAY_SIZE(stops))
		return -EINVAL;
	ret->stop = (enum forge_stop)n;
	for (size_t k = 0; k < FORGE_ARRAY_SIZE(rows); k++)
		restore_value(&rows[k], json_object_get(j, rows[k].key),
			      (char *)ret + rows[k].offset);
	json_array_foreach (json_object_get(j, "missing"), i, name)
		for (unsigned m = 0; m < FORGE_MECH_COUNT; m++)
			if (json_is_string(name) && strcmp(json_string_value(name),
							   forge_mechanism_names[m]) == 0)
				ret->missing |= 1u << m;
	forge_error_restore(json_object_get(j, "start_error"), &ret->start_error);
	ret->cgroup_manager = manager_of(forge_json_string(j, "cgroup_manager"));
	return 0;
}
