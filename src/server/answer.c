/* SPDX-License-Identifier: Apache-2.0 */
/* Makes answers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "server/follow.h"
#include "server/answer.h"

void forge_answer_done(struct forge_answer *a)
{
	free(a->text);
	free(a->attachment);
	if (a->fd >= 0)
		close(a->fd);
	forge_follower_free(a->follower);
	*a = FORGE_ANSWER_INIT;
}

/* Names of files and notes can have any bytes; json.h made text of them. */
void forge_answer_json(struct forge_answer *a, unsigned status, json_t *j)
{
	static const char none[] = "{\"error\": {\"code\": \"internal\", \"message\": "
				   "\"out of memory\", \"hint\": null}}";

	forge_answer_done(a);
	a->text = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
	json_decref(j);
	a->type = "application/json";
	a->status = a->text ? status : 500;
	a->data = a->text ? NULL : none;
	a->len = a->text ? strlen(a->text) : sizeof(none) - 1;
}

void forge_answer_error(struct forge_answer *a, unsigned status, const char *code,
			const char *message, const char *hint)
{
	forge_answer_json(a, status,
			  json_pack("{s:{s:s, s:o, s:o}}", "error", "code", code,
				    "message", forge_json_text(message), "hint",
				    hint && *hint ? forge_json_text(hint) : json_null()));
	if (status == 503 || status == 429)
		a->retry_seconds = 1;
}

static const struct {
	int code;
	unsigned status;
	const char *name;
} meanings[] = {
	{ ENOENT, 404, "not_found" },	  { EREMOTE, 404, "elsewhere" },
	{ EACCES, 403, "forbidden" },	  { EPERM, 403, "forbidden" },
	{ EINVAL, 400, "bad_request" },	  { E2BIG, 400, "bad_request" },
	{ ENOTUNIQ, 400, "bad_request" }, { ENOTCONN, 503, "store_away" },
	{ EBUSY, 503, "store_away" },	  { ERANGE, 416, "range" },
	{ EUCLEAN, 410, "damaged" },	  { EMFILE, 503, "busy" },
	{ ENFILE, 503, "busy" },	  { ENOMEM, 503, "busy" },
};

void forge_answer_fail(struct forge_answer *a, int rc, const struct forge_error *err)
{
	const char *message = *err->msg ? err->msg : strerror(-rc);

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(meanings); i++)
		if (meanings[i].code == -rc) {
			forge_answer_error(a, meanings[i].status, meanings[i].name,
					   message, err->hint);
			return;
		}
	forge_answer_error(a, 500, "internal", message, err->hint);
}

void forge_answer_file(struct forge_answer *a, const struct forge_ask *ask, int fd,
		       uint64_t size, const char *type)
{
	uint64_t from = 0, len = size;
	int rc = forge_range_parse(ask->range, size, &from, &len);

	if (rc < 0) {
		close(fd);
		forge_answer_error(a, 416, "range", "no byte of this range is there",
				   NULL);
		a->total = size;
		return;
	}
	forge_answer_done(a);
	a->fd = fd;
	a->type = type;
	a->offset = from;
	a->size = len;
	a->total = size;
	a->is_part = rc == 1;
	a->status = rc == 1 ? 206 : 200;
}
