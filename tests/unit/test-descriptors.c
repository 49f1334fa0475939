/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every system call below fails once, in turn: no function leaves a descriptor open then, and at no
 * moment is there one that a new program would inherit. Link with -Wl,--wrap for each of them.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "config/config.h"
#include "executor/workdir.h"
#include "record/gc.h"
#include "run/admit.h"
#include "run/collect.h"
#include "run/export.h"
#include "runtime/conda.h"
#include "state/queue.h"
#include "state/slot.h"
#include "state/supervisor.h"

#define FDS_MAX 64

/* ---- calls that fail */

static bool is_armed, was_open[FDS_MAX];
static unsigned before_failure;

static unsigned count_fds(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < FDS_MAX; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void remember_fds(void)
{
	for (int fd = 0; fd < FDS_MAX; fd++)
		was_open[fd] = fcntl(fd, F_GETFD) >= 0;
}

static void check_cloexec(const char *call)
{
	int code = errno; /* readdir() leaves it alone at the end */

	for (int fd = 0; fd < FDS_MAX; fd++) {
		int flags = was_open[fd] ? -1 : fcntl(fd, F_GETFD);
		if (flags >= 0 && !(flags & FD_CLOEXEC))
			fail_msg("%s: descriptor %d is not close-on-exec", call, fd);
	}
	errno = code;
}

static bool fails_now(const char *call)
{
	if (!is_armed)
		return false;
	check_cloexec(call);
	if (before_failure-- > 0)
		return false;
	is_armed = false;
	errno = EIO;
	return true;
}

/* WRAP(TYPE, FAILED, NAME, (PARAMETERS), (ARGUMENTS)) */
#define WRAP(type, failed, name, parameters, arguments)                                  \
	type __real_##name parameters;                                                   \
	type __wrap_##name parameters;                                                   \
	type __wrap_##name parameters                                                    \
	{                                                                                \
		return fails_now(#name) ? (failed) : __real_##name arguments;            \
	}

WRAP(int, -1, open64, (const char *path, int flags, mode_t mode), (path, flags, mode))
WRAP(int, -1, openat64, (int dir, const char *path, int flags, mode_t mode),
     (dir, path, flags, mode))
WRAP(int, -1, fstat64, (int fd, struct stat *st), (fd, st))
WRAP(int, -1, flock, (int fd, int how), (fd, how))
WRAP(int, -1, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
WRAP(int, -1, symlinkat, (const char *to, int dir, const char *path), (to, dir, path))
WRAP(int, -1, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask))
WRAP(DIR *, NULL, fdopendir, (int fd), (fd))
WRAP(struct dirent *, NULL, readdir64, (DIR *d), (d))
WRAP(long, -1, syscall, (long n, long a, long b, long c, long d, long e, long f),
     (n, a, b, c, d, e, f))

/* What is closed in a thread is closed at once. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*work)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*work)(void *), void *arg)
{
	(void)thread;
	(void)attr;
	(void)work;
	(void)arg;
	return EAGAIN;
}

/* Calls attempt with each call failing in turn, until none fails. */
static void no_descriptor_stays(void (*attempt)(void))
{
	unsigned n = 0;
	bool has_failed = true;

	attempt(); /* what is opened once and kept is open now */
	remember_fds();
	unsigned before = count_fds();
	for (; has_failed; n++) {
		before_failure = n;
		is_armed = true;
		attempt();
		has_failed = !is_armed;
		is_armed = false;
		if (count_fds() != before)
			fail_msg("call %u failed: %u descriptors before, %u after", n, before,
				 count_fds());
	}
	/* The last attempt made all its calls. */
	assert_true(n > 5);
}

/* ---- a home of its own */

static char top[64];
static struct forge_home home = FORGE_HOME_INIT;
static struct forge_config *config;

static const char *below(const char *name)
{
	static char path[4][128];
	static unsigned next;
	char *p = path[next++ % 4];

	(void)snprintf(p, sizeof(path[0]), "%s/%s", top, name);
	return p;
}

static void write_text(const char *name, const char *text)
{
	forge_auto_file FILE *f = fopen(below(name), "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
}

static void make_dir(const char *name)
{
	assert_int_equal(mkdir(below(name), 0700), 0);
}

static int make(void **state)
{
	static const char text[] = "queue: {max_wait: 1ms}\nhost: {budget: {memory: 1G, cpus: 1}}\n";

	(void)state;
	(void)snprintf(top, sizeof(top), "/tmp/forge-unit-XXXXXX");
	assert_non_null(mkdtemp(top));
	assert_int_equal(setenv("FORGE_HOME", below("home"), 1), 0);
	assert_int_equal(forge_home_open(true, &home, NULL), 0);
	return forge_config_parse(text, strlen(text), "test", top, &config, NULL);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static void remove_all(const char *path)
{
	if (access(path, F_OK) == 0)
		assert_int_equal(nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static int unmake(void **state)
{
	(void)state;
	is_armed = false;
	forge_config_free(config);
	forge_home_close(&home);
	remove_all(top);
	return 0;
}

/* ---- the functions */

static void use_workdir(void)
{
	struct forge_workdir w = { .fd = -1 };
	static char dir[80];
	static char *words[] = { (char *)"a/b/c", (char *)"/x", (char *)"d", (char *)"/y" };
	const struct forge_strv links = { .v = words, .n = 4 };

	(void)snprintf(dir, sizeof(dir), "%s", below("work"));
	if (forge_workdir_make(dir, &home, 0, &w, NULL) == 0) {
		(void)!forge_workdir_fill(&w, &links, geteuid(), getegid(), NULL);
		forge_workdir_close(&w);
	} else {
		assert_int_equal(w.fd, -1);
	}
	remove_all(dir);
}

static void a_workdir(void **state)
{
	(void)state;
	no_descriptor_stays(use_workdir);
}

static const struct forge_need need = { .memory_bytes = 1 << 30, .cpus_milli = 1000, .run_id = "one" };

static bool keep(void *arg, const char *name)
{
	(void)arg, (void)name;
	return false;
}

/* The second has no room: it waits in line until its time is over. */
static void queue_up(void)
{
	struct forge_share one = FORGE_SHARE_INIT, two = FORGE_SHARE_INIT;
	struct forge_ticket t = FORGE_TICKET_INIT;
	struct forge_need other = need;

	other.run_id = "two";
	other.slot = 1;
	(void)!forge_admit_try(&home, config, &need, &one, NULL);
	if (forge_admit_queue(&home, config, &other, -1, &t, NULL) == 0)
		(void)!forge_admit_take(&t, -1, &two, NULL);
	(void)!forge_queue_sweep(&home, keep, NULL, NULL);
	forge_admit_leave(&t);
	forge_admit_release(&two);
	forge_admit_release(&one);
}

static void the_queue(void **state)
{
	(void)state;
	no_descriptor_stays(queue_up);
}

static void collect_garbage(void)
{
	char url[128];

	(void)snprintf(url, sizeof(url), "sqlite:%s", below("home/forge.db"));
	(void)!forge_gc(config, url, NULL, false, NULL);
}

static void gc(void **state)
{
	static const char *const dirs[] = { "home/staging", "home/staging/x", "home/cache", "home/undelivered",
					    "home/objects", "home/objects/ab" };

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++)
		make_dir(dirs[i]);
	make_dir("home/runs/00000000000000000000000001");
	write_text("home/runs/00000000000000000000000001/record.json", "{\"status\": \"succeeded\"}");
	no_descriptor_stays(collect_garbage);
}

#define RUN "00000000000000000000000002"

static void find_supervisor(void)
{
	struct forge_supervisor_ref l = FORGE_SUPERVISOR_REF_INIT;

	if (forge_supervisor_find(&home, RUN, &l, NULL) == 0)
		assert_int_equal(l.pid, getpid());
	forge_supervisor_close(&l);
	(void)forge_slot_exists(&home, RUN);
	json_decref(forge_slot_record(&home, RUN));
}

static void supervisors(void **state)
{
	struct forge_slot a = FORGE_SLOT_INIT;
	unsigned attempt = 0;

	(void)state;
	assert_int_equal(forge_slot_claim(&home, &attempt, 4, &a, NULL), 0);
	const struct forge_slot_run run = { .run_id = RUN, .store = "", .executor = "local", .executor_kind = "local" };
	assert_int_equal(forge_slot_begin(&a, &run, NULL), 0);
	no_descriptor_stays(find_supervisor);
	forge_slot_close(&a);
}

static void list_packages(void)
{
	struct forge_packages p = { 0 };

	(void)!forge_conda_packages(below("env"), &p, NULL);
	forge_packages_done(&p);
}

static void conda_packages(void **state)
{
	static const char *const dirs[] = { "env",
					    "env/conda-meta",
					    "env/lib",
					    "env/lib/python3.11",
					    "env/lib/python3.11/site-packages",
					    "env/lib/python3.11/site-packages/b-1.dist-info" };

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(dirs); i++)
		make_dir(dirs[i]);
	write_text("env/conda-meta/a.json", "{\"name\": \"a\", \"version\": \"1\"}");
	write_text("env/lib/python3.11/site-packages/b-1.dist-info/METADATA", "Name: b\n");
	write_text("env/lib/python3.11/site-packages/b-1.dist-info/RECORD", "b,,\n");
	no_descriptor_stays(list_packages);
}

static json_t *record;

/* Into a directory that is not there yet, and into one that is. */
static int export_to(const char *to)
{
	const struct forge_export how = { .to = to, .stop_fd = -1 };

	return forge_export_outputs(&home, record, &how, NULL);
}

static void export_outputs(void)
{
	char to[80];

	(void)snprintf(to, sizeof(to), "%s", below("to"));
	(void)!export_to(to);
	remove_all(to);
	make_dir("to");
	(void)!export_to(to);
	remove_all(to);
}

static void exports(void **state)
{
	static char *words[] = { (char *)"**" };
	const struct forge_strv patterns = { .v = words, .n = 1 }, links = { 0 };
	struct forge_objects objects = FORGE_OBJECTS_INIT;
	struct forge_collected c;

	(void)state;
	make_dir("from");
	make_dir("from/a");
	make_dir("from/a/b");
	write_text("from/a/b/c", "content");
	write_text("from/d", "other");
	int fd = open(below("from"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct forge_collect_spec spec = { .workdir_fd = fd,
					   .patterns = &patterns,
					   .links = &links,
					   .max_bytes = UINT64_MAX,
					   .max_files = 10,
					   .max_holes = UINT64_MAX,
					   .stop_fd = -1 };
	assert_int_equal(forge_objects_open(&home, -1, &objects, NULL), 0);
	assert_int_equal(forge_collect(&spec, &objects, &c, NULL), 0);
	assert_string_equal(c.problem, "");
	record = json_pack("{s:O}", "outputs", c.outputs);
	assert_int_equal(export_to(below("to")), 2);
	remove_all(below("to"));
	no_descriptor_stays(export_outputs);
	json_decref(record);
	forge_collected_done(&c);
	forge_objects_close(&objects);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_workdir, make, unmake),
		cmocka_unit_test_setup_teardown(the_queue, make, unmake),
		cmocka_unit_test_setup_teardown(gc, make, unmake),
		cmocka_unit_test_setup_teardown(supervisors, make, unmake),
		cmocka_unit_test_setup_teardown(conda_packages, make, unmake),
		cmocka_unit_test_setup_teardown(exports, make, unmake),
	};

	return cmocka_run_group_tests_name("descriptors", tests, NULL, NULL);
}
