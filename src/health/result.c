/* SPDX-License-Identifier: Apache-2.0 */
/* The results of checks, for people and for records. */
#include "health/result.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

const char *const forge_phase_names[3] = { "pre", "post", "demand" };

void forge_check_say(struct forge_check_report *ret, bool is_ok, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(ret->text, sizeof(ret->text), fmt, ap);
	va_end(ap);
	ret->is_ok = is_ok;
	for (char *p = ret->text; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
}

void forge_check_results_done(struct forge_check_results *r)
{
	for (size_t i = 0; i < r->n; i++)
		json_decref(r->v[i].report.numbers);
	free(r->v);
	*r = (struct forge_check_results){ 0 };
}

json_t *forge_check_json(const struct forge_check_result *r)
{
	json_t *j = json_pack("{s:s, s:s, s:b, s:s, s:o, s:s, s:o, s:b, s:o}", "name",
			      r->decl->name, "kind", r->decl->kind, "ok", r->report.is_ok,
			      "severity", r->decl->severity, "text",
			      forge_json_text(r->report.text), "time", r->time,
			      "duration_seconds", forge_json_seconds(r->duration_usec),
			      "reused", r->is_reused, "age_seconds",
			      forge_json_seconds(r->is_reused ? r->age_usec : 0));

	if (r->report.numbers)
		json_object_set(j, "numbers", r->report.numbers);
	return j;
}

json_t *forge_checks_json(const struct forge_check_results *r)
{
	json_t *checks = json_array();
	char host[256] = "";

	(void)gethostname(host, sizeof(host) - 1); /* "" will do */
	for (size_t i = 0; i < r->n; i++)
		json_array_append_new(checks, forge_check_json(&r->v[i]));
	return json_pack("{s:b, s:o, s:o}", "ok", !forge_checks_failed(r, "block"),
			 "host", forge_json_text(host), "checks", checks);
}

const struct forge_check_result *forge_checks_failed(const struct forge_check_results *r,
						     const char *severity)
{
	for (size_t i = 0; i < r->n; i++)
		if (!r->v[i].report.is_ok &&
		    strcmp(r->v[i].decl->severity, severity) == 0)
			return &r->v[i];
	return NULL;
}
