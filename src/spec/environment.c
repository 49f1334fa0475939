/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of a run: allowed variables of the caller, those of the configuration
 * and the command line, and forge's own. No other variable of the caller is passed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

#include "base/fd.h"
#include "spec/spec.h"

extern char **environ;

/* Each library with a thread pool has its own variable for the size. */
static const char *const thread_variables[] = {
	"OMP_NUM_THREADS",	     "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
	"BLIS_NUM_THREADS",	     "NUMEXPR_NUM_THREADS",  "NUMEXPR_MAX_THREADS",
	"NUMBA_NUM_THREADS",	     "POLARS_MAX_THREADS",   "RAYON_NUM_THREADS",
	"JULIA_NUM_THREADS",	     "GOMAXPROCS",	     "MC_CORES",
	"RCPP_PARALLEL_NUM_THREADS", "TBB_NUM_THREADS",	     "VECLIB_MAXIMUM_THREADS",
};

/* Set by forge itself, beside FORGE_*; set_own() has the values. */
static const char *const own_variables[] = { "HOME", "PWD",	"TMPDIR",
					     "USER", "LOGNAME", "SHELL" };

static bool matches(const char *name, size_t len, const struct forge_strv *patterns)
{
	forge_strv_foreach (p, patterns) {
		size_t n = strlen(p);
		if (n > 0 && p[n - 1] == '*'
			    ? len >= n - 1 && strncmp(name, p, n - 1) == 0
			    : len == n && strncmp(name, p, n) == 0)
			return true;
	}
	return false;
}

static int pass_allowed(struct forge_spec *s, const struct forge_strv *patterns)
{
	int rc = 0;

	for (char **e = environ; *e && rc == 0; e++) {
		size_t len = strcspn(*e, "=");
		if ((*e)[len] != '=' || !matches(*e, len, patterns))
			continue;
		/* Only one value per name, also for PATH, which has one already. */
		forge_auto_free char *name = strndup(*e, len);
		const char *value = name ? getenv(name) : NULL;
		rc = name ? forge_strv_setenv(&s->env, name, value ? value : *e + len + 1)
			  : -ENOMEM;
	}
	return rc;
}

/* "K=V" sets, "K" passes the caller's value if there is one. */
static int set_one(struct forge_spec *s, const char *item, const char *where,
		   struct forge_error *err)
{
	size_t len = strcspn(item, "=");
	char name[256];
	int rc = forge_parse_env_name(item, len, err);

	if (rc < 0)
		return forge_wrap(err, rc, "%s", where);
	if (len >= sizeof(name))
		return forge_fail(err, EINVAL, "%s: the name is too long", where);
	if (strncmp(item, "FORGE_", 6) == 0)
		return forge_fail(err, EINVAL, "%s: FORGE_* variables are set by forge",
				  where);
	memcpy(name, item, len);
	name[len] = '\0';
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(own_variables); i++)
		if (strcmp(name, own_variables[i]) == 0)
			return forge_fail(err, EINVAL, "%s: %s is set by forge", where,
					  name);
	const char *value = item[len] ? item + len + 1 : getenv(name);
	if (value && forge_strv_setenv(&s->env, name, value) < 0)
		return forge_fail(err, ENOMEM, "out of memory");
	return 0;
}

static int read_env_file(struct forge_spec *s, const char *path, struct forge_error *err)
{
	forge_auto_free char *text = malloc(1 << 20);
	if (!text)
		return forge_fail(err, ENOMEM, "out of memory");
	ssize_t n = forge_read_at(AT_FDCWD, path, text, 1 << 20);
	if (n < 0)
		return forge_fail_errno(err, (int)-n, "--env-file %s", path);
	if (n == (1 << 20) - 1 || strlen(text) != (size_t)n)
		return forge_fail(err, EINVAL, "--env-file %s: too long or not text",
				  path);
	unsigned line = 0;
	for (char *p = text, *next; p && *p; p = next) {
		next = strchr(p, '\n');
		if (next)
			*next++ = '\0';
		line++;
		p += strspn(p, " \t");
		p[strcspn(p, "\r")] = '\0';
		if (!*p || *p == '#')
			continue;
		struct forge_error inner = FORGE_ERROR_INIT;
		if (set_one(s, p, "--env-file", &inner) < 0)
			return forge_fail_at(err, path, line, 1, "%s", inner.msg);
	}
	return 0;
}

static uint64_t whole_cpus(const struct forge_limits *l)
{
	cpu_set_t have;

	uint64_t n = sched_getaffinity(0, sizeof(have), &have) == 0
			     ? (uint64_t)CPU_COUNT(&have)
			     : 1;
	uint64_t want =
		l->cpus_milli == FORGE_UNLIMITED ? n : (l->cpus_milli + 999) / 1000;

	return want < n ? want : n;
}

static int set_threads(struct forge_spec *s)
{
	char n[24];
	int rc = 0;

	(void)snprintf(n, sizeof(n), "%" PRIu64, whole_cpus(&s->limits));
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(thread_variables) && rc == 0; i++)
		rc = forge_strv_setenv(&s->env, thread_variables[i], n);
	return rc;
}

static int set_own(struct forge_spec *s)
{
	char cpus[FORGE_FORMAT_MAX], memory[24];
	const struct {
		const char *name, *value;
	} own[] = {
		{ "HOME", s->workdir },
		{ "PWD", s->workdir },
		{ "TMPDIR", "/tmp" },
		{ "USER", "forge" },
		{ "LOGNAME", "forge" },
		{ "SHELL", "/bin/sh" },
		{ "FORGE_RUN_ID", s->run_id },
		{ "FORGE_ANALYSIS_ID", s->analysis_id },
		{ "FORGE_WORKDIR", s->workdir },
		{ "FORGE_CPUS", forge_format_cpus(cpus, s->limits.cpus_milli) },
		{ "FORGE_MEMORY_BYTES", memory },
	};
	int rc = 0;

	(void)snprintf(memory, sizeof(memory), "%" PRIu64, s->limits.memory_bytes);
	if (s->limits.memory_bytes == FORGE_UNLIMITED)
		(void)snprintf(memory, sizeof(memory), "unlimited");
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(own) && rc == 0; i++)
		rc = forge_strv_setenv(&s->env, own[i].name, own[i].value);
	return rc;
}

int forge_spec_begin_environment(struct forge_spec *s, const struct forge_config *cfg,
				 const struct forge_run_request *req,
				 struct forge_error *err)
{
	int rc = 0;

	/* The environment is made again when the workdir gets another name. */
	forge_strv_done(&s->env);
	s->env = (struct forge_strv){ 0 };
	forge_strv_done(&s->warnings);
	s->warnings = (struct forge_strv){ 0 };
	if (req->exact_env) {
		rc = forge_strv_copy(&s->env, req->exact_env);
	} else {
		rc = forge_strv_setenv(&s->env, "PATH", "/usr/local/bin:/usr/bin:/bin");
		/* The result of a step depends on nothing that its key does not have. */
		if (rc == 0 && req->step) {
			rc = forge_strv_setenv(&s->env, "LANG", "C.UTF-8");
			if (rc == 0)
				rc = forge_strv_setenv(&s->env, "TZ", "UTC");
		} else if (rc == 0) {
			rc = pass_allowed(s, &cfg->env_pass);
		}
		if (rc == 0)
			rc = set_threads(s);
		if (rc == 0 && s->has_runtime && s->runtime.decl->clamped)
			rc = forge_strv_add(&s->warnings, s->runtime.decl->clamped);
	}
	return rc < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}

int forge_spec_end_environment(struct forge_spec *s, const struct forge_config *cfg,
			       const struct forge_run_request *req,
			       struct forge_error *err)
{
	bool is_exact = req->exact_env != NULL;
	int rc = 0;

	for (size_t i = 0; !is_exact && i < cfg->env_set.n && rc == 0; i++)
		rc = set_one(s, cfg->env_set.v[i], "env.set", err);
	for (size_t i = 0; !is_exact && i < s->wishes.env.n && rc == 0; i++)
		rc = set_one(s, s->wishes.env.v[i], "the script", err);
	if (rc == 0 && !is_exact && req->env_file)
		rc = read_env_file(s, req->env_file, err);
	for (size_t i = 0; !is_exact && i < req->env.n && rc == 0; i++)
		rc = set_one(s, req->env.v[i], "--env", err);
	if (rc < 0)
		return rc;
	return set_own(s) < 0 ? forge_fail(err, ENOMEM, "out of memory") : 0;
}
