/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers. A handler gets a request that is complete and allowed, and fills in an answer. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "server/target.h"
#include "server/token.h"

struct forge_follower;
struct forge_server;

#define FORGE_PARAMS_MAX 4

struct forge_ask {
	const char *method; /* "GET" (also for HEAD), "POST" */
	struct forge_target target;
	const char *params[FORGE_PARAMS_MAX]; /* what stands for {} in the route */
	enum forge_access access;
	const char *range;	/* the header; NULL: none */
	const char *last_event; /* the header Last-Event-ID; NULL: none */
	bool takes_gzip;	/* Accept-Encoding */
	json_t *body;		/* of a POST: an object; borrowed */
};

struct forge_answer {
	unsigned status;
	/* One of them; none of them: an empty body. */
	char *text; /* owned */
	size_t len;
	const void *data; /* static, as long as the program */
	int fd;		  /* owned; -1: none. size bytes of it from the offset */
	struct forge_follower *follower; /* owned: events of a log, until it ends */

	uint64_t offset, size;
	uint64_t total;	     /* of a file: how large it is as a whole */
	bool is_part;	     /* a range of it */
	bool has_total;	     /* X-Log-Size says how large it is */
	const char *type;    /* Content-Type; static */
	const char *etag;    /* static; NULL: not to be stored */
	const char *allowed; /* of status 405: the methods of the path; static */
	char *attachment;    /* owned: the name under which a browser saves it */
	bool is_gzip;
	bool is_preview; /* may be shown in a frame, without scripts */
	bool is_page;	 /* of the dashboard */
	unsigned retry_seconds;
};
#define FORGE_ANSWER_INIT ((struct forge_answer){ .status = 200, .fd = -1 })
void forge_answer_done(struct forge_answer *a);

/* Takes j. NULL: out of memory. */
void forge_answer_json(struct forge_answer *a, unsigned status, json_t *j);
/* {"error": {code, message, hint}}; hint may be NULL. */
void forge_answer_error(struct forge_answer *a, unsigned status, const char *code,
			const char *message, const char *hint);
/* The same from an error of a lower layer: -ENOENT is 404, a store that is away 503 ... */
void forge_answer_fail(struct forge_answer *a, int rc, const struct forge_error *err);
/* Sends a file, or the range of it that was asked for. Takes fd. */
void forge_answer_file(struct forge_answer *a, const struct forge_ask *ask, int fd,
		       uint64_t size, const char *type);
