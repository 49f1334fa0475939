/* SPDX-License-Identifier: Apache-2.0 */
/* The resolved request: everything decided, nothing made yet. */
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
	bool has_other_workdir; /* the run id was added: the name was taken */
	const char *profile;	/* name, borrowed from the config */
	const struct forge_executor_decl *executor; /* borrowed from the config */
	struct forge_limits limits;
	bool own_network;
	int priority;
	const char *idempotency_key; /* borrowed, NULL: none */
	const struct forge_strv
		*asked_env;	/* borrowed: "K=V" and "K" as they were given */
	const char *parent_run; /* borrowed, NULL: none */
	bool is_probe;		/* of a runtime */
	enum forge_outputs collects;
	struct forge_strv outputs; /* patterns, when it collects what is declared */
	bool has_outputs;	   /* they are the user's: each must match something */
	char *notebook; /* executed, below the workdir: an output whatever the patterns; NULL: none */
	char *copy_to;			/* absolute, NULL: nowhere */
	struct forge_strv post_process; /* argv, empty: none */
	struct forge_strv argv;
	struct forge_strv env;
	struct forge_strv inputs; /* canonical, in the order given */
	struct forge_strv
		input_names; /* of each input: below the workdir, "" when it has none */
	struct forge_strv aliases; /* pairs: absolute path as typed, canonical */
	char *not_given; /* a word of the command: it is here, and the run does not see it */
	bool not_given_is_dir;
	bool has_late_option;	 /* the request's, and the script has none of that name */
	struct forge_strv links; /* pairs: path below the workdir, canonical */
	struct forge_strv read_only; /* inputs, the configured roots, the runtime */
	/* the runtime, and what the script says about itself */
	char *header_runtime, *header_profile;
	const char *header_why; /* who of the two said header_runtime */
	struct forge_limits header_limits,
		beside_limits;	       /* of the script, of the forge.yaml beside it */
	struct forge_strv wishes_real; /* wishes.inputs, each as it was found */
	struct forge_analysis
		wishes; /* of both: inputs, outputs, network and variables */
	struct forge_catalog catalog;
	struct forge_runtime runtime;
	bool has_runtime;
	const char *runtime_why;
	struct forge_strv view;	    /* trees that the runtime needs */
	struct forge_strv tools;    /* pairs: link inside, its text */
	char *root;		    /* another system's trees, NULL: the host's */
	json_t *runtime_json;	    /* for the record, NULL: none */
	struct forge_strv warnings; /* what the user should know about the environment */
	const char *limit_from[FORGE_LIMIT_COUNT_ROWS]; /* where each limit came from */
};

/* Anything unknown, malformed or out of reach stops here. */
FORGE_MUST_CHECK int forge_spec_resolve(const struct forge_config *cfg,
					const struct forge_run_request *req,
					struct forge_spec *ret, struct forge_error *err);
void forge_spec_done(struct forge_spec *s);
#define forge_auto_spec FORGE_CLEANUP(forge_spec_done) /* initialise to {0} */

/* Adds a link "name in dir" -> "dir/name" for every entry of dir. */
FORGE_MUST_CHECK int forge_spec_link_entries(struct forge_spec *s, const char *dir);

/* The workdir's name is taken: adds the run id. -EEXIST: that has been done. */
FORGE_MUST_CHECK int forge_spec_rename_workdir(struct forge_spec *s,
					       struct forge_error *err);

/* Parts, each in its own file. */
FORGE_MUST_CHECK int forge_spec_add_input(struct forge_spec *s, const char *typed,
					  struct forge_error *err);
FORGE_MUST_CHECK int forge_spec_command(struct forge_spec *s, char *const *argv,
					const struct forge_strv *parameters,
					struct forge_error *err);
/* One that a script named: real is where it is, name how it is found from the workdir. */
FORGE_MUST_CHECK int forge_spec_add_wish(struct forge_spec *s, const char *real,
					 const char *name, struct forge_error *err);
/* A path that a script names is meant from where the script is. NULL: out of memory. */
char *forge_spec_beside(const char *script, const char *path);
/* Whether the sandbox's PATH finds a program of this name, which has no slash in it. */
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
 * Whether the caller has an environment active that the run does not use, since no runtime was chosen;
 * *ret says which, and how to use it. pyenv is always active where it is installed: it counts only for
 * commands that would have used its Python.
 */
bool forge_spec_is_unused_active(const struct forge_spec *s,
				 const struct forge_run_request *req,
				 struct forge_error *ret);

/*
 * The environment of the run, in two parts: what comes before the runtime changes it, and what comes after.
 * Between the two the caller lets the runtime activate itself in s->env.
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
