/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runtimes: named environments that analyses run in. A runtime is declared (forge.yaml,
 * runtimes.d) or discovered (conda); its kind knows how to find it, what of the host it needs to
 * see, which environment activates it, and what it consists of. Nothing here runs anything:
 * probing and sourcing scripts is done by src/run/, in a sandbox.
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

/* Inside a run: links to the declared programs of kind system, and nothing else in PATH. */
#define FORGE_SYSTEM_BIN "/opt/forge/bin"

/* What a runtime consists of, one line each; the digest is over these, sorted. */
struct forge_package {
	char *source; /* "conda", "pip", "deb", "r", "file" */
	char *name;
	char *version; /* "" where there is none */
	char *build;   /* conda's build string, "" elsewhere */
	char *hash;    /* "sha256:...", "md5:...", or "" */
	char *url;     /* where it came from, "" unknown; not part of the digest */
};

struct forge_packages {
	struct forge_package *v;
	size_t n, cap;
	struct forge_strv notes; /* for people: what could not be read */
};

/* Takes copies; NULL means "". -ENOMEM only. */
FORGE_MUST_CHECK int forge_packages_add(struct forge_packages *p, const char *source,
					const char *name, const char *version,
					const char *build, const char *hash,
					const char *url);
void forge_packages_sort(struct forge_packages *p);
/* Of the sorted list. Same content in another place gives the same digest. Returns buf. */
const char *forge_packages_digest(struct forge_packages *p, char buf[FORGE_DIGEST_MAX]);
void forge_packages_done(struct forge_packages *p);

struct forge_runtime {
	const struct forge_runtime_kind *kind;
	const struct forge_runtime_decl
		*decl; /* borrowed; discovered ones have one too */
	char *prefix; /* absolute, by the name it was reached by; NULL: the kind has none */
	char *real_prefix; /* canonical; what is read is read here */
	char *root_prefix; /* conda: of the installation, NULL unknown */
	struct forge_runtime_decl
		*own_decl; /* decl of a directory that was named; else NULL */
};

/*
 * The contract of a kind. Ops never print and never run anything.
 *  - open(): finds the prefix and checks that it is what it says; a broken runtime fails with a
 *    sentence a user can act on;
 *  - view(): host trees that the run must see, beside the system's; *ret_root: a directory that
 *    replaces the system's trees (rootfs), left NULL otherwise;
 *  - activate(): changes env (complete, "K=V") as the environment's own tools would; paths of
 *    shell scripts that must be sourced afterwards, in order, are added to scripts, and lines about
 *    what was left out or overwritten to warnings;
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
	forge_kind_system, forge_kind_r, forge_kind_prefix, forge_kind_rootfs;

/* All declared and discovered runtimes of a configuration. */
struct forge_catalog {
	struct forge_runtime_decl *discovered; /* owned */
	size_t n_discovered;
	struct forge_config *shipped;		  /* owned: those that come with forge */
	const struct forge_runtime_decl **sorted; /* all of them, by name */
	size_t n_sorted;
	const struct forge_config *cfg; /* has the declared ones */
};

FORGE_MUST_CHECK int forge_catalog_open(const struct forge_config *cfg,
					struct forge_catalog *ret,
					struct forge_error *err);
void forge_catalog_close(struct forge_catalog *c);
/* In order of name; a declared one hides a discovered one of the same name. */
void forge_catalog_each(const struct forge_catalog *c,
			void (*visit)(const struct forge_runtime_decl *decl, void *arg),
			void *arg);
/*
 * Opens a runtime by name, or a directory by its path: a conda environment, a venv, or any tree with
 * bin/. Unknown: -ENOENT with the near misses. -ENOPKG: the host lacks what it consists of. Others: what
 * is wrong.
 */
FORGE_MUST_CHECK int forge_runtime_open(const struct forge_catalog *c, const char *name,
					struct forge_runtime *ret,
					struct forge_error *err);
void forge_runtime_close(struct forge_runtime *rt);
/* Whether a word is the path of a directory and no name: it has a '/', or begins with '.' or '~'. */
bool forge_runtime_is_path(const char *word);
/* What opens it again: its name, or the path that was named. */
const char *forge_runtime_word(const struct forge_runtime *rt);
/* For kinds: sets both prefixes. path is absolute, or below the current directory. */
FORGE_MUST_CHECK int forge_runtime_set_prefix(struct forge_runtime *rt, const char *path,
					      struct forge_error *err);

/*
 * Whether a run in it must have this program from it: the host's of the same name would be another
 * Python or R than the one that was asked for.
 */
bool forge_runtime_must_own(const struct forge_runtime *rt, const char *program);

/* Front of the ops; each adds "runtime NAME: " to errors. */
FORGE_MUST_CHECK int forge_runtime_view(const struct forge_runtime *rt,
					struct forge_strv *read_only, char **ret_root,
					struct forge_error *err);
FORGE_MUST_CHECK int forge_runtime_activate(const struct forge_runtime *rt,
					    struct forge_strv *env,
					    struct forge_strv *scripts,
					    struct forge_strv *warnings,
					    struct forge_error *err);
/* The same once more after scripts have been sourced: what is declared goes before them. */
FORGE_MUST_CHECK int forge_runtime_settle(const struct forge_runtime *rt,
					  struct forge_strv *env,
					  struct forge_error *err);
FORGE_MUST_CHECK int forge_runtime_identify(const struct forge_runtime *rt,
					    struct forge_packages *ret,
					    struct forge_error *err);
FORGE_MUST_CHECK int forge_runtime_lock(const struct forge_runtime *rt, FILE *out,
					struct forge_error *err);
