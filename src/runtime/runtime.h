/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtimes: named environments that analyses run in. A runtime is declared (forge.yaml,
 * runtimes.d) or discovered (conda). Its kind knows how to find it, which host trees it needs,
 * which environment variables activate it, and which packages it consists of. Nothing here
 * starts a program: src/run/ probes and sources scripts, in a sandbox.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/strv.h"
#include "config/config.h"

struct forge_runtime_kind;

/*
 * Inside a run: a directory of links to the declared programs of kind system; PATH has nothing
 * else.
 */
#define FORGE_SYSTEM_BIN "/opt/forge/bin"

/* One package of a runtime; the digest is over these, sorted. */
struct forge_package {
	char *source; /* "conda", "pip", "deb", "r", "file" */
	char *name;
	char *version; /* "" where there is none */
	char *build;   /* conda's build string, "" elsewhere */
	char *hash;    /* "sha256:...", "md5:...", or "" */
	char *url;     /* its origin, "" unknown; not part of the digest */
};

struct forge_packages {
	struct forge_package *v;
	size_t n, cap;
	struct forge_strv notes; /* for people: files that could not be read */
};

/* Takes copies; NULL means "". -ENOMEM only. */
FORGE_MUST_CHECK int forge_packages_add(struct forge_packages *p, const char *source,
					const char *name, const char *version,
					const char *build, const char *hash,
					const char *url);
void forge_packages_sort(struct forge_packages *p);
/*
 * Digest of the sorted list. The same content in another place gives the same digest. Returns
 * buf.
 */
const char *forge_packages_digest(struct forge_packages *p, char buf[FORGE_DIGEST_MAX]);
void forge_packages_done(struct forge_packages *p);

struct forge_runtime {
	const struct forge_runtime_kind *kind;
	/* Borrowed; discovered runtimes have one too. */
	const struct forge_runtime_decl *decl;
	/* Absolute, with the links of the given path; NULL: the kind has none. */
	char *prefix;
	char *real_prefix; /* canonical; files are read from here */
	char *root_prefix; /* conda: of the installation, NULL unknown */
	/* Set for a runtime that was given as a directory, NULL otherwise. */
	struct forge_runtime_decl *own_decl;
};

/*
 * The contract of a kind. Ops never print and never start a program.
 *  - open(): finds the prefix and checks that it is of this kind; for a broken runtime it fails
 *    with a message that a user can act on;
 *  - view(): host trees that the run must see, beside the system's; *ret_root: a directory that
 *    replaces the system's trees (rootfs), left NULL otherwise;
 *  - activate(): changes env (complete, "K=V") as the environment's own tools would. It adds paths
 *    of shell scripts that must be sourced afterwards, in order, to scripts, and lines about
 *    variables that were left out or overwritten to warnings;
 *  - identify(): adds all packages;
 *  - lock(): the kind's own lock format, NULL: forge's generic one.
 */
struct forge_runtime_kind {
	const char *name;
	const char *help; /* one line */
	int (*open)(struct forge_runtime *rt, struct forge_error *err);
	int (*view)(const struct forge_runtime *rt, struct forge_strv *read_only,
		    char **ret_root, struct forge_error *err);
	int (*activate)(const struct forge_runtime *rt, struct forge_strv *env,
			struct forge_strv *scripts, struct forge_strv *warnings,
			struct forge_error *err);
	int (*identify)(const struct forge_runtime *rt, struct forge_packages *ret,
			struct forge_error *err);
	int (*lock)(const struct forge_runtime *rt, FILE *out, struct forge_error *err);
};

extern const struct forge_runtime_kind forge_kind_conda, forge_kind_venv,
	forge_kind_system, forge_kind_r, forge_kind_prefix, forge_kind_rootfs, forge_kind_image;

/* All declared and discovered runtimes of a configuration. */
struct forge_catalog {
	struct forge_runtime_decl *discovered; /* owned */
	size_t n_discovered;
	struct forge_config *shipped; /* owned: the runtimes that come with forge */
	const struct forge_runtime_decl **sorted; /* all runtimes, by name */
	size_t n_sorted;
	const struct forge_config *cfg; /* has the declared runtimes */
};

FORGE_MUST_CHECK int forge_catalog_open(const struct forge_config *cfg,
					struct forge_catalog *ret,
					struct forge_error *err);
void forge_catalog_close(struct forge_catalog *c);
/* Visits all in order of name; a declared runtime hides a discovered one of the same name. */
void forge_catalog_each(const struct forge_catalog *c,
			void (*visit)(const struct forge_runtime_decl *decl, void *arg),
			void *arg);
/*
 * Opens a runtime by name, or a directory by its path: a conda environment, a venv, or any tree
 * with bin/. -ENOENT: unknown; the message lists similar names. -ENOPKG: the host lacks
 * programs or packages that it needs. Other errors say what is wrong.
 */
FORGE_MUST_CHECK int forge_runtime_open(const struct forge_catalog *c, const char *name,
					struct forge_runtime *ret,
					struct forge_error *err);
void forge_runtime_close(struct forge_runtime *rt);
/* Is word a path and not a name? A path has a '/', or begins with '.' or '~'. */
bool forge_runtime_is_path(const char *word);
/* The word that opens it again: its name, or the path that was given. */
const char *forge_runtime_word(const struct forge_runtime *rt);
/* For kinds: sets both prefixes. path is absolute, or below the current directory. */
FORGE_MUST_CHECK int forge_runtime_set_prefix(struct forge_runtime *rt, const char *path,
					      struct forge_error *err);

/*
 * Must a run in this runtime take this program from the runtime itself? The host's program of
 * the same name would be another Python or R than the one that was asked for.
 */
bool forge_runtime_must_own(const struct forge_runtime *rt, const char *program);

/* The front of the ops; each adds "runtime NAME: " to errors. */
FORGE_MUST_CHECK int forge_runtime_view(const struct forge_runtime *rt,
					struct forge_strv *read_only, char **ret_root,
					struct forge_error *err);
FORGE_MUST_CHECK int forge_runtime_activate(const struct forge_runtime *rt,
					    struct forge_strv *env,
					    struct forge_strv *scripts,
					    struct forge_strv *warnings,
					    struct forge_error *err);
/*
 * Sets the declared variables again after scripts have been sourced, because they take
 * precedence.
 */
FORGE_MUST_CHECK int forge_runtime_settle(const struct forge_runtime *rt,
					  struct forge_strv *env,
					  struct forge_error *err);
FORGE_MUST_CHECK int forge_runtime_identify(const struct forge_runtime *rt,
					    struct forge_packages *ret,
					    struct forge_error *err);
FORGE_MUST_CHECK int forge_runtime_lock(const struct forge_runtime *rt, FILE *out,
					struct forge_error *err);
