/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forge.yaml as one struct. The schema is a table (schema.c); unknown keys, wrong types and
 * bad values are errors with file:line:column and the legal values.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/health.h"
#include "config/limits.h"
#include "config/retry.h"

/*
 * Mechanisms that a host may lack if an administrator accepts that by name
 * (sandbox.allow_missing). The namespaces, the seccomp filter and the dropped privileges
 * are not here: without them nothing runs. The record of a run lists by these names the
 * mechanisms it did not have.
 */
enum forge_mechanism {
	FORGE_MECH_LANDLOCK,	   /* second protection of the file system */
	FORGE_MECH_LANDLOCK_SCOPE, /* --network host: hides abstract sockets (ABI 6) */
	FORGE_MECH_MEMORY,	   /* hard memory limit */
	FORGE_MECH_SWAP,	   /* swap counted or absent */
	FORGE_MECH_CPUS,	   /* CPU bandwidth limit */
	FORGE_MECH_PIDS,	   /* process limit */
	FORGE_MECH_CPU_TIME,	   /* CPU time of the whole tree */
	FORGE_MECH_IO,		   /* I/O rate, if one is set */
	FORGE_MECH_COUNT,
};
extern const char *const forge_mechanism_names[FORGE_MECH_COUNT];
/* The names of the mechanisms in missing (1u << enum forge_mechanism), with commas. Returns buf. */
#define FORGE_MECHANISMS_MAX 256
const char *forge_mechanism_list(unsigned missing, char buf[FORGE_MECHANISMS_MAX]);
/* All that only a cgroup can enforce and every run needs. */
#define FORGE_MECH_ALL_CGROUP                                                            \
	(1u << FORGE_MECH_MEMORY | 1u << FORGE_MECH_SWAP | 1u << FORGE_MECH_CPUS |       \
	 1u << FORGE_MECH_PIDS | 1u << FORGE_MECH_CPU_TIME)

enum forge_cgroup_choice {
	FORGE_CGROUP_AUTO,
	FORGE_CGROUP_V2,
	FORGE_CGROUP_SYSTEMD,
	FORGE_CGROUP_V1,
	FORGE_CGROUP_NONE,
};

/* The outputs of a run that declares none. */
enum forge_outputs {
	FORGE_OUTPUTS_ALL, /* every regular file except hidden ones and __pycache__ */
	FORGE_OUTPUTS_DECLARED, /* the files in outputs/ */
	FORGE_OUTPUTS_NONE,
};
extern const char *const forge_outputs_names[3];

struct forge_profile {
	char *name;
	struct forge_limits limits;
};

/* A runtime as declared; src/runtime/ interprets it. */
struct forge_runtime_decl {
	char *name, *kind;
	char *prefix;	   /* path, or for conda a name; NULL: not given */
	char *image;	   /* kind image; NULL: not given */
	char *executor;	   /* executor of its runs; NULL: as for other runs */
	char *description; /* NULL: none */
	char *smoke;	   /* a line for sh, NULL: none */
	struct forge_strv commands, python, r, libraries;
	struct forge_strv needs;    /* Debian packages that provide it */
	struct forge_strv env;	    /* "K=V" */
	struct forge_limits limits; /* 0 where not given */
	char *clamped;	 /* what of the limits gave way to host.max, NULL: nothing */
	char *file;	 /* where it was declared, or how it was found */
	unsigned line;	 /* 0: discovered */
	bool is_shipped; /* it came with forge, no configuration file declares it */
};
void forge_runtime_decl_done(struct forge_runtime_decl *d);

/* An executor as declared; src/executor/ interprets it. */
struct forge_executor_decl {
	char *name, *kind;
	char *socket; /* kind container: socket of the engine */
	char *image;  /* kind container: for runs without an image; NULL: none */
	/* kind slurm */
	char *dir;	      /* shared with the nodes, absolute */
	char *forge;	      /* path of forge on the nodes, NULL: that of this one */
	char *slurm_conf;     /* SLURM_CONF of the clients, NULL: theirs */
	char *partition, *account;
	struct forge_strv options;   /* further ones of sbatch */
	uint64_t poll_usec;	     /* from one look at the cluster to the next */
	uint64_t max_pending_usec;   /* 0: no bound */
	uint64_t max_lag_usec; /* until a file that a node wrote must be seen here */
};

/* Settings of a forge.yaml for the scripts beside it. */
struct forge_analysis {
	char *runtime, *profile;    /* NULL: nothing */
	struct forge_limits limits; /* 0 where not given */
	struct forge_strv inputs;   /* paths as written: from the script's directory */
	struct forge_strv outputs;  /* patterns */
	struct forge_strv env;	    /* "K=V" */
	char *network;		    /* "none" or "host", NULL: nothing */
};
void forge_analysis_done(struct forge_analysis *a);

/* Where a value was written. */
struct forge_origin {
	char *key, *value, *from; /* "host.max.memory", "2G", "/etc/forge/forge.yaml:3" */
};

struct forge_config {
	char *path; /* the innermost file it came from, NULL: built-in defaults only */
	struct forge_strv files;      /* all of them, the outermost first */
	struct forge_origin *origins; /* of the values in force that are not built in */
	size_t n_origins;
	struct forge_strv
		held_back; /* messages about values above the cap of an outer file */
	char *workdir;	   /* template; {id} and {run_id} are replaced */
	struct forge_strv read_only; /* absolute paths of read-only roots */
	struct forge_profile
		*profiles; /* always has default, notebook, tool, post_process */
	size_t n_profiles;
	struct forge_limits caps; /* host.max: 0 means no cap */
	bool allow_unlimited;	  /* host.allow_unlimited */
	bool scripts_network; /* host.scripts_network: scripts may request the host's */
	unsigned
		allow_missing; /* sandbox.allow_missing: bits 1u << enum forge_mechanism */
	enum forge_cgroup_choice cgroup; /* sandbox.cgroup */
	uint64_t tmp_bytes;		 /* sandbox.tmp_size, 0: half the memory limit */
	uint64_t shm_bytes;		 /* sandbox.shm_size, 0: the memory limit */
	uint32_t uid_base,
		uid_count; /* sandbox.uid_base, .uid_count: payload uids when root */
	struct forge_strv env_pass; /* env.pass: names, a trailing * is a prefix */
	struct forge_strv env_set;  /* env.set: "K=V" */
	char *runtime;		    /* default runtime, NULL: none, the host's programs */
	struct forge_runtime_decl *runtimes;
	size_t n_runtimes;
	char *executor;			       /* default executor, NULL: local */
	struct forge_executor_decl *executors; /* always has local, docker and podman */
	size_t n_executors;
	struct forge_analysis analysis;
	char *store;	       /* store: URL, NULL: SQLite in FORGE_HOME */
	uint64_t budget_bytes; /* host.budget.memory, 0: 80 % of the host's */
	uint64_t
		budget_cpus_milli; /* host.budget.cpus, 0: 80 % of the host's, rounded up */
	uint64_t budget_runs;	   /* host.budget.runs, 0: as many as fit */
	uint64_t queue_usec;	   /* queue.max_wait */
	enum forge_outputs outputs_default; /* outputs.default */
	uint64_t outputs_max_bytes;	    /* outputs.max_size, 0: the disk limit */
	uint64_t outputs_max_files;	    /* outputs.max_files */
	struct forge_strv post_process;	    /* argv, empty: none */
	struct forge_retry_policy retry;    /* which runs are tried again */
	struct forge_strv reuse_from;	    /* pipeline.reuse_from: FORGE_HOMEs of others */
	uint64_t sample_usec;		    /* sampling.interval, 0: off */
	struct forge_health_config health;  /* health, guard */
	struct {
		uint64_t logs_usec, logs_bytes, workdirs_usec, objects_usec, health_usec,
			reused_usec;
	} keep; /* retention.*, FORGE_UNLIMITED: for ever */
};

/*
 * Finds and reads the configuration. Files are layers: /etc/forge/forge.yaml, then the user's
 * ~/.config/forge/forge.yaml, then ./forge.yaml, then explicit (may be NULL; else $FORGE_CONFIG). Each
 * goes before the ones outside of it, key by key, but caps (host.max, host.budget, host.allow_unlimited,
 * sandbox.allow_missing) can only be lowered. A file that another user owns, or that others could have
 * written, is refused.
 */
FORGE_MUST_CHECK int forge_config_load(const char *explicit_path,
				       struct forge_config **ret,
				       struct forge_error *err);
/*
 * The same without ./forge.yaml, for use when that has an error; it must still be a
 * trusted file. *ret_may_name_store: it may have a "store:", so the store of *ret may be
 * another than the project's.
 */
FORGE_MUST_CHECK int forge_config_load_outer(const char *explicit_path,
					     struct forge_config **ret,
					     bool *ret_may_name_store,
					     struct forge_error *err);
/* One file; relative paths in it are below base_dir. */
struct forge_config_layer {
	const char *text;
	size_t len;
	const char *name, *base_dir;
	bool is_project; /* it was found in the current directory, and no option or variable named it */
};
/* The same from memory, the outermost first. */
FORGE_MUST_CHECK int forge_config_parse_layers(const struct forge_config_layer *layers,
					       size_t n, struct forge_config **ret,
					       struct forge_error *err);
FORGE_MUST_CHECK int forge_config_parse(const char *text, size_t len, const char *name,
					const char *base_dir, struct forge_config **ret,
					struct forge_error *err);
/* Reads one file as a configuration. 1: read into *ret; 0: the file does not exist. */
FORGE_MUST_CHECK int forge_config_read(const char *path, struct forge_config **ret,
				       struct forge_error *err);
/*
 * A configuration of the runtimes alone that come with forge, below the caps of c. Of those that cannot
 * be read there are none: no configuration file asked for them. -ENOMEM only.
 */
FORGE_MUST_CHECK int forge_config_shipped(const struct forge_config *c,
					  struct forge_config **ret,
					  struct forge_error *err);
/* Where the value of a key was written; NULL: it is built in. */
const struct forge_origin *forge_config_origin(const struct forge_config *c,
					       const char *key);
void forge_config_free(struct forge_config *c);
FORGE_DEFINE_AUTO(config, struct forge_config *, forge_config_free)
#define forge_auto_config FORGE_CLEANUP(forge_auto_config_)

/* A NULL name means "default". Unknown: an error with the known names. */
FORGE_MUST_CHECK int forge_config_profile(const struct forge_config *c, const char *name,
					  const struct forge_profile **ret,
					  struct forge_error *err);

/* Unknown: an error with the known names. */
FORGE_MUST_CHECK int forge_config_executor(const struct forge_config *c, const char *name,
					   const struct forge_executor_decl **ret,
					   struct forge_error *err);

/* One row of the schema, for `forge config` and the manual page. */
struct forge_config_key {
	const char *path;    /* "host.max.memory" */
	const char *type;    /* "size", "list of paths" ... */
	const char *builtin; /* the default as text */
	const char *help;
};
/* Calls visit for every key the schema knows, in file order. */
void forge_config_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			   void *arg);
