/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For src/config and src/pipeline: maps of named entries, by a table of rows. A section such as
 * "runtimes" maps names to maps; one table says which keys such a map may have, the types
 * of their values, and their fields in a struct. The manual is made from the same rows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"
#include "config/loader.h"

/* The type of a row's value and of its field. */
enum forge_named_type {
	FORGE_NAMED_TEXT,     /* one value, may be empty; char * */
	FORGE_NAMED_WORD,     /* one value, not empty; char * */
	FORGE_NAMED_ONE_OF,   /* one of the row's words; char * */
	FORGE_NAMED_LIST,     /* values, none empty; struct forge_strv, is replaced */
	FORGE_NAMED_PAIRS,    /* environment variables; struct forge_strv, is added to */
	FORGE_NAMED_LIMITS,   /* a map of limits; struct forge_limits, is added to */
	FORGE_NAMED_BOOL,     /* true or false; bool */
	FORGE_NAMED_SIZE,     /* bytes, never unlimited; uint64_t */
	FORGE_NAMED_DURATION, /* microseconds, never unlimited; uint64_t */
	FORGE_NAMED_COUNT,    /* a whole number, never unlimited; uint64_t */
	FORGE_NAMED_AMOUNT,   /* a size or a number, or a part in %; struct forge_amount */
	FORGE_NAMED_NODE,     /* anything; const struct forge_yaml *, for the caller to read */
};

struct forge_named_row {
	const char *key;
	enum forge_named_type type;
	size_t offset; /* of the field in the struct */
	const char *type_name, *help;
	const char *const *words; /* FORGE_NAMED_ONE_OF: NULL-terminated */
};

/* The keys of one kind of map. */
struct forge_named_map {
	const char *must_be; /* "a map with at least kind" */
	const struct forge_named_row *rows;
	size_t n;
	/* The name of a limit, used as a key, gets the hint to write it below "limits". */
	bool has_limits_hint;
	const char *builtin; /* the default of every key, for the manual */
};

/*
 * Reads node, which must be a map, into the struct at ret. path names the map in errors. On failure some
 * fields may be set already; the owner of the struct releases them.
 */
FORGE_MUST_CHECK int forge_named_read(const struct forge_loader *ld,
				      const struct forge_yaml *node, const char *path,
				      const struct forge_named_map *map, void *ret,
				      struct forge_error *err);

/* Frees the fields of the struct that the rows have, and clears them. */
void forge_named_done(const struct forge_named_map *map, void *s);
/* Replaces a path by the one below the directory of the file that is read. *path may be NULL. */
FORGE_MUST_CHECK int forge_named_absolute(const struct forge_loader *ld, char **path,
					  struct forge_error *err);

/* One entry of a section; path is "section.name". */
typedef int forge_named_visitor(struct forge_loader *ld, const struct forge_yaml *node,
				const char *path, void *arg, struct forge_error *err);
/*
 * Calls visit for every entry of a section whose name is an id; another name is an error. Stops at, and
 * returns, the first result that is not 0. The section is a map or NULL (no entries). visit checks the
 * type of the entry, by forge_named_read() or forge_named_limits(): an entry that it skips may be anything.
 */
FORGE_MUST_CHECK int forge_named_each(struct forge_loader *ld,
				      const struct forge_yaml *section, const char *name,
				      forge_named_visitor *visit, void *arg,
				      struct forge_error *err);
/* The entry of this name, or NULL. The section is a map or NULL. */
const struct forge_yaml *forge_named_find(const struct forge_yaml *section,
					  const char *name);

/* Longest path of a key in the manual, with its NUL. */
#define FORGE_NAMED_PATH_MAX 40
/*
 * Calls visit for every row, as "section.NAME.key". Callers may keep the paths: they are written into
 * paths[map->n], which must live as long as the program.
 */
void forge_named_each_key(const struct forge_named_map *map, const char *section,
			  char (*paths)[FORGE_NAMED_PATH_MAX],
			  void (*visit)(const struct forge_config_key *key, void *arg),
			  void *arg);

/* A map of limits, "path.memory" and so on, into ret. */
FORGE_MUST_CHECK int forge_named_limits(const struct forge_loader *ld, const char *path,
					const struct forge_yaml *map,
					struct forge_limits *ret,
					struct forge_error *err);
/* Fails with "prefix: unknown key 'x' (have: ...)" at the node's key; prefix may be "". */
int forge_named_unknown(const struct forge_loader *ld, const struct forge_yaml *node,
			const char *prefix, const char *const *words, size_t n,
			struct forge_error *err);
/*
 * For a key that is none of these n words: the key of the limit whose name it is, as a key or as an option,
 * or whose name it resembles while it resembles none of the words. NULL: there is no such limit.
 */
const char *forge_named_limit_like(const char *key, const char *const *words, size_t n);
/* A map of rules for retries, as in {memory: {times: 2}}: those that it has replace the ones in ret. */
FORGE_MUST_CHECK int forge_retry_read(const struct forge_loader *ld,
				      const struct forge_yaml *node, const char *path,
				      struct forge_retry_policy *ret,
				      struct forge_error *err);
