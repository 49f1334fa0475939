/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: who may look, and who may start and end runs. A token is shown once; $FORGE_HOME/tokens.json (0600) has only its
 * SHA-256, which suffices because it is 256 random bits. Tickets are signatures that let a browser fetch one path.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sha256.h"
#include "state/home.h"

enum forge_access { FORGE_ACCESS_NONE, FORGE_ACCESS_READ, FORGE_ACCESS_OPERATOR };
/* "read", "operator"; "none" */
const char *forge_access_name(enum forge_access access);

/* "forge_" and 64 digits. */
#define FORGE_TOKEN_MAX 80
/* Makes the text of a token. 0 or -errno. */
FORGE_MUST_CHECK int forge_token_make(char buf[FORGE_TOKEN_MAX]);
void forge_token_digest(const char *token, char buf[FORGE_DIGEST_MAX]);
/* Compares without revealing by its duration how much is equal. */
bool forge_token_equal(const char *a, const char *b);

/*
 * Makes a token and stores its digest. name: for people. expires: seconds of the epoch, 0: never. *ret has "id",
 * "name", "access", "created_at", "expires_at".
 */
FORGE_MUST_CHECK int forge_token_new(const struct forge_home *home, const char *name,
				     enum forge_access access, int64_t expires,
				     char token[FORGE_TOKEN_MAX], json_t **ret,
				     struct forge_error *err);
/* All of them, expired ones too, as such objects; never with the digest. */
FORGE_MUST_CHECK int forge_token_list(const struct forge_home *home, json_t **ret,
				      struct forge_error *err);
/* By id or name. -ENOENT: there is none; -ENOTUNIQ: several have this name. */
FORGE_MUST_CHECK int forge_token_revoke(const struct forge_home *home, const char *word,
					struct forge_error *err);

/* The stored tokens as a server sees them; read again when the file changes. */
struct forge_tokens {
	json_t *list;
	int64_t mtime_nsec, inode, size;
};
/*
 * What a token may do. Under a lock of the caller. An error, which err tells, gives nobody access: a file that cannot be
 * read is not one without tokens.
 */
enum forge_access forge_tokens_check(struct forge_tokens *t,
				     const struct forge_home *home, const char *token,
				     struct forge_error *err);
void forge_tokens_done(struct forge_tokens *t);

#define FORGE_TICKET_KEY 32
#define FORGE_TICKET_MAX 96
/* Signs a path and the time until which it may be fetched: "<seconds>-<64 digits>". Returns buf. */
const char *forge_ticket_make(const unsigned char key[FORGE_TICKET_KEY], const char *path,
			      int64_t until, char buf[FORGE_TICKET_MAX]);
bool forge_ticket_is_valid(const unsigned char key[FORGE_TICKET_KEY], const char *path,
			   const char *ticket, int64_t now);
