/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manager "systemd": asks the system or user manager for a scope around this supervisor with
 * the subtree delegated, then works in it as "v2" does. libsystemd is opened only here, when
 * it is needed: linking it would cost every other start a millisecond.
 */
#include "sandbox/cgroup.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "config-build.h"

#if HAVE_SYSTEMD
#include <systemd/sd-bus.h>

#define DEST  "org.freedesktop.systemd1"
#define PATH  "/org/freedesktop/systemd1"
#define IFACE "org.freedesktop.systemd1.Manager"

/* The functions of libsystemd that we use; load_api() has their full names. */
struct bus_api {
	int (*open_system)(sd_bus **ret);
	int (*open_user)(sd_bus **ret);
	sd_bus *(*flush_close_unref)(sd_bus *bus);
	int (*new_call)(sd_bus *bus, sd_bus_message **m, const char *dest,
			const char *path, const char *iface, const char *member);
	int (*append)(sd_bus_message *m, const char *types, ...);
	int (*read)(sd_bus_message *m, const char *types, ...);
	int (*call)(sd_bus *bus, sd_bus_message *m, uint64_t usec, sd_bus_error *e,
		    sd_bus_message **reply);
	sd_bus_message *(*unref)(sd_bus_message *m);
	int (*match)(sd_bus *bus, sd_bus_slot **slot, const char *sender,
		     const char *path, const char *iface, const char *member,
		     sd_bus_message_handler_t cb, void *userdata);
	int (*process)(sd_bus *bus, sd_bus_message **m);
	int (*wait)(sd_bus *bus, uint64_t usec);
	void (*error_free)(sd_bus_error *e);
};

static int load_api(struct bus_api *api, struct forge_error *err)
{
	void *lib = dlopen("libsystemd.so.0", RTLD_NOW | RTLD_LOCAL);
	const struct {
		const char *name;
		void *slot;
	} syms[] = {
		{ "sd_bus_open_system", &api->open_system },
		{ "sd_bus_open_user", &api->open_user },
		{ "sd_bus_flush_close_unref", &api->flush_close_unref },
		{ "sd_bus_message_new_method_call", &api->new_call },
		{ "sd_bus_message_append", &api->append },
		{ "sd_bus_message_read", &api->read },
		{ "sd_bus_call", &api->call },
		{ "sd_bus_message_unref", &api->unref },
		{ "sd_bus_match_signal", &api->match },
		{ "sd_bus_process", &api->process },
		{ "sd_bus_wait", &api->wait },
		{ "sd_bus_error_free", &api->error_free },
	};

	if (!lib)
		return forge_hint(
			err, forge_fail(err, ENOENT, "libsystemd.so.0 cannot be opened"),
			"Install libsystemd0");
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(syms); i++) {
		void *f = dlsym(lib, syms[i].name);
		if (!f)
			return forge_fail(err, ENOENT, "libsystemd lacks %s",
					  syms[i].name);
		memcpy(syms[i].slot, &f, sizeof(f));
	}
	return 0; /* the library stays open until we exit */
}

/* What the signal JobRemoved reports about our job. */
struct job {
	const struct bus_api *api;
	char path[256]; /* "" until StartTransientUnit has answered */
	bool is_done;
	char result[32];
};

static int on_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *e)
{
	struct job *job = userdata;
	const char *path, *unit, *result;
	uint32_t id;

	(void)e;
	if (job->api->read(m, "uoss", &id, &path, &unit, &result) >= 0 &&
	    strcmp(path, job->path) == 0) {
		job->is_done = true;
		(void)snprintf(job->result, sizeof(job->result), "%s", result);
	}
	return 0;
}

static int subscribe(const struct bus_api *api, sd_bus *bus)
{
	sd_bus_message *m = NULL;
	int rc = api->new_call(bus, &m, DEST, PATH, IFACE, "Subscribe");

	if (rc >= 0)
		rc = api->call(bus, m, 0, NULL, NULL);
	api->unref(m);
	return rc;
}

static int start_scope(const struct bus_api *api, sd_bus *bus, const char *unit,
		       struct job *job, struct forge_error *err)
{
	sd_bus_message *m = NULL, *reply = NULL;
	sd_bus_error e = SD_BUS_ERROR_NULL;
	int rc = api->new_call(bus, &m, DEST, PATH, IFACE, "StartTransientUnit");

	if (rc >= 0)
		rc = api->append(
			m, "ssa(sv)a(sa(sv))", unit, "fail", 5, "Description", "s",
			"forge supervisor", "Delegate", "b", 1,
			/* the default would stop us too, before we read the result */
			"OOMPolicy", "s", "continue", "CollectMode", "s",
			"inactive-or-failed", "PIDs", "au", 1, (uint32_t)getpid(), 0);
	if (rc >= 0)
		rc = api->call(bus, m, 0, &e, &reply);
	const char *path = NULL;
	if (rc >= 0)
		rc = api->read(reply, "o", &path);
	if (rc >= 0)
		(void)snprintf(job->path, sizeof(job->path), "%s", path);
	else
		rc = forge_fail(err, -rc, "start scope: %s",
				e.message ? e.message : strerror(-rc));
	api->error_free(&e);
	api->unref(m);
	api->unref(reply);
	return rc < 0 ? rc : 0;
}

static int wait_for_job(const struct bus_api *api, sd_bus *bus, struct job *job,
			struct forge_error *err)
{
	while (!job->is_done) {
		int rc = api->process(bus, NULL);
		if (rc < 0)
			return forge_fail_errno(err, -rc, "talk to systemd");
		if (rc == 0 && !job->is_done) {
			rc = api->wait(bus, 10 * 1000000ULL);
			if (rc <= 0)
				return forge_fail(err, ETIMEDOUT,
						  "systemd did not answer in 10 s");
		}
	}
	if (strcmp(job->result, "done") != 0)
		return forge_fail(err, EIO, "systemd could not start the scope: %s",
				  job->result);
	return 0;
}

static int enter_scope(const char *name, struct forge_error *err)
{
	struct bus_api api;
	struct job job = { .api = &api };
	sd_bus *bus = NULL;
	char unit[128];
	int rc = load_api(&api, err);

	if (rc < 0)
		return rc;
	(void)snprintf(unit, sizeof(unit), "%s.scope", name);
	rc = geteuid() == 0 ? api.open_system(&bus) : api.open_user(&bus);
	if (rc < 0)
		return forge_hint(
			err,
			forge_fail_errno(err, -rc, "connect to the %s manager",
					 geteuid() == 0 ? "system" : "user"),
			"There is no systemd here, or no session of yours: loginctl "
			"enable-linger $USER starts one");
	rc = api.match(bus, NULL, DEST, PATH, IFACE, "JobRemoved", on_job_removed, &job);
	if (rc >= 0)
		rc = subscribe(&api, bus);
	if (rc < 0)
		rc = forge_fail_errno(err, -rc, "subscribe to systemd");
	else
		rc = start_scope(&api, bus, unit, &job, err);
	if (rc == 0)
		rc = wait_for_job(&api, bus, &job, err);
	api.flush_close_unref(bus);
	return rc;
}

static int systemd_create(struct forge_cgroup *cg, struct forge_error *err)
{
	int rc = access("/run/systemd/system", F_OK) == 0
			 ? enter_scope(cg->name, err)
			 : forge_fail(err, ENOENT,
				      "this host was not booted with systemd");

	return rc < 0 ? rc : forge_cgroup_v2.create(cg, err);
}
#else
static int systemd_create(struct forge_cgroup *cg, struct forge_error *err)
{
	(void)cg;
	return forge_fail(err, ENOENT, "forge was built without libsystemd");
}
#endif

static int systemd_configure(struct forge_cgroup *cg, struct forge_error *err)
{
	return forge_cgroup_v2.configure(cg, err);
}

static void systemd_usage(struct forge_cgroup *cg, struct forge_cgroup_usage *u)
{
	forge_cgroup_v2.usage(cg, u);
}

const struct forge_cgroup_ops forge_cgroup_systemd = {
	.name = "systemd",
	.create = systemd_create,
	.configure = systemd_configure,
	.usage = systemd_usage,
};
