/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, stores and checks tokens and tickets. */
#include "server/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"

#define FILE_NAME  "tokens.json"
#define LOCK_NAME  "tokens.lock"
#define FILE_MAX   (1024 * 1024)
#define TOKENS_MAX 1000

const char *forge_access_name(enum forge_access access)
{
	return access == FORGE_ACCESS_OPERATOR ? "operator"
	       : access == FORGE_ACCESS_READ   ? "read"
					       : "none";
}

static enum forge_access access_of(const char *name)
{
	return !name			       ? FORGE_ACCESS_NONE
	       : strcmp(name, "operator") == 0 ? FORGE_ACCESS_OPERATOR
	       : strcmp(name, "read") == 0     ? FORGE_ACCESS_READ
					       : FORGE_ACCESS_NONE;
}

static int random_hex(char *to, size_t bytes)
{
	unsigned char raw[64];

	if (getrandom(raw, bytes, 0) != (ssize_t)bytes)
		return -EIO;
	for (size_t i = 0; i < bytes; i++)
		(void)snprintf(to + 2 * i, 3, "%02x", raw[i]);
	return 0;
}

int forge_token_make(char buf[FORGE_TOKEN_MAX])
{
	memcpy(buf, "forge_", 6);
	return random_hex(buf + 6, 32);
}

void forge_token_digest(const char *token, char buf[FORGE_DIGEST_MAX])
{
	struct forge_sha256 h;

	forge_sha256_init(&h);
	forge_sha256_add(&h, token, strlen(token));
	forge_sha256_done(&h, buf);
}

bool forge_token_equal(const char *a, const char *b)
{
	size_t n = strlen(a);
	unsigned char differs = 0;

	if (strlen(b) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return differs == 0;
}

/* ---- the file ---- */

static int parse(const char *text, size_t len, json_t **ret, struct forge_error *err)
{
	json_error_t why;
	json_t *list = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);

	if (!json_is_array(list)) {
		json_decref(list);
		return forge_hint(err,
				  forge_fail(err, EBADMSG, "%s is damaged: %s", FILE_NAME,
					     list ? "it is no list" : why.text),
				  "Remove it from FORGE_HOME; its tokens are lost");
	}
	*ret = list;
	return 0;
}

static int load(const struct forge_home *home, json_t **ret, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len;
	int rc = forge_read_file(home->fd, FILE_NAME, FILE_MAX, &text, &len);

	if (rc == -ENOENT) {
		*ret = json_array();
		return *ret ? 0 : forge_fail(err, ENOMEM, "out of memory");
	}
	if (rc < 0)
		return forge_fail(err, -rc, "read %s: %s", FILE_NAME,
				  forge_regular_problem(rc));
	return parse(text, len, ret, err);
}

static int save(const struct forge_home *home, const json_t *list,
		struct forge_error *err)
{
	forge_auto_free char *text = json_dumps(list, JSON_INDENT(1));
	int rc = text ? forge_replace_file(home->fd, FILE_NAME, text, strlen(text), true)
		      : -ENOMEM;

	return rc < 0 ? forge_fail_errno(err, -rc, "write %s", FILE_NAME) : 0;
}

/* Whoever changes the file holds the lock of another one: the file itself is replaced. */
static int lock(const struct forge_home *home, struct forge_error *err)
{
	int fd = forge_lock_file(home->fd, LOCK_NAME, FORGE_LOCK_EXCLUSIVE,
				 FORGE_LOCK_WAIT_FOREVER, -1);

	return fd < 0 ? forge_fail_errno(err, -fd, "lock %s", LOCK_NAME) : fd;
}

/* Without the digest. */
static json_t *for_people(const json_t *token)
{
	json_t *copy = json_copy((json_t *)token);

	if (copy)
		(void)json_object_del(copy, "sha256");
	return copy;
}

int forge_token_new(const struct forge_home *home, const char *name,
		    enum forge_access access, int64_t expires,
		    char token[FORGE_TOKEN_MAX], json_t **ret, struct forge_error *err)
{
	forge_auto_json json_t *list = NULL;
	char digest[FORGE_DIGEST_MAX], id[17], now[FORGE_TIME_MAX], then[FORGE_TIME_MAX];
	forge_auto_close int held = lock(home, err);
	int rc = held < 0 ? held : load(home, &list, err);

	if (rc < 0)
		return rc;
	if (json_array_size(list) >= TOKENS_MAX)
		return forge_hint(
			err, forge_fail(err, ENOSPC, "there are %d tokens", TOKENS_MAX),
			"`forge token revoke` removes those that nobody uses");
	if (forge_token_make(token) < 0 || random_hex(id, 4) < 0)
		return forge_fail(err, EIO, "the kernel gives no random numbers");
	forge_token_digest(token, digest);
	json_t *entry = json_pack(
		"{s:s, s:o?, s:s, s:s, s:s?, s:s}", "id", id, "name",
		forge_json_text(name), "access", forge_access_name(access), "created_at",
		forge_format_now(now), "expires_at",
		expires ? forge_format_time(then, expires) : NULL, "sha256", digest);
	if (!entry || json_array_append_new(list, entry) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	rc = save(home, list, err);
	if (rc == 0 && !(*ret = for_people(entry)))
		rc = forge_fail(err, ENOMEM, "out of memory");
	return rc;
}

int forge_token_list(const struct forge_home *home, json_t **ret, struct forge_error *err)
{
	forge_auto_json json_t *list = NULL;
	json_t *shown = json_array(), *token;
	size_t i;
	int rc =
		shown ? load(home, &list, err) : forge_fail(err, ENOMEM, "out of memory");

	if (rc == 0)
		json_array_foreach (list, i, token)
			(void)json_array_append_new(shown, for_people(token));
	if (rc < 0)
		json_decref(shown);
	else
		*ret = shown;
	return rc;
}

static bool is_meant(const json_t *token, const char *word)
{
	return strcmp(forge_json_string_or(token, "id", ""), word) == 0 ||
	       strcmp(forge_json_string_or(token, "name", ""), word) == 0;
}

/* "5c0ffee0 (made 2026-01-31T12:00:00Z)" of each that is meant; as many as fit. */
static const char *list_meant(const json_t *list, const char *word, char *buf,
			      size_t size)
{
	size_t i, n = 0;
	json_t *token;

	buf[0] = '\0';
	json_array_foreach (list, i, token)
		if (is_meant(token, word) && n < size)
			n += (size_t)snprintf(
				buf + n, size - n, "%s%s (made %s)", n ? ", " : "",
				forge_json_string_or(token, "id", ""),
				forge_json_string_or(token, "created_at", ""));
	return buf;
}

int forge_token_revoke(const struct forge_home *home, const char *word,
		       struct forge_error *err)
{
	forge_auto_json json_t *list = NULL;
	forge_auto_close int held = lock(home, err);
	int rc = held < 0 ? held : load(home, &list, err);
	size_t i, found = 0, at = 0;
	json_t *token;
	char text[400];

	if (rc < 0)
		return rc;
	json_array_foreach (list, i, token) {
		if (!is_meant(token, word))
			continue;
		found++;
		at = i;
	}
	if (found > 1)
		return forge_hint(err,
				  forge_fail(err, ENOTUNIQ,
					     "%zu tokens are named '%.64s': %s", found,
					     word,
					     list_meant(list, word, text, sizeof(text))),
				  "Revoke each by its id");
	if (found == 0)
		return forge_hint(err,
				  forge_fail(err, ENOENT,
					     "no token has the id or the name '%.64s'",
					     word),
				  "`forge token list` shows their ids");
	(void)json_array_remove(list, at); /* at is in the list */
	return save(home, list, err);
}

/* ---- the check ---- */

static int refresh(struct forge_tokens *t, const struct forge_home *home,
		   struct forge_error *err)
{
	struct stat st = { 0 };

	if (fstatat(home->fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno != ENOENT)
		return forge_fail_errno(err, errno, "look at %s", FILE_NAME);
	int64_t mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
	if (t->list && t->inode == (int64_t)st.st_ino && t->mtime_nsec == mtime &&
	    t->size == st.st_size)
		return 0;
	json_decref(t->list);
	t->list = NULL;
	int rc = load(home, &t->list, err);
	t->inode = (int64_t)st.st_ino;
	t->mtime_nsec = mtime;
	t->size = st.st_size;
	return rc;
}

static bool has_expired(const json_t *token)
{
	char now[FORGE_TIME_MAX];
	const json_t *at = json_object_get(token, "expires_at");

	if (!at || json_is_null(at))
		return false;
	/* Times of records sort as text. What is no text never was a time. */
	return !json_is_string(at) ||
	       strcmp(json_string_value(at), forge_format_now(now)) <= 0;
}

enum forge_access forge_tokens_check(struct forge_tokens *t,
				     const struct forge_home *home, const char *token,
				     struct forge_error *err)
{
	char digest[FORGE_DIGEST_MAX];
	enum forge_access access = FORGE_ACCESS_NONE;
	size_t i;
	json_t *entry;

	if (refresh(t, home, err) < 0)
		return FORGE_ACCESS_NONE;
	forge_token_digest(token, digest);
	json_array_foreach (t->list, i, entry)
		if (forge_token_equal(forge_json_string_or(entry, "sha256", ""),
				      digest) &&
		    !has_expired(entry))
			access = access_of(forge_json_string(entry, "access"));
	return access;
}

void forge_tokens_done(struct forge_tokens *t)
{
	json_decref(t->list);
	t->list = NULL;
}

/* ---- tickets ---- */

/* HMAC-SHA-256 (RFC 2104) with a key that is shorter than a block. */
static void sign(const unsigned char key[FORGE_TICKET_KEY], const char *path,
		 const char *until, char buf[FORGE_DIGEST_MAX])
{
	unsigned char pad[64];
	char inner[FORGE_DIGEST_MAX];
	struct forge_sha256 h;

	memset(pad, 0x36, sizeof(pad));
	for (size_t i = 0; i < FORGE_TICKET_KEY; i++)
		pad[i] ^= key[i];
	forge_sha256_init(&h);
	forge_sha256_add(&h, pad, sizeof(pad));
	forge_sha256_add(&h, until, strlen(until) + 1);
	forge_sha256_add(&h, path, strlen(path));
	forge_sha256_done(&h, inner);
	for (size_t i = 0; i < sizeof(pad); i++)
		pad[i] ^= 0x36 ^ 0x5c;
	forge_sha256_init(&h);
	forge_sha256_add(&h, pad, sizeof(pad));
	forge_sha256_add(&h, inner, strlen(inner));
	forge_sha256_done(&h, buf);
}

const char *forge_ticket_make(const unsigned char key[FORGE_TICKET_KEY], const char *path,
			      int64_t until, char buf[FORGE_TICKET_MAX])
{
	char text[24], digest[FORGE_DIGEST_MAX];

	(void)snprintf(text, sizeof(text), "%lld", (long long)until);
	sign(key, path, text, digest);
	(void)snprintf(buf, FORGE_TICKET_MAX, "%s-%s", text, digest + strlen("sha256:"));
	return buf;
}

bool forge_ticket_is_valid(const unsigned char key[FORGE_TICKET_KEY], const char *path,
			   const char *ticket, int64_t now)
{
	char expected[FORGE_TICKET_MAX];
	size_t n = strspn(ticket, "0123456789");

	if (n == 0 || n > 18 || ticket[n] != '-')
		return false;
	int64_t until = strtoll(ticket, NULL, 10);
	return until > now &&
	       forge_token_equal(forge_ticket_make(key, path, until, expected), ticket);
}
