/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the files of FORGE_HOME that say what runs, waits and is left; changes none of them. */
#include "server/metrics_host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/entries.h"
#include "base/json.h"
#include "executor/executor.h"
#include "run/admit.h"
#include "state/quarantine.h"
#include "state/slot.h"

/* What runs left whose supervisor is gone, and which the next forge command repairs or resumes. */
struct left {
	double slots, workdirs, cgroups;
};

static double is_there(const char *path)
{
	struct stat st;

	return path && lstat(path, &st) == 0;
}

/*
 * A supervisor locks its slot before it writes into it, and empties it before it releases the lock. A run on
 * another machine needs no supervisor here.
 */
static void add_slot(int dir, const char *name, struct left *ret)
{
	forge_auto_close int fd =
		openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	forge_auto_json json_t *slot = NULL;
	struct stat st;
	size_t i;
	const json_t *path;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0 ||
	    flock(fd, LOCK_SH | LOCK_NB) < 0)
		return;
	/* Again with the lock: the supervisor may have ended between the two. */
	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return;
	if (forge_slot_read(fd, &slot) == 0 && (!slot || forge_slot_is_remote(slot)))
		return;
	ret->slots++;
	ret->workdirs += is_there(forge_json_string(slot, "workdir"));
	json_array_foreach (json_object_get(slot, "cgroups"), i, path)
		ret->cgroups += is_there(json_string_value(path));
}

static int find_left(const struct forge_home *home, struct left *ret,
		     struct forge_error *err)
{
	forge_auto_entries struct forge_entries d = FORGE_ENTRIES_INIT;

	(void)forge_entries_open(&d, home->active_fd, "."); /* d keeps the error */
	for (const char *name; (name = forge_entries_next(&d));)
		add_slot(forge_entries_fd(&d), name, ret);
	return d.error ? forge_fail_errno(err, -d.error, "read %s/active", home->path)
		       : 0;
}

static void print_load(const struct forge_metrics_page *p, const struct forge_load *l)
{
	forge_metric_gauge(p, "forge_budget_memory_bytes", "bytes",
			   "Memory that all runs of this host may have together",
			   (double)l->budget.memory_bytes);
	forge_metric_gauge(p, "forge_budget_memory_used_bytes", "bytes",
			   "Memory that running runs are allowed",
			   (double)l->used.memory_bytes);
	forge_metric_gauge(p, "forge_budget_cpus", NULL,
			   "CPUs that all runs of this host may have together",
			   (double)l->budget.cpus_milli / 1000);
	forge_metric_gauge(p, "forge_budget_cpus_used", NULL,
			   "CPUs that running runs are allowed",
			   (double)l->used.cpus_milli / 1000);
	forge_metric_gauge(p, "forge_budget_runs_used", NULL,
			   "Runs that have a share of this host", (double)l->used.runs);
	forge_metric_gauge(p, "forge_queue_length", NULL,
			   "Runs that wait for a share of this host", (double)l->queued);
	forge_metric_gauge(p, "forge_queue_oldest_wait_seconds", "seconds",
			   "How long the run has waited that waits longest",
			   (double)l->oldest_wait_usec / 1e6);
}

static void print_left(const struct forge_metrics_page *p, const struct left *l)
{
	forge_metric_gauge(p, "forge_leaked_slots", NULL,
			   "Runs whose supervisor is gone and that are not repaired yet",
			   l->slots);
	forge_metric_gauge(p, "forge_leaked_workdirs", NULL,
			   "Workdirs that such runs left", l->workdirs);
	forge_metric_gauge(p, "forge_leaked_cgroups", NULL,
			   "Control groups that such runs left", l->cgroups);
}

int forge_metrics_of_host(const struct forge_metrics_page *p,
			  const struct forge_home *home, const struct forge_config *cfg,
			  struct forge_error *err)
{
	struct forge_load load;
	struct left left = { 0 };
	uint64_t n = 0;
	int rc = forge_admit_load(home, cfg, &load, err), bad = rc;

	if (rc == 0)
		print_load(p, &load);
	rc = find_left(home, &left, err);
	if (rc == 0)
		print_left(p, &left);
	bad = rc < 0 ? rc : bad;
	rc = forge_quarantine_count(home, &n, err);
	if (rc == 0)
		forge_metric_gauge(p, "forge_quarantined_runs", NULL,
				   "Runs that have changed guarded files and are not "
				   "cleared",
				   (double)n);
	return rc < 0 ? rc : bad;
}
