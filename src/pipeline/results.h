/* SPDX-License-Identifier: Apache-2.0 */
/* Results of tasks: files by their names and digests, and whether their objects are there. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/sha256.h"
#include "state/home.h"
#include "store/store.h"

struct forge_result_file {
	char *path; /* as the run named it */
	uint64_t size;
	char digest[FORGE_DIGEST_MAX];
	bool is_missing; /* its object is not there, or damaged */
	char *host;	 /* a file that the user gave instead; NULL: an object */
};

struct forge_result {
	char run_id[FORGE_RUN_ID_MAX]; /* "": none */
	struct forge_result_file *v;   /* sorted by path */
	size_t n, cap;
	char *from;	   /* the FORGE_HOME of another user that it is from; NULL: ours */
	bool is_elsewhere; /* its objects are still there, and not in ours */
};

/* Takes the path. */
FORGE_MUST_CHECK int forge_result_add(struct forge_result *r, char *path, uint64_t size,
				      const char *digest);
void forge_result_done(struct forge_result *r);
#define forge_auto_result FORGE_CLEANUP(forge_result_done)
/* Where results are looked for. Borrowed. */
struct forge_result_source {
	const struct forge_home *home;
	struct forge_store *store;
	const char *user;
	/* Others can write the store: a run counts only with the record that this FORGE_HOME has of it. */
	bool is_shared;
};
/* The result of the newest successful run of this user with this key. 1: found, 0: there is none. */
FORGE_MUST_CHECK int forge_result_find(const struct forge_result_source *from,
				       const char *key, struct forge_result *ret,
				       struct forge_error *err);
/* The files of a record that its run left for others; not those of its checkpoint. */
FORGE_MUST_CHECK int forge_result_of_record(const json_t *record,
					    struct forge_result *ret);
/* Adds the files that the record says were removed, as missing: they are known by their digests. */
FORGE_MUST_CHECK int forge_result_add_removed(const json_t *record,
					      struct forge_result *r);
/*
 * Looks whether the objects are there and have their content: small ones are read, big ones if their times changed
 * since they were last read. Sets is_missing; of an object that is damaged, the mark for forge verify is made.
 * problem: "" or the first one, "aln.bam is damaged".
 */
#define FORGE_PROBLEM_MAX 200
void forge_result_check(const struct forge_home *home, struct forge_result *r,
			char problem[FORGE_PROBLEM_MAX]);
