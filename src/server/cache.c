/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps answers for a moment. */
#include "server/cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ENTRIES	      32
#define SIZE_MAX_KEPT (512 * 1024)

struct entry {
	char *key, *text;
	size_t len;
	uint64_t at;
};

struct forge_cache {
	pthread_mutex_t lock;
	uint64_t generation;
	struct entry entries[ENTRIES];
	size_t next; /* the one that is replaced next */
};

struct forge_cache *forge_cache_new(void)
{
	struct forge_cache *c = calloc(1, sizeof(*c));

	if (c)
		(void)pthread_mutex_init(&c->lock, NULL); /* never fails on Linux */
	return c;
}

static void drop(struct entry *e)
{
	free(e->key);
	free(e->text);
	*e = (struct entry){ 0 };
}

void forge_cache_free(struct forge_cache *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < ENTRIES; i++)
		drop(&c->entries[i]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

bool forge_cache_get(struct forge_cache *c, const char *key, struct forge_answer *a,
		     uint64_t *generation)
{
	uint64_t now = forge_now_usec();
	char *text = NULL;
	size_t len = 0;

	pthread_mutex_lock(&c->lock);
	*generation = c->generation;
	for (size_t i = 0; i < ENTRIES && !text; i++) {
		const struct entry *e = &c->entries[i];
		if (!e->key || strcmp(e->key, key) != 0 || now - e->at > FORGE_CACHE_USEC)
			continue;
		text = malloc(e->len + 1);
		if (text)
			memcpy(text, e->text, e->len + 1);
		len = e->len;
	}
	pthread_mutex_unlock(&c->lock);
	if (!text)
		return false;
	forge_answer_done(a);
	a->text = text;
	a->len = len;
	a->type = "application/json";
	return true;
}

void forge_cache_put(struct forge_cache *c, const char *key, const struct forge_answer *a,
		     uint64_t generation)
{
	if (a->status != 200 || !a->text || a->len > SIZE_MAX_KEPT)
		return;
	struct entry fresh = { .key = strdup(key),
			       .text = malloc(a->len + 1),
			       .len = a->len,
			       .at = forge_now_usec() };
	if (fresh.text)
		memcpy(fresh.text, a->text, a->len + 1);
	pthread_mutex_lock(&c->lock);
	if (fresh.key && fresh.text && generation == c->generation) {
		/* An older answer to the same question is of no use. */
		struct entry *at = &c->entries[c->next];
		for (size_t i = 0; i < ENTRIES; i++)
			if (c->entries[i].key && strcmp(c->entries[i].key, key) == 0)
				at = &c->entries[i];
		if (at == &c->entries[c->next])
			c->next = (c->next + 1) % ENTRIES;
		drop(at);
		*at = fresh;
		fresh = (struct entry){ 0 };
	}
	pthread_mutex_unlock(&c->lock);
	drop(&fresh);
}

void forge_cache_clear(struct forge_cache *c)
{
	pthread_mutex_lock(&c->lock);
	c->generation++;
	for (size_t i = 0; i < ENTRIES; i++)
		drop(&c->entries[i]);
	pthread_mutex_unlock(&c->lock);
}
