/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a request and the configuration into one spec. */
#include "run/spec.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void forge_spec_done(struct forge_spec *s)
{
	free(s->analysis_id);
	free(s->workdir);
	forge_strv_done(&s->argv);
	forge_strv_done(&s->env);
	forge_strv_done(&s->inputs);
	forge_strv_done(&s->aliases);
	forge_strv_done(&s->links);
	forge_strv_done(&s->read_only);
}

static int resolve_ids(struct forge_spec *s, const struct forge_run_request *req,
		       struct forge_error *err)
{
	if (forge_make_run_id(s->run_id) < 0)
		return forge_fail(err, EIO, "no random numbers");
	if (req->analysis_id) {
		int rc = forge_parse_id(req->analysis_id, err);
		if (rc < 0)
			return forge_wrap(err, rc, "--id");
	}
	s->analysis_id = strdup(req->analysis_id ? req->analysis_id : s->run_id);
	return s->analysis_id ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

/* The template was checked when the configuration was read. */
static int expand_workdir(struct forge_spec *s, const char *template,
			  struct forge_error *err)
{
	char buf[PATH_MAX];
	size_t len = 0;

	for (const char *p = template; *p;) {
		const char *word = NULL;
		size_t skip = 1;
		if (strncmp(p, "{id}", 4) == 0) {
			word = s->analysis_id;
			skip = 4;
		} else if (strncmp(p, "{run_id}", 8) == 0) {
			word = s->run_id;
			skip = 8;
		}
		size_t n = word ? strlen(word) : 1;
		if (len + n >= sizeof(buf))
			return forge_fail(err, ENAMETOOLONG,
					  "workdir: the path is too long");
		memcpy(buf + len, word ? word : p, n);
		len += n;
		p += skip;
	}
	while (len > 1 && buf[len - 1] == '/')
		len--;
	buf[len] = '\0';
	s->workdir = strdup(buf);
	return s->workdir ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

/* What no sandbox can be made with, or no kernel takes: said before it is tried. */
static int check_possible(struct forge_spec *s, const struct forge_run_request *req,
			  struct forge_error *err)
{
	struct forge_limits *l = &s->limits;
	struct rlimit files;

	if (l->memory_bytes < (1 << 20))
		return forge_fail(err, EINVAL, "--memory: the least is 1M");
	if (l->open_files < 32)
		return forge_fail(err, EINVAL, "--open-files: the least is 32");
	if (l->pids != FORGE_UNLIMITED && l->pids > 4194304)
		return forge_fail(err, EINVAL, "--pids: the most is 4194304");
	if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max == RLIM_INFINITY ||
	    l->open_files <= files.rlim_max)
		return 0;
	/* Ours is the most we can give. A default gives way, a wish is refused. */
	if (req->limits.open_files && req->limits.open_files != FORGE_UNLIMITED)
		return forge_fail(err, EINVAL, "--open-files: this host's hard limit is %llu",
				  (unsigned long long)files.rlim_max);
	l->open_files = files.rlim_max;
	return 0;
}

static int resolve_limits(struct forge_spec *s, const struct forge_config *cfg,
			  const struct forge_run_request *req, struct forge_error *err)
{
	const struct forge_profile *profile;
	int rc = forge_config_profile(cfg, req->profile, &profile, err);

	if (rc < 0)
		return rc;
	s->profile = profile->name;
	s->limits = profile->limits;
	forge_limits_overlay(&s->limits, &req->limits);
	rc = forge_limits_check(&s->limits, &cfg->caps, cfg->allow_unlimited, err);
	return rc < 0 ? rc : check_possible(s, req, err);
}

static int resolve_network(struct forge_spec *s, const char *network,
			   struct forge_error *err)
{
	if (network && strcmp(network, "none") != 0 && strcmp(network, "host") != 0)
		return forge_fail(err, EINVAL, "--network: '%s' is not one of none, host",
				  network);
	s->own_network = !network || strcmp(network, "none") == 0;
	return 0;
}

/* Configured roots are for every run of this host: one that is absent here is no error. */
static int add_roots(struct forge_spec *s, const struct forge_config *cfg)
{
	int rc = forge_strv_copy(&s->read_only, &s->inputs);

	for (size_t i = 0; i < cfg->read_only.n && rc == 0; i++) {
		char *real = realpath(cfg->read_only.v[i], NULL);
		if (real)
			rc = forge_strv_take(&s->read_only, real);
	}
	return rc;
}

int forge_spec_resolve(const struct forge_config *cfg,
		       const struct forge_run_request *req, struct forge_spec *ret,
		       struct forge_error *err)
{
	int rc = resolve_ids(ret, req, err);

	if (rc == 0)
		rc = expand_workdir(ret, cfg->workdir, err);
	if (rc == 0)
		rc = resolve_limits(ret, cfg, req, err);
	if (rc == 0)
		rc = resolve_network(ret, req->network, err);
	for (size_t i = 0; i < req->inputs.n && rc == 0; i++)
		rc = forge_spec_add_input(ret, req->inputs.v[i], err);
	if (rc == 0)
		rc = forge_spec_command(ret, req->argv, err);
	if (rc == 0 && add_roots(ret, cfg) < 0)
		rc = forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0)
		rc = forge_spec_environment(ret, cfg, req, err);
	return rc;
}
