/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops the server. */
#include "server/server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "config/budget.h"
#include "record/deliver.h"
#include "server/cache.h"
#include "server/command.h"
#include "server/http.h"
#include "server/listen.h"

/* How often runs whose supervisor was killed are repaired. */
#define REPAIR_USEC 15000000ULL
/* Descriptors for the store, logs that are read, programs. */
#define OTHER_FILES 150

/* ---- what followers ask ---- */

static json_t *record_of(void *arg, const char *run_id)
{
	struct forge_error err = FORGE_ERROR_INIT;
	json_t *record;

	return forge_server_record(arg, run_id, &record, &err) < 0 ? NULL : record;
}

static int log_of(void *arg, const char *run_id, const char *stream)
{
	forge_auto_json json_t *record = record_of(arg, run_id);
	struct forge_error err = FORGE_ERROR_INIT;

	return record ? forge_server_open_log(arg, record, stream, &err) : -1;
}

/* ---- start and stop ---- */

static int add_name(struct forge_server *sv, const char *name, struct forge_error *err)
{
	if (sv->n_names == FORGE_ARRAY_SIZE(sv->names))
		return forge_fail(err, E2BIG, "more than %zu names",
				  FORGE_ARRAY_SIZE(sv->names));
	sv->names[sv->n_names] = strdup(name);
	return sv->names[sv->n_names++] ? 0 : forge_fail(err, ENOMEM, "out of memory");
}

/* The address itself is a name, except one that stands for all addresses. */
static int add_names(struct forge_server *sv, const struct forge_listen *l,
		     struct forge_error *err)
{
	char host[sizeof(l->address)];
	int rc = 0;

	(void)snprintf(host, sizeof(host), "%s", l->address);
	char *colon = strrchr(host, ':');
	if (colon)
		*colon = '\0';
	if (strcmp(host, "0.0.0.0") != 0 && strcmp(host, "[::]") != 0)
		rc = add_name(sv, host, err);
	if (sv->options->names)
		forge_strv_foreach (name, sv->options->names)
			if (rc == 0)
				rc = add_name(sv, name, err);
	return rc;
}

/* Tokens are stored, or made for this link; a server that others can reach needs a stored one. */
static int make_link(struct forge_server *sv, char token[FORGE_TOKEN_MAX],
		     struct forge_error *err)
{
	json_t *list = NULL, *one;
	size_t i, n = 0;
	char now[FORGE_TIME_MAX];

	*token = '\0';
	if (sv->is_loopback) {
		if (forge_token_make(token) < 0)
			return forge_fail(err, EIO, "the kernel gives no random numbers");
		forge_token_digest(token, sv->link_digest);
		return 0;
	}
	int rc = forge_token_list(&sv->home, &list, err);
	/* One that has expired lets nobody in. */
	json_array_foreach (list, i, one)
		n += strcmp(forge_json_string_or(one, "expires_at", "9999"),
			    forge_format_now(now)) > 0;
	json_decref(list);
	if (rc == 0 && n == 0)
		return forge_hint(
			err,
			forge_fail(
				err, EPERM,
				"others can reach this address, and there is no token"),
			"`forge token new` makes one");
	return rc;
}

/*
 * Each follower has two descriptors, each other connection one. What a service manager or a shell allows is often less than
 * what is needed, and may be raised.
 */
static void count_descriptors(struct forge_server *sv)
{
	const rlim_t wanted =
		2 * FORGE_FOLLOWERS_MAX + FORGE_CONNECTIONS_MAX + OTHER_FILES;
	struct rlimit l;

	sv->connections_max = FORGE_CONNECTIONS_MAX;
	if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur >= wanted)
		return;
	l.rlim_cur = l.rlim_max < wanted ? l.rlim_max : wanted;
	if (setrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur >= wanted)
		return;
	/* With few of them, as many connections as all can be followers. */
	sv->connections_max = l.rlim_cur > 2 * OTHER_FILES
				      ? (unsigned)((l.rlim_cur - OTHER_FILES) / 3)
				      : OTHER_FILES / 3;
}

/* Another forge repairs what killed supervisors left, as each command does. */
static void repair(struct forge_server *sv)
{
	forge_auto_strv struct forge_strv words = { 0 };
	struct forge_command_result r;
	struct forge_error err = FORGE_ERROR_INIT;

	if (forge_strv_add(&words, "ps") < 0 || forge_strv_add(&words, "--running") < 0 ||
	    forge_strv_add(&words, "--limit=1") < 0 || forge_strv_add(&words, "-q") < 0 ||
	    forge_command_run(sv, &words, 60, &r, &err) < 0)
		return; /* the next one tries again */
	forge_command_done(&r);
}

/* A store that does not answer must not keep the server from its end, or from its ticks. */
static void *repair_now_and_then(void *arg)
{
	struct forge_server *sv = arg;

	while (!atomic_load(&sv->is_ending)) {
		struct pollfd p = { .fd = sv->end_fd, .events = POLLIN };
		if (poll(&p, 1, (int)(REPAIR_USEC / 1000)) == 0)
			repair(sv);
	}
	return NULL;
}

/* Until a signal ends it. */
static int wait_for_end(struct forge_http *http, int signals)
{

	for (;;) {
		struct pollfd p = { .fd = signals, .events = POLLIN };
		struct signalfd_siginfo info;
		int n = poll(&p, 1, 1000);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0 && read(signals, &info, sizeof(info)) == sizeof(info))
			return 0;
		forge_http_tick(http);
	}
}

static int serve(struct forge_server *sv, struct forge_listen *l, int signals,
		 struct forge_error *err)
{
	char token[FORGE_TOKEN_MAX], address[sizeof(l->address) + 16];
	struct forge_http *http;
	int rc = make_link(sv, token, err);

	if (rc == 0)
		rc = forge_http_start(sv, l->fd, l->n, &http, err);
	if (rc < 0)
		return rc;
	l->n = 0; /* it closes them */
	(void)snprintf(address, sizeof(address), "http://%s", l->address);
	if (sv->options->on_ready)
		sv->options->on_ready(address, token, sv->is_loopback);
	explicit_bzero(token, sizeof(token));
	pthread_t repairs;
	int code = pthread_create(&repairs, NULL, repair_now_and_then, sv);
	rc = code ? -code : wait_for_end(http, signals);
	forge_http_stop(http);
	atomic_store(&sv->is_ending, true);
	(void)eventfd_write(sv->end_fd, 1); /* cannot block: it is written once */
	if (!code)
		(void)pthread_join(repairs, NULL);
	return rc < 0 ? forge_fail_errno(err, -rc, "wait for requests") : 0;
}

static void done(struct forge_server *sv)
{
	forge_follow_stop(sv->follow);
	for (size_t i = 0; i < sv->n_stores; i++)
		forge_store_close(sv->stores[i]);
	for (size_t i = 0; i < sv->n_names; i++)
		free(sv->names[i]);
	forge_cache_free(sv->cache);
	forge_tokens_done(&sv->tokens);
	free(sv->url);
	free(sv->shown_url);
	forge_home_close(&sv->home);
	if (sv->end_fd >= 0)
		close(sv->end_fd);
	pthread_mutex_destroy(&sv->tokens_lock);
	pthread_mutex_destroy(&sv->stores_lock);
	pthread_mutex_destroy(&sv->counts_lock);
	pthread_mutex_destroy(&sv->checked_lock);
	json_decref(sv->counts);
	json_decref(sv->health);
}

/* Every thread inherits that these signals are blocked, so one descriptor gets them. */
static int catch_signals(struct forge_error *err)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	int code = pthread_sigmask(SIG_BLOCK, &set, NULL);
	int fd = code ? -1 : signalfd(-1, &set, SFD_CLOEXEC);
	return fd < 0 ? forge_fail_errno(err, code ? code : errno, "wait for signals")
		      : fd;
}

int forge_server_run(const struct forge_config *cfg,
		     const struct forge_server_options *options, struct forge_error *err)
{
	struct forge_server sv = { .cfg = cfg,
				   .options = options,
				   .home = FORGE_HOME_INIT,
				   .end_fd = -1,
				   .started_usec = forge_now_usec() };
	struct forge_listen l = { .n = 0 };
	forge_auto_close int signals = catch_signals(err);
	int rc = signals < 0 ? signals : 0;

	(void)pthread_mutex_init(&sv.tokens_lock, NULL); /* never fails on Linux */
	(void)pthread_mutex_init(&sv.stores_lock, NULL);
	(void)pthread_mutex_init(&sv.counts_lock, NULL);
	(void)pthread_mutex_init(&sv.checked_lock, NULL);
	sv.follow_ops = (struct forge_follow_ops){
		.record = record_of, .open_log = log_of, .arg = &sv, .home = &sv.home
	};
	if (rc == 0)
		rc = forge_home_open(true, &sv.home, err);
	if (rc == 0)
		rc = forge_store_choose(options->store, cfg, &sv.url, err);
	if (rc == 0 && (!(sv.shown_url = forge_store_display(sv.url)) ||
			!(sv.cache = forge_cache_new())))
		rc = forge_fail(err, ENOMEM, "out of memory");
	if (rc == 0 && getrandom(sv.ticket_key, sizeof(sv.ticket_key), 0) !=
			       (ssize_t)sizeof(sv.ticket_key))
		rc = forge_fail(err, EIO, "the kernel gives no random numbers");
	if (rc == 0)
		rc = forge_listen_open(options->listen, &l, err);
	sv.is_loopback = l.is_loopback;
	sv.has_names = options->names && options->names->n > 0;
	count_descriptors(&sv);
	sv.end_fd = eventfd(0, EFD_CLOEXEC);
	if (rc == 0 && sv.end_fd < 0)
		rc = forge_fail_errno(err, errno, "wait for the end");
	if (rc == 0)
		rc = add_names(&sv, &l, err);
	/* It measures the host once, and that is not for several threads. */
	struct forge_budget measured;
	forge_budget_of(cfg, &measured);
	if (rc == 0)
		rc = forge_follow_start(&sv.follow_ops, &sv.follow, err);
	if (rc == 0)
		rc = serve(&sv, &l, signals, err);
	forge_listen_close(&l);
	done(&sv);
	return rc;
}
