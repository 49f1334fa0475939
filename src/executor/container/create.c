/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /containers/create. */
#include "executor/container/create.h"

#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "executor/container/shim.h"

/* What the image has of its own: a tree of the host must not hide it. */
static bool is_of_image(const char *path)
{
	static const char *const dirs[] = { "/usr", "/bin",   "/sbin",
					    "/lib", "/lib64", "/etc" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++)
		if (forge_path_is_below(path, dirs[i]))
			return true;
	return false;
}

/* Without the mounts below it: those would stay writable. */
static int add_mount(json_t *mounts, const char *source, const char *target,
		     bool read_only)
{
	size_t i;
	const json_t *m;

	json_array_foreach (mounts, i, m)
		if (strcmp(forge_json_string_or(m, "Target", ""), target) == 0)
			return 0;
	json_t *mount =
		json_pack("{s:s, s:s, s:s, s:b, s:{s:b, s:s}}", "Type", "bind", "Source",
			  source, "Target", target, "ReadOnly", read_only, "BindOptions",
			  "NonRecursive", 1, "Propagation", "private");
	return mount ? json_array_append_new(mounts, mount) : -1;
}

static json_t *mounts_of(const struct forge_create *c)
{
	const struct forge_job *job = c->job;
	json_t *mounts = json_array();
	int rc = add_mount(mounts, c->workdir, job->workdir, false);

	if (rc == 0)
		rc = add_mount(mounts, c->shim, FORGE_SHIM_PROGRAM, true);
	if (rc == 0)
		rc = add_mount(mounts, c->control, FORGE_SHIM_DIR, true);
	forge_strv_foreach (path, job->read_only)
		if (rc == 0 && !is_of_image(path))
			rc = add_mount(mounts, path, path, true);
	for (size_t i = 0; i + 1 < job->aliases->n && rc == 0; i += 2)
		if (!is_of_image(job->aliases->v[i]))
			rc = add_mount(mounts, job->aliases->v[i + 1], job->aliases->v[i],
				       true);
	if (rc == 0)
		return mounts;
	json_decref(mounts);
	return NULL;
}

/* What is not UTF-8 cannot be handed to an engine. NULL: something is not. */
static json_t *env_of(const struct forge_create *c)
{
	json_t *env = json_array();
	int rc = 0;

	forge_strv_foreach (pair, c->job->env)
		if (rc == 0 && (!c->has_path || strncmp(pair, "PATH=", 5) != 0))
			rc = json_array_append_new(env, json_string(pair));
	if (rc == 0)
		return env;
	json_decref(env);
	return NULL;
}

static json_t *words_of(const struct forge_create *c)
{
	json_t *words = json_pack("[s]", FORGE_SHIM_PROGRAM);
	int rc = words ? 0 : -1;

	for (char *const *word = c->job->argv; *word && rc == 0; word++)
		rc = json_array_append_new(words, json_string(*word));
	if (rc == 0)
		return words;
	json_decref(words);
	return NULL;
}

static json_t *ulimit(const char *name, uint64_t value)
{
	return json_pack("{s:s, s:I, s:I}", "Name", name, "Soft", (json_int_t)value,
			 "Hard", (json_int_t)value);
}

/*
 * Podman replaces all of its defaults by this list, and its default for processes is above the hard limit of
 * many hosts: so that one is given too. The cgroup limits the number of processes. This is a number that
 * every engine may set, or, for a run that may have more processes, that number.
 */
#define NPROC 4096

static json_t *ulimits_of(const struct forge_limits *l)
{
	uint64_t most =
		l->pids > NPROC && l->pids != FORGE_UNLIMITED ? l->pids + 1 : NPROC;

	return json_pack("[o, o, o]", ulimit("nofile", l->open_files),
			 ulimit("nproc", most), ulimit("core", 0));
}

static json_t *text_list(const char *text)
{
	return json_pack("[s]", text);
}

/*
 * An engine makes a directory of its own for each volume of an image: writable, with nothing that limits what
 * is written there. What the run mounts at the same path goes before.
 */
static json_t *tmpfs_of(const struct forge_create *c, const json_t *mounts,
			const char *options)
{
	json_t *all = json_pack("{s:s}", "/tmp", options);
	const char *path;
	const json_t *unused, *m;
	size_t i;

	json_object_foreach((json_t *)c->volumes, path, unused)
	{
		bool is_taken = false;
		json_array_foreach (mounts, i, m)
			if (strcmp(forge_json_string_or(m, "Target", ""), path) == 0)
				is_taken = true;
		if (all && !is_taken)
			json_object_set_new(all, path, json_string(options));
	}
	return all;
}

static json_t *host_config(const struct forge_create *c)
{
	const struct forge_limits *l = c->job->limits;
	const struct forge_config *cfg = c->job->config;
	uint64_t memory =
		l->memory_bytes == FORGE_UNLIMITED ? 1ull << 30 : l->memory_bytes;
	char tmp[96];
	json_t *mounts = mounts_of(c);
	json_t *h = mounts ? json_object() : NULL;

	if (!h)
		return NULL;
	(void)snprintf(
		tmp, sizeof(tmp), "rw,nosuid,nodev,exec,mode=1777,size=%llu",
		(unsigned long long)(cfg->tmp_bytes ? cfg->tmp_bytes : memory / 2));
	json_object_set_new(h, "Mounts", mounts);
	json_object_set_new(h, "Tmpfs", tmpfs_of(c, mounts, tmp));
	json_object_set_new(
		h, "ShmSize",
		json_integer((json_int_t)(cfg->shm_bytes ? cfg->shm_bytes : memory)));
	json_object_set_new(h, "NetworkMode",
			    json_string(c->job->own_network ? "none" : "host"));
	json_object_set_new(h, "IpcMode", json_string("private"));
	json_object_set_new(h, "ReadonlyRootfs", json_true());
	json_object_set_new(h, "CapDrop", text_list("ALL"));
	json_object_set_new(h, "SecurityOpt", text_list("no-new-privileges"));
	json_object_set_new(h, "Ulimits", ulimits_of(l));
	json_object_set_new(h, "RestartPolicy", json_pack("{s:s}", "Name", "no"));
	/* The streams of the command are fifos: what the engine could log is nothing. */
	json_object_set_new(h, "LogConfig", json_pack("{s:s}", "Type", "none"));
	if (l->memory_bytes != FORGE_UNLIMITED) {
		json_t *bytes = json_integer((json_int_t)l->memory_bytes);
		json_object_set_new(h, "Memory", bytes);
		json_object_set(h, "MemorySwap", bytes); /* both together: no swap */
	}
	if (l->cpus_milli != FORGE_UNLIMITED)
		json_object_set_new(h, "NanoCpus",
				    json_integer((json_int_t)l->cpus_milli * 1000000));
	if (l->pids != FORGE_UNLIMITED) /* + 1: forge-shim */
		json_object_set_new(h, "PidsLimit",
				    json_integer((json_int_t)l->pids + 1));
	if (c->keeps_ids)
		json_object_set_new(h, "UsernsMode", json_string("keep-id"));
	return h;
}

/*
 * Podman makes a text "type=bind,source=...,target=..." of a mount and reads that as CSV: a path with
 * ",source=/root" in it would be another mount than this one.
 */
static int check_paths(const json_t *host, struct forge_error *err)
{
	size_t i;
	const json_t *m;

	json_array_foreach (json_object_get(host, "Mounts"), i, m) {
		const char *source = forge_json_string_or(m, "Source", "");
		const char *target = forge_json_string_or(m, "Target", "");
		const char *bad = strpbrk(source, ",\"\n\r")   ? source
				  : strpbrk(target, ",\"\n\r") ? target
							       : NULL;
		if (bad)
			return forge_hint(
				err,
				forge_fail(err, EINVAL,
					   "Podman cannot mount a path with a comma, a "
					   "quote or a line break: %.200s",
					   bad),
				"Rename it, or use another executor");
	}
	return 0;
}

json_t *forge_create_body(const struct forge_create *c, struct forge_error *err)
{
	char user[48];
	json_t *words = words_of(c), *env = env_of(c), *host = host_config(c);
	json_t *body = json_object();

	if (!words || !env || !body || !host) {
		json_decref(words);
		json_decref(env);
		json_decref(body);
		json_decref(host);
		(void)forge_fail(err, EILSEQ,
				 "a container needs UTF-8: a word of the command, a "
				 "variable or a path is not");
		return NULL;
	}
	if (c->joins_paths && check_paths(host, err) < 0) {
		json_decref(words);
		json_decref(env);
		json_decref(body);
		json_decref(host);
		return NULL;
	}
	(void)snprintf(user, sizeof(user), "%u:%u", c->uid, c->gid);
	json_object_set_new(body, "Image", json_string(c->image));
	/* All of it as the entry point: the image's own is not used, nor its command. */
	json_object_set_new(body, "Entrypoint", words);
	json_object_set_new(body, "Cmd", json_array());
	json_object_set_new(body, "Env", env);
	/* The image's own would run beside the command, and count as the command's. */
	json_object_set_new(body, "Healthcheck", json_pack("{s:[s]}", "Test", "NONE"));
	json_object_set_new(body, "WorkingDir", json_string(c->job->workdir));
	json_object_set_new(body, "User", json_string(user));
	json_object_set_new(body, "Hostname", json_string("forge"));
	json_object_set_new(body, "Labels",
			    json_pack("{s:s}", "forge.run", c->job->run_id));
	json_object_set_new(body, "HostConfig", host);
	return body;
}
