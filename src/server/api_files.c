/* SPDX-License-Identifier: Apache-2.0 */
/* Logs, outputs, tickets. No path of a request is opened: logs are found by the id of a run, outputs by their digest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/strv.h"
#include "record/clear.h"
#include "record/foreign.h"
#include "record/record.h"
#include "record/verify.h"
#include "server/body.h"
#include "server/route.h"
#include "server/shared.h"
#include "state/objects.h"

#define OUTPUTS_DEFAULT 200
#define OUTPUTS_MAX	1000
#define TICKET_SECONDS	300

static bool is_stream(const char *name, struct forge_answer *a)
{
	if (name && (strcmp(name, "stdout") == 0 || strcmp(name, "stderr") == 0))
		return true;
	forge_answer_error(a, 400, "bad_request", "a log is stdout or stderr", NULL);
	return false;
}

/* ---- logs ---- */

void forge_api_log(struct forge_server *sv, const struct forge_ask *ask,
		   struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t tail;
	struct stat st;

	if (!is_stream(ask->params[1], a))
		return;
	int rc = forge_target_number(&ask->target, "tail", INT64_MAX, UINT64_MAX, &tail,
				     &err);
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	int fd = forge_server_open_log(sv, record, ask->params[1], &err);
	/* A run that has not started yet has printed nothing. */
	if (fd == -ENOENT && !forge_record_is_over(record)) {
		a->type = "text/plain; charset=utf-8";
		a->has_total = true;
		return;
	}
	if (fd < 0 || fstat(fd, &st) < 0) {
		forge_answer_fail(a, fd < 0 ? fd : -errno, &err);
		if (fd >= 0)
			close(fd);
		return;
	}
	uint64_t size = (uint64_t)st.st_size;
	forge_answer_file(a, ask, fd, size, "text/plain; charset=utf-8");
	if (a->status == 200 && tail < size) {
		a->offset = size - tail;
		a->size = tail;
	}
	a->has_total = a->status < 300;
}

void forge_api_follow(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	const char *stream = forge_target_get(&ask->target, "stream");
	uint64_t from;

	stream = stream ? stream : "stdout";
	if (!is_stream(stream, a))
		return;
	int rc = forge_target_number(&ask->target, "from", INT64_MAX, 0, &from, &err);
	/* A reader that comes again sends the id of its last event, with the target that it had. */
	if (rc == 0 && ask->last_event && *ask->last_event)
		rc = forge_number_parse("Last-Event-ID", ask->last_event, INT64_MAX,
					&from, &err);
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	/* Why there is no log is said now, and not by a stream that never has anything. */
	int fd = forge_server_open_log(sv, record, stream, &err);
	if (fd < 0 && (fd != -ENOENT || forge_record_is_over(record))) {
		forge_answer_fail(a, fd, &err);
		return;
	}
	if (fd >= 0)
		close(fd);
	rc = forge_follower_new(sv->follow, ask->params[0], stream, from, &a->follower,
				&err);
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	a->type = "text/event-stream";
}

/* ---- outputs ---- */

static const struct {
	const char *ending, *type;
	bool is_safe; /* shown by a browser, in a frame without scripts */
} types[] = {
	{ "png", "image/png", true },
	{ "jpg", "image/jpeg", true },
	{ "jpeg", "image/jpeg", true },
	{ "gif", "image/gif", true },
	{ "webp", "image/webp", true },
	{ "svg", "image/svg+xml", true },
	{ "txt", "text/plain; charset=utf-8", true },
	{ "log", "text/plain; charset=utf-8", true },
	{ "md", "text/plain; charset=utf-8", true },
	{ "py", "text/plain; charset=utf-8", true },
	{ "r", "text/plain; charset=utf-8", true },
	{ "sh", "text/plain; charset=utf-8", true },
	{ "vcf", "text/plain; charset=utf-8", true },
	{ "bed", "text/plain; charset=utf-8", true },
	{ "fa", "text/plain; charset=utf-8", true },
	{ "fasta", "text/plain; charset=utf-8", true },
	{ "yaml", "text/plain; charset=utf-8", true },
	{ "yml", "text/plain; charset=utf-8", true },
	{ "csv", "text/csv; charset=utf-8", true },
	{ "tsv", "text/tab-separated-values; charset=utf-8", true },
	{ "json", "application/json", true },
	{ "ipynb", "application/json", true },
	{ "html", "text/html; charset=utf-8", true },
	{ "htm", "text/html; charset=utf-8", true },
	{ "pdf", "application/pdf", false },
	{ "gz", "application/gzip", false },
	{ "zip", "application/zip", false },
};

static size_t type_of(const char *path)
{
	const char *dot = strrchr(path, '.');
	size_t i = 0;

	while (i < FORGE_ARRAY_SIZE(types) &&
	       (!dot || strcasecmp(dot + 1, types[i].ending) != 0))
		i++;
	return i;
}

static const char *type_name(size_t i)
{
	return i < FORGE_ARRAY_SIZE(types) ? types[i].type : "application/octet-stream";
}

static void note_damage(const struct forge_server *sv, json_t *record)
{
	forge_auto_home struct forge_home theirs = FORGE_HOME_INIT;

	if (!forge_foreign_is(&sv->home, record))
		forge_verify_note(&sv->home, record);
	else if (forge_foreign_open(record, "outputs", &theirs, NULL) == 0)
		forge_verify_note(&theirs, record);
}

void forge_api_outputs(struct forge_server *sv, const struct forge_ask *ask,
		       struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	uint64_t after, limit;
	const char *given = forge_target_get(&ask->target, "after");
	int rc = forge_target_number(&ask->target, "after", INT32_MAX, 0, &after, &err);

	if (rc == 0)
		rc = forge_target_number(&ask->target, "limit", OUTPUTS_MAX,
					 OUTPUTS_DEFAULT, &limit, &err);
	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	json_t *all = json_object_get(record, "outputs");
	size_t total = json_array_size(all), i = given ? (size_t)after + 1 : 0;
	size_t end = i + limit < total ? i + limit : total;
	/* Only of those that are shown, marks are looked for. */
	json_t *some = json_array(), *page = json_array();
	for (size_t k = i; k < end; k++)
		(void)json_array_append(some, json_array_get(all, k));
	json_object_set_new(record, "outputs", some);
	note_damage(sv, record);
	for (size_t k = i; k < end; k++) {
		const json_t *f = json_array_get(some, k - i);
		const char *path = forge_json_string_or(f, "path", "");
		(void)json_array_append_new(
			page, json_pack("{s:I, s:s, s:O?, s:O?, s:s, s:b}", "index",
					(json_int_t)k, "path", path, "size",
					json_object_get(f, "size"), "sha256",
					json_object_get(f, "sha256"), "type",
					type_name(type_of(path)), "damaged",
					json_is_true(json_object_get(f, "damaged"))));
	}
	forge_answer_json(a, 200,
			  json_pack("{s:o, s:I, s:o}", "outputs", page, "total",
				    (json_int_t)total, "next",
				    end < total && end > 0
					    ? json_integer((json_int_t)end - 1)
					    : json_null()));
}

/* Letters that mean something in the header are left out of the name. */
static char *attachment_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char name[128];
	size_t n = 0;

	for (const char *p = slash ? slash + 1 : path; *p && n + 1 < sizeof(name); p++)
		name[n++] = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') ||
					    (*p >= 'A' && *p <= 'Z') || strchr("._-+", *p)
				    ? *p
				    : '_';
	name[n] = '\0';
	return forge_asprintf("attachment; filename=\"%s\"", n ? name : "output");
}

static int open_output(struct forge_server *sv, const json_t *record, const char *digest,
		       struct forge_error *err)
{
	forge_auto_home struct forge_home theirs = FORGE_HOME_INIT;
	bool is_foreign = forge_foreign_is(&sv->home, record);
	int rc = forge_check_quarantine(record, err);

	if (rc == 0 && is_foreign)
		rc = forge_foreign_open(record, "outputs", &theirs, err);
	if (rc < 0)
		return rc;
	int fd = forge_server_open_object(sv, is_foreign ? &theirs : &sv->home, digest);
	if (fd >= 0)
		return fd;
	if (fd == -EUCLEAN)
		return forge_hint(err,
				  forge_fail(err, EUCLEAN, "the stored file is damaged"),
				  "forge verify says how, and which other runs have it");
	if (fd == -ENOENT)
		return forge_fail(err, ENOENT, "the file was removed");
	return forge_fail_errno(err, -fd, "open the stored file");
}

void forge_api_output(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	struct forge_error err = FORGE_ERROR_INIT;
	bool wants_preview = forge_target_flag(&ask->target, "preview");
	char *end;
	unsigned long index = strtoul(ask->params[1], &end, 10);
	struct stat st;

	forge_auto_json json_t *record = forge_api_find(sv, ask, a);
	if (!record)
		return;
	const json_t *f =
		*end || !*ask->params[1]
			? NULL
			: json_array_get(json_object_get(record, "outputs"), index);
	if (!f) {
		forge_answer_error(a, 404, "not_found", "the run has no such output",
				   NULL);
		return;
	}
	const char *path = forge_json_string_or(f, "path", "");
	size_t type = type_of(path);
	bool is_preview =
		wants_preview && type < FORGE_ARRAY_SIZE(types) && types[type].is_safe;
	if (wants_preview && !is_preview) {
		forge_answer_error(a, 400, "no_preview",
				   "files of this type have no preview", NULL);
		return;
	}
	int fd = open_output(sv, record, forge_json_string_or(f, "sha256", ""), &err);
	if (fd < 0 || fstat(fd, &st) < 0) {
		forge_answer_fail(a, fd < 0 ? fd : -errno, &err);
		if (fd >= 0)
			close(fd);
		return;
	}
	forge_answer_file(a, ask, fd, (uint64_t)st.st_size,
			  is_preview ? types[type].type : "application/octet-stream");
	a->is_preview = is_preview;
	if (!is_preview)
		a->attachment = attachment_of(path);
}

/* ---- tickets ---- */

void forge_api_ticket(struct forge_server *sv, const struct forge_ask *ask,
		      struct forge_answer *a)
{
	static const char below[] = "/api/v1/runs/";
	char ticket[FORGE_TICKET_MAX];
	struct forge_target t;
	const char *path = forge_json_string(ask->body, "path");
	struct forge_error err = FORGE_ERROR_INIT;
	int rc = forge_body_only(ask->body, "path", &err);

	if (rc < 0) {
		forge_answer_fail(a, rc, &err);
		return;
	}
	if (!path || strncmp(path, below, sizeof(below) - 1) != 0 ||
	    forge_target_parse(path, &t, NULL) < 0 || strstr(path, "ticket=")) {
		forge_answer_error(a, 400, "bad_request",
				   "path: a path below /api/v1/runs/ is needed", NULL);
		return;
	}
	(void)forge_ticket_make(sv->ticket_key, path,
				(int64_t)time(NULL) + TICKET_SECONDS, ticket);
	forge_auto_free char *url = forge_asprintf("%s%cticket=%s", path,
						   strchr(path, '?') ? '&' : '?', ticket);
	forge_answer_json(
		a, 200,
		url ? json_pack("{s:s, s:i}", "url", url, "seconds", TICKET_SECONDS)
		    : NULL);
}
