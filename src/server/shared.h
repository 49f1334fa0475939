/* SPDX-License-Identifier: Apache-2.0 */
/* What all requests of a server share: its configuration, tokens, the store, records and logs. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/strv.h"
#include "config/config.h"
#include "server/follow.h"
#include "server/answer.h"
#include "server/token.h"
#include "state/home.h"
#include "store/store.h"

#define FORGE_SLOW_MAX 16
/* ... of them are for requests that start and end runs. */
#define FORGE_SLOW_KEPT	      4
#define FORGE_CONNECTIONS_MAX 1024
#define FORGE_CHECKED_MAX     64
#define FORGE_THREADS	      4
/* Two for each thread of the pool and one for each slow request would never all be used. */
#define FORGE_STORES_MAX (FORGE_THREADS + FORGE_SLOW_MAX)
#define FORGE_BODY_MAX	 (1024 * 1024)

struct forge_server_options {
	const char *listen; /* "127.0.0.1:8765" */
	/* Further names by which clients reach it, behind a proxy */
	const struct forge_strv *names;
	const char *config,
		*store; /* given on the command line, for the programs that it starts; NULL: not */
	/* Called once, when it answers. token: of the link, "" when stored tokens are needed. */
	void (*on_ready)(const char *url, const char *token, bool is_loopback);
	/* A warning for the person who started it. */
	void (*on_warning)(const struct forge_error *warning);
};

struct forge_cache;

struct forge_server {
	const struct forge_config *cfg;
	const struct forge_server_options *options;
	struct forge_home home;
	char *url;	 /* of the store */
	char *shown_url; /* without a password */
	char *names[8];	 /* of hosts that requests may be sent to */
	size_t n_names;
	bool is_loopback;
	unsigned char ticket_key[FORGE_TICKET_KEY];
	char link_digest[FORGE_DIGEST_MAX]; /* of the token in the link; "" none */
	struct forge_follow *follow;
	struct forge_follow_ops follow_ops;
	struct forge_cache *cache;
	uint64_t started_usec;
	unsigned connections_max;
	int end_fd; /* readable when the server ends */
	atomic_bool is_ending;
	bool has_names; /* clients come through a proxy */

	pthread_mutex_t tokens_lock;
	uint64_t warned_usec; /* of tokens that cannot be read */
	struct forge_tokens tokens;

	/* What is kept for a while, because the store has to read much for it; NULL: not known yet. */
	pthread_mutex_t counts_lock;
	json_t *counts, *health;
	uint64_t counted_usec, counts_for_usec, health_usec, health_for_usec;

	/* Stored files that were checked against their digests: reading a part of one must not read all of it each time. */
	pthread_mutex_t checked_lock;
	struct {
		char digest[FORGE_DIGEST_MAX];
		struct stat st;
	} checked[FORGE_CHECKED_MAX];
	size_t next_checked;

	pthread_mutex_t stores_lock;
	struct forge_store *stores[FORGE_STORES_MAX]; /* idle ones */
	size_t n_stores;
	uint64_t store_failed_usec; /* when it could not be opened last; 0: it could */
	uint64_t store_tried_usec;  /* how long that took */
	bool is_opening;	    /* somebody tries; nobody else waits for it */
	char store_problem[512];
};

/* What a token may do. */
FORGE_MUST_CHECK int forge_server_check(struct forge_server *sv, const char *token,
					enum forge_access *ret, struct forge_error *err);

/*
 * Borrows a connection to the store, from forge_server_take() until forge_server_give(). rc: of the last call, so that a broken connection
 * is not used again. When the store was away a moment ago, this fails at once.
 */
FORGE_MUST_CHECK int forge_server_take(struct forge_server *sv, struct forge_store **ret,
				       struct forge_error *err);
void forge_server_give(struct forge_server *sv, struct forge_store *st, int rc);

/* The record of a run by its full id, as it is now. */
FORGE_MUST_CHECK int forge_server_record(struct forge_server *sv, const char *run_id,
					 json_t **ret, struct forge_error *err);
/*
 * Opens a stored file whose content is what its digest says: -EUCLEAN when it is not. Whether a file that was checked before is the same
 * is known by its inode, size and change time, which no program can set.
 */
FORGE_MUST_CHECK int forge_server_open_object(struct forge_server *sv,
					      const struct forge_home *home,
					      const char *digest);
/* Opens a log of it, wherever that is. The fd or -errno. */
FORGE_MUST_CHECK int forge_server_open_log(struct forge_server *sv, const json_t *record,
					   const char *stream, struct forge_error *err);
