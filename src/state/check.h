/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads objects again and compares their content with their names, on several threads. An object
 * that is damaged is marked (damage.h); one that is good again loses its mark.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sha256.h"
#include "state/home.h"

#define FORGE_SIZE_UNKNOWN UINT64_MAX

/* An object to be checked. */
struct forge_check_item {
	uint8_t digest[FORGE_SHA256_BYTES];
	uint64_t size;	   /* on disk, for the order and the progress */
	uint64_t recorded; /* in a record; FORGE_SIZE_UNKNOWN */
};

enum forge_check_state {
	FORGE_CHECK_GOOD,
	FORGE_CHECK_GOOD_AGAIN, /* it was marked as damaged */
	FORGE_CHECK_DAMAGED,
	FORGE_CHECK_MISRECORDED, /* the content is good, but a record has another size */
	FORGE_CHECK_ABSENT,
	FORGE_CHECK_UNKNOWN, /* it cannot be read, for a reason that is no damage */
};

struct forge_checked {
	enum forge_check_state state;
	char digest[FORGE_DIGEST_MAX]; /* its name */
	char found[FORGE_DIGEST_MAX];  /* of the content; "": unknown */
	uint64_t size;		       /* that was read */
	char problem[160];	       /* in words */
	int mark_error; /* -errno: it is damaged, but could not be marked */
};

/* Checks one object. Threads may call this at once. */
void forge_check_object(const struct forge_home *home,
			const struct forge_check_item *item, struct forge_checked *ret);

struct forge_check_progress {
	size_t done, of;
	uint64_t bytes, bytes_of;
};

struct forge_check {
	const struct forge_home *home;
	/* Called now and then by the thread that called forge_check_objects(); may be NULL. */
	void (*progress)(const struct forge_check_progress *p);
};

struct forge_check_result {
	size_t checked; /* whose content was read */
	uint64_t bytes;
	struct forge_checked *at; /* those that are not simply good, in no order */
	size_t n, cap;
};

/* Checks all of them; the items are reordered. Only out of memory is an error. */
FORGE_MUST_CHECK int forge_check_objects(const struct forge_check *how,
					 struct forge_check_item *items, size_t n,
					 struct forge_check_result *ret);
void forge_check_result_done(struct forge_check_result *r);

/* "sha256:<64 digits>" to bytes, and back; the text must have that form. */
void forge_check_pack(const char *digest, uint8_t ret[FORGE_SHA256_BYTES]);
const char *forge_check_unpack(const uint8_t raw[FORGE_SHA256_BYTES],
			       char buf[FORGE_DIGEST_MAX]);
