/* SPDX-License-Identifier: Apache-2.0 */
/* The resolved request: everything is decided, and nothing is made yet. */
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/strv.h"
#include "config/config.h"
#include "spec/request.h"
#include "runtime/runtime.h"
#include "state/home.h"

struct forge_spec {
	char run_id[FORGE_RUN_ID_MAX];
	char *analysis_id;
	char *workdir;
	bool has_other_workdir; /* the run id was added, because the name was taken */
	const char *profile;	/* name, borrowed from the config */
	const struct forge_executor_decl *executor; /* borrowed from the config */
	struct forge_limits limits;
	bool own_network;
	int priority;
	const char *idempotency_key; /* borrowed, NULL: none */
	const struct forge_strv
		*asked_env;	/* borrowed: "K=V" and "K" as they were given */
	const struct forge_strv *input_roots; /* borrowed, see the request */
	const char *parent_run; /* borrowed, NULL: none */
	bool is_probe;		/* of a runtime */
	struct forge_retry_chain retry;
	enum forge_outputs collects;
	struct forge_strv outputs; /* patterns of the outputs to collect */
	bool has_outputs;	   /* they were given: each must match something */
	char *notebook;		   /* always an output, below the workdir; NULL: none */
	char *checkpoint; /* a directory, collected unless the run succeeds; NULL: none */
	char *copy_to;		   /* absolute, NULL: nowhere */
	struct forge_strv post_process; /* argv, empty: none */
	struct forge_strv argv;
	struct forge_strv env;
	struct forge_strv inputs;      /* canonical, in the order given */
	struct forge_strv input_names; /* of each input, below the workdir; "": none */
	struct forge_strv aliases;     /* pairs: absolute path as typed, canonical */
	char *not_given; /* a word of the command: a file the run does not see */
	bool not_given_is_dir;
	bool has_late_option;	 /* req->late_option, which the script does not have */
	struct forge_strv links; /* pairs: path below the workdir, canonical */
	struct forge_strv read_only; /* inputs, the configured roots, the runtime */
	/* the runtime and the profile that the script requests */
	char *header_runtime, *header_profile;
	const char *header_why; /* whether script or forge.yaml has header_runtime */
	struct forge_limits header_limits,
		beside_limits;	       /* of the script; of the forge.yaml beside it */
	struct forge_strv wishes_real; /* canonical paths of wishes.inputs */
	struct forge_analysis
		wishes; /* of both: requested inputs, outputs, network and variables */
	struct forge_catalog catalog;
	struct forge_runtime runtime;
	bool has_runtime;
	const char *runtime_why;
	struct forge_strv view;	    /* trees that the runtime needs */
	struct forge_strv tools;    /* pairs: link in the sandbox, its target */
	char *root;		    /* the root of another system, NULL: the host's */
	json_t *runtime_json;	    /* for the record, NULL: none */
	struct forge_strv warnings; /* messages for the user about the environment */
	const char *limit_from[FORGE_LIMIT_COUNT_ROWS]; /* where each limit came from */
};

/* Refuses everything that is unknown, malformed or not allowed. */
FORGE_MUST_CHECK int forge_spec_resolve(const struct forge_config *cfg,
					const struct forge_run_request *req,
					struct forge_spec *ret, struct forge_error *err);
void forge_spec_done(struct forge_spec *s);
#define forge_auto_spec FORGE_CLEANUP(forge_spec_done) /* initialise to {0} */

/* Adds a link "name in dir" -> "dir/name" for every entry of dir. */
FORGE_MUST_CHECK int forge_spec_link_entries(struct forge_spec *s, const char *dir);

/* Adds the run id to the workdir's name, which is taken. -EEXIST: it has it already. */
FORGE_MUST_CHECK int forge_spec_rename_workdir(struct forge_spec *s,
					       struct forge_error *err);

/* The parts of forge_spec_resolve(), each in its own file. */
FORGE_MUST_CHECK int forge_spec_add_input(struct forge_spec *s, const char *typed,
					  struct forge_error *err);
FORGE_MUST_CHECK int forge_spec_command(struct forge_spec *s, char *const *argv,
					const struct forge_strv *parameters,
					struct forge_error *err);
/* Adds an input that a script requests: its path, and its name from the workdir. */
FORGE_MUST_CHECK int forge_spec_add_wish(struct forge_spec *s, const char *real,
					 const char *name, struct forge_error *err);
/* A path in a script is relative to the script's directory. NULL: out of memory. */
char *forge_spec_beside(const char *script, const char *path);
/* Whether PATH in the sandbox has a program of this name, which has no slash. */
bool forge_spec_is_program(const char *word);
/* Whether this word of a command line is a notebook to be executed. */
bool forge_spec_is_notebook(const char *word);
FORGE_MUST_CHECK int forge_spec_header(struct forge_spec *s,
				       const struct forge_config *cfg,
				       const struct forge_run_request *req,
				       struct forge_error *err);
FORGE_MUST_CHECK int forge_spec_runtime(struct forge_spec *s,
					const struct forge_config *cfg,
					const struct forge_run_request *req,
					struct forge_error *err);

/*
 * Whether an environment is active in the caller's shell that the run does not use,
 * because no runtime was chosen; *ret says which, and how to use it. pyenv is always
 * active where it is installed: it counts only for commands that would have used its
 * Python.
 */
bool forge_spec_is_unused_active(const struct forge_spec *s,
				 const struct forge_run_request *req,
				 struct forge_error *ret);

/*
 * The environment of the run is made in two parts. Between the two the caller activates
 * the runtime in s->env.
 */
FORGE_MUST_CHECK int forge_spec_begin_environment(struct forge_spec *s,
						  const struct forge_config *cfg,
						  const struct forge_run_request *req,
						  struct forge_error *err);
FORGE_MUST_CHECK int forge_spec_end_environment(struct forge_spec *s,
						const struct forge_config *cfg,
						const struct forge_run_request *req,
						struct forge_error *err);

/* The limits of such a run and where each comes from: [{limit, value, from, name}]. */
FORGE_MUST_CHECK int forge_spec_explain_limits(const struct forge_config *cfg,
					       const struct forge_run_request *req,
					       json_t **ret, struct forge_error *err);
