/* SPDX-License-Identifier: Apache-2.0 */
/* Judges how a run ended, in a sentence that tells the user what to do. */
#include "record/judge.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

const char *const forge_reasons[] = {
	"exit",	  "signal",	    "wall_time",  "cpu_time",	 "memory",    "disk",
	"output", "pids",	    "cancelled",  "exec",	 "sandbox",   "runtime",
	"input",  "missing_output", "health_pre", "health_post", "host_lost", "admission",
	NULL,
};

static void set(struct forge_verdict *v, const char *status, const char *reason,
		int exit_status)
{
	v->status = status;
	v->reason = reason;
	v->exit_status = exit_status;
}

static const char *wall(char buf[FORGE_FORMAT_MAX], const struct forge_outcome *o)
{
	return forge_format_duration(buf, o->wall_usec);
}

/* An option's value for a retry: twice the limit, or twice the usage if that is more. */
static const char *more(char buf[FORGE_FORMAT_MAX], uint64_t limit, uint64_t used)
{
	uint64_t base = used != UINT64_MAX && used / 2 > limit ? used : limit;

	return forge_format_size_arg(buf, base > UINT64_MAX / 2 - 1 ? base : base * 2);
}

static void judge_memory(const struct forge_outcome *o, const struct forge_limits *l,
			 struct forge_verdict *v)
{
	char peak[FORGE_FORMAT_MAX], lim[FORGE_FORMAT_MAX], t[FORGE_FORMAT_MAX],
		m[FORGE_FORMAT_MAX], largest[64] = "";

	set(v, "killed", "memory", 137);
	uint64_t used = o->memory_peak_bytes == UINT64_MAX ? l->memory_bytes
							   : o->memory_peak_bytes;
	forge_format_size(peak, used);
	forge_format_size(lim, l->memory_bytes);
	if (o->largest_bytes)
		(void)snprintf(largest, sizeof(largest), " (largest: %s %s)",
			       o->largest_name, forge_format_size(m, o->largest_bytes));
	if (o->kernel_memory_bytes)
		(void)snprintf(
			v->notes, sizeof(v->notes),
			"Killed: memory: it took %s of the host's kernel memory in %s "
			"that no limit counts (sockets, locks and the like), beside "
			"%s of its %s. Make fewer of them.",
			forge_format_size(m, o->kernel_memory_bytes), wall(t, o), peak,
			lim);
	else if (o->oom_elsewhere)
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Killed: the host ran out of memory after %s while this "
			       "run used %s of "
			       "its %s. Free memory on the host, or run less at once.",
			       wall(t, o), peak, lim);
	else
		(void)snprintf(
			v->notes, sizeof(v->notes),
			"Killed: memory %s of %s after %s%s. Retry with --memory %s.",
			peak, lim, wall(t, o), largest,
			more(m, l->memory_bytes, o->memory_peak_bytes));
}

static void judge_time(const struct forge_outcome *o, const struct forge_limits *l,
		       struct forge_verdict *v)
{
	bool is_wall = o->stop == FORGE_STOP_WALL;
	uint64_t lim = is_wall ? l->wall_usec : l->cpu_usec;
	char a[FORGE_FORMAT_MAX], b[FORGE_FORMAT_MAX], c[FORGE_FORMAT_MAX];

	set(v, "killed", is_wall ? "wall_time" : "cpu_time", 124);
	uint64_t used = is_wall ? o->wall_usec : o->cpu_usec;
	(void)snprintf(v->notes, sizeof(v->notes),
		       "Killed: %s %s of %s. Retry with --%s %s.",
		       is_wall ? "ran" : "CPU time", forge_format_duration(a, used),
		       forge_format_duration(b, lim), is_wall ? "timeout" : "cpu-time",
		       forge_format_duration_arg(c, lim * 2));
}

static void judge_disk(const struct forge_outcome *o, const struct forge_limits *l,
		       struct forge_verdict *v)
{
	char a[FORGE_FORMAT_MAX], b[FORGE_FORMAT_MAX], c[FORGE_FORMAT_MAX],
		t[FORGE_FORMAT_MAX];

	set(v, "killed", "disk", 137);
	if (o->is_too_deep)
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Killed: directories nested more than 256 deep in the "
			       "workdir after %s.",
			       wall(t, o));
	else if (o->inodes_peak > l->inodes)
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Killed: %" PRIu64 " files of %" PRIu64
			       " in the workdir after %s. Retry "
			       "with --inodes %" PRIu64 ".",
			       o->inodes_peak, l->inodes, wall(t, o), l->inodes * 2);
	else
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Killed: disk %s of %s after %s. Retry with --disk %s.",
			       forge_format_size(a, o->disk_peak_bytes),
			       forge_format_size(b, l->disk_bytes), wall(t, o),
			       more(c, l->disk_bytes, o->disk_peak_bytes));
}

static void judge_output(const struct forge_outcome *o, const struct forge_limits *l,
			 struct forge_verdict *v)
{
	char a[FORGE_FORMAT_MAX], b[FORGE_FORMAT_MAX], t[FORGE_FORMAT_MAX];

	set(v, "killed", "output", 137);
	(void)snprintf(
		v->notes, sizeof(v->notes),
		"Killed: more than %s on %s after %s; the log is cut there. Retry with "
		"--output-limit %s, or print less.",
		forge_format_size(a, l->output_bytes),
		o->is_truncated[0] ? "stdout" : "stderr", wall(t, o),
		more(b, l->output_bytes, 0));
}

static void judge_start(const struct forge_outcome *o, struct forge_verdict *v)
{
	const struct forge_error *e = &o->start_error;

	if (!o->is_exec_failure) {
		set(v, "failed", "sandbox", 125);
		(void)snprintf(v->notes, sizeof(v->notes), "Sandbox failed: %s.%s%s",
			       e->msg, *e->hint ? " " : "", e->hint);
		return;
	}
	set(v, "failed", "exec", e->code == ENOENT ? 127 : 126);
	const char *hint =
		e->code == ENOENT ? " It is not in the sandbox, or its interpreter (#!) "
				    "is not; give it with -i."
		: e->code == EACCES  ? " It is not an executable file."
		: e->code == ENOEXEC ? " It is neither a program nor a script with #!."
				     : "";
	(void)snprintf(v->notes, sizeof(v->notes), "Not started: %s.%s", e->msg, hint);
}

/*
 * A limit that does not kill by itself and that the run met, NULL: none. If the run
 * failed, this is the reason.
 */
static const char *soft_limit(const struct forge_outcome *o, const struct forge_limits *l)
{
	if (o->pids_refused > 0)
		return "pids";
	/* A quota refuses the write that would exceed it, so the usage stays below. */
	if (l->disk_bytes != FORGE_UNLIMITED && o->disk_peak_bytes != UINT64_MAX &&
	    o->disk_peak_bytes >= l->disk_bytes / 100 * 99)
		return "disk";
	if (l->inodes != FORGE_UNLIMITED && o->inodes_peak != UINT64_MAX &&
	    o->inodes_peak >= l->inodes)
		return "disk";
	return NULL;
}

static void judge_failure(const struct forge_outcome *o, const struct forge_limits *l,
			  struct forge_verdict *v, const char *how)
{
	char t[FORGE_FORMAT_MAX], b[FORGE_FORMAT_MAX];
	const char *soft = soft_limit(o, l);

	v->status = "failed";
	if (soft && strcmp(soft, "pids") == 0) {
		v->reason = soft;
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Failed: %s after %s; %" PRIu64
			       " new process%s refused at the limit "
			       "of %" PRIu64 ". Retry with --pids %" PRIu64 ".",
			       how, wall(t, o), o->pids_refused,
			       o->pids_refused == 1 ? " was" : "es were", l->pids,
			       l->pids * 2);
	} else if (soft) {
		v->reason = soft;
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Failed: %s after %s with the disk limit of %s used up. "
			       "Retry with --disk "
			       "%s.",
			       how, wall(t, o), forge_format_size(b, l->disk_bytes),
			       more((char[FORGE_FORMAT_MAX]){ 0 }, l->disk_bytes, 0));
	} else if (o->sockets_refused) {
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Failed: %s after %s; %" PRIu64
			       " new socket%s refused at the limit of %" PRIu64
			       ", a quarter of it for datagrams. Retry with --sockets "
			       "%" PRIu64 ".",
			       how, wall(t, o), o->sockets_refused,
			       o->sockets_refused == 1 ? " was" : "s were", l->sockets,
			       l->sockets * 2);
	} else {
		(void)snprintf(v->notes, sizeof(v->notes), "Failed: %s after %s.", how,
			       wall(t, o));
	}
}

static void judge_status(const struct forge_outcome *o, const struct forge_limits *l,
			 struct forge_verdict *v)
{
	char t[FORGE_FORMAT_MAX], m[FORGE_FORMAT_MAX], lim[FORGE_FORMAT_MAX], how[128];

	if (WIFSIGNALED(o->wait_status)) {
		v->signal = WTERMSIG(o->wait_status);
		v->exit_status = 128 + v->signal;
		v->reason = "signal";
		if (v->signal == SIGXFSZ) {
			judge_disk(o, l, v);
			return;
		}
		(void)snprintf(how, sizeof(how), "died of signal %d (%s)%s", v->signal,
			       strsignal(v->signal),
			       v->signal == SIGSYS ? ", a system call of a foreign ABI"
						   : "");
		judge_failure(o, l, v, how);
		return;
	}
	v->exit_code = WEXITSTATUS(o->wait_status);
	v->exit_status = v->exit_code;
	v->reason = "exit";
	if (v->exit_code != 0) {
		(void)snprintf(how, sizeof(how), "exit code %d", v->exit_code);
		judge_failure(o, l, v, how);
		return;
	}
	v->status = "succeeded";
	/*
	 * The command may have coped with the limit or not noticed it; the reader of the
	 * notes should know.
	 */
	const char *met = soft_limit(o, l);
	if (met) {
		(void)snprintf(
			v->notes, sizeof(v->notes),
			"Succeeded in %s, but met its limit on %s: look at the log.",
			wall(t, o), strcmp(met, "pids") == 0 ? "processes" : "disk");
		return;
	}
	if (o->memory_peak_bytes == UINT64_MAX)
		(void)snprintf(v->notes, sizeof(v->notes), "Succeeded in %s.",
			       wall(t, o));
	else
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Succeeded in %s (memory %s of %s).", wall(t, o),
			       forge_format_size(m, o->memory_peak_bytes),
			       forge_format_size(lim, l->memory_bytes));
}

/* The cluster ended it, and forge there could measure nothing: its words are all there is. */
static void judge_explained(const struct forge_outcome *o, struct forge_verdict *v)
{
	if (o->stop == FORGE_STOP_MEMORY)
		set(v, "killed", "memory", 137);
	else if (o->stop == FORGE_STOP_WALL)
		set(v, "killed", "wall_time", 124);
	else
		set(v, "cancelled", "cancelled", 130);
	(void)snprintf(v->notes, sizeof(v->notes), "%s: %s.",
		       o->stop == FORGE_STOP_CANCEL ? "Cancelled" : "Killed",
		       o->explanation);
}

void forge_judge(const struct forge_outcome *o, const struct forge_limits *l,
		 struct forge_verdict *v)
{
	char t[FORGE_FORMAT_MAX];

	*v = (struct forge_verdict){ .exit_code = -1 };
	if (o->start_error.code) {
		judge_start(o, v);
		return;
	}
	if (o->has_status && WIFSIGNALED(o->wait_status))
		v->signal = WTERMSIG(o->wait_status);
	else if (o->has_status)
		v->exit_code = WEXITSTATUS(o->wait_status);
	if (o->explanation[0] && o->has_started && o->stop != FORGE_STOP_NONE) {
		judge_explained(o, v);
		return;
	}
	/* -Wswitch-enum: a new cause must be judged here. */
	switch (o->stop) {
	case FORGE_STOP_WALL:
	case FORGE_STOP_CPU:
		judge_time(o, l, v);
		return;
	case FORGE_STOP_MEMORY:
		judge_memory(o, l, v);
		return;
	case FORGE_STOP_DISK:
		judge_disk(o, l, v);
		return;
	case FORGE_STOP_OUTPUT:
		judge_output(o, l, v);
		return;
	case FORGE_STOP_CANCEL:
		set(v, "cancelled", "cancelled", 130);
		if (o->cluster[0] && !o->has_started)
			(void)snprintf(v->notes, sizeof(v->notes),
				       "Cancelled while it was queued.");
		else
			(void)snprintf(v->notes, sizeof(v->notes), "Cancelled after %s.",
				       wall(t, o));
		return;
	case FORGE_STOP_PENDING:
		set(v, "cancelled", "admission", 125);
		(void)snprintf(v->notes, sizeof(v->notes), "Cancelled: %s.",
			       o->explanation);
		return;
	case FORGE_STOP_NONE:
		break;
	}
	if (o->oom_kills > 0) {
		judge_memory(o, l, v);
	} else if (o->has_status) {
		judge_status(o, l, v);
	} else {
		set(v, "lost", "host_lost", 137);
		if (o->explanation[0])
			(void)snprintf(v->notes, sizeof(v->notes),
				       "Lost: %s, and it left no result.",
				       o->explanation);
		else
			(void)snprintf(v->notes, sizeof(v->notes),
				       "Lost: something outside of forge killed the run "
				       "after %s.",
				       wall(t, o));
	}
}

void forge_judge_refused(const struct forge_error *err, struct forge_verdict *v)
{
	*v = (struct forge_verdict){ .exit_code = -1 };
	set(v, "rejected", "sandbox", 125);
	(void)snprintf(v->notes, sizeof(v->notes), "Not started: %s.%s%s", err->msg,
		       *err->hint ? " " : "", err->hint);
}

void forge_judge_unhealthy(const char *why, struct forge_verdict *v)
{
	*v = (struct forge_verdict){ .exit_code = -1 };
	set(v, "rejected", "health_pre", 125);
	(void)snprintf(v->notes, sizeof(v->notes),
		       "Not started: this host is not healthy: %s.", why);
}

void forge_judge_corrupted(const char *what, struct forge_verdict *v)
{
	char before[sizeof(v->notes)];

	if (strcmp(v->status, "corrupted") == 0) {
		forge_judge_add(v, "Also: %s.", what);
		return;
	}
	(void)snprintf(before, sizeof(before), "%s", v->notes);
	v->status = "corrupted";
	v->reason = "health_post";
	v->exit_status = v->exit_status ? v->exit_status : 1;
	(void)snprintf(v->notes, sizeof(v->notes), "Corrupted: %s.", what);
	forge_judge_add(v, "The command itself: %s", before);
}

void forge_judge_missing_output(const char *text, struct forge_verdict *v)
{
	v->status = "failed";
	v->reason = "missing_output";
	v->exit_status = 1;
	(void)snprintf(v->notes, sizeof(v->notes),
		       "Failed: the command succeeded, but %s.", text);
}

void forge_judge_other_facts(const char *reason, const char *text,
			     struct forge_verdict *v)
{
	v->status = "failed";
	v->reason = reason;
	v->exit_status = 1;
	(void)snprintf(v->notes, sizeof(v->notes),
		       "Failed: the command succeeded, but %s while it ran.", text);
}

void forge_judge_add(struct forge_verdict *v, const char *fmt, ...)
{
	size_t len = strlen(v->notes);
	va_list ap;

	if (len + 2 > sizeof(v->notes))
		return;
	v->notes[len] = ' ';
	va_start(ap, fmt);
	int n = vsnprintf(v->notes + len + 1, sizeof(v->notes) - len - 1, fmt, ap);
	va_end(ap);
	/* A sentence that has no room is left out, rather than cut. */
	if (n < 0 || (size_t)n >= sizeof(v->notes) - len - 1)
		v->notes[len] = '\0';
}

void forge_judge_uncollected(size_t n_stored, struct forge_verdict *v)
{
	v->status = v->reason = "cancelled";
	v->exit_status = 130;
	(void)snprintf(
		v->notes, sizeof(v->notes),
		"Cancelled: the command succeeded, but collecting its outputs was ended "
		"after %zu file%s.",
		n_stored, n_stored == 1 ? "" : "s");
}

void forge_judge_not_admitted(int rc, const struct forge_error *err,
			      struct forge_verdict *v)
{
	*v = (struct forge_verdict){ .exit_code = -1 };
	if (rc == -ECANCELED) {
		set(v, "cancelled", "cancelled", 130);
		(void)snprintf(v->notes, sizeof(v->notes),
			       "Cancelled while it was queued.");
	} else if (rc == -ETIMEDOUT) {
		set(v, "cancelled", "admission", 125);
		(void)snprintf(
			v->notes, sizeof(v->notes),
			"Cancelled: there was no room for it within queue.max_wait.");
	} else {
		set(v, "rejected", "admission", 125);
		(void)snprintf(v->notes, sizeof(v->notes), "Rejected: %s.%s%s", err->msg,
			       *err->hint ? " " : "", err->hint);
	}
}

void forge_judge_unwatched(const struct forge_error *err, struct forge_verdict *v)
{
	*v = (struct forge_verdict){ .exit_code = -1 };
	set(v, "lost", "host_lost", 137);
	(void)snprintf(v->notes, sizeof(v->notes),
		       "Lost: forge could not watch it any longer and ended it: %s.",
		       err->msg);
}
