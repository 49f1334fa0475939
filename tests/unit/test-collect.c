/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting outputs when memory runs out: see torture.h. */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "run/collect.h"
#include "torture.h"

static int collect(void *arg)
{
	static char *words[] = { (char *)"**" };
	const struct forge_strv patterns = { .v = words, .n = 1 }, links = { 0 };
	const struct forge_collect_spec spec = { .workdir_fd = *(int *)arg,
						 .patterns = &patterns,
						 .links = &links,
						 .max_bytes = 100,
						 .max_files = 10,
						 .stop_fd = -1 };
	struct forge_objects objects = FORGE_OBJECTS_INIT;
	struct forge_error err = FORGE_ERROR_INIT;
	struct forge_collected c;
	int rc = forge_collect(&spec, &objects, &c, &err);

	if (rc < 0) {
		assert_int_equal(err.code, -rc);
		assert_string_equal(err.msg, "collect outputs: out of memory");
	}
	forge_collected_done(&c);
	return rc;
}

static void a_failure_says_what_failed(void **state)
{
	char top[] = "/tmp/forge-unit-XXXXXX";

	(void)state;
	assert_non_null(mkdtemp(top));
	int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(torture(collect, &fd) >= 2);
	close(fd);
	assert_int_equal(rmdir(top), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_says_what_failed),
	};

	return cmocka_run_group_tests_name("collect", tests, NULL, NULL);
}
