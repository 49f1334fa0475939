/* SPDX-License-Identifier: Apache-2.0 */
/* The section "health" of forge.yaml: which values a check may have, and where a wrong one is. */
#include "unit.h"

#include "base/parse.h"
#include "config/config.h"

static int parse(const char *check, struct forge_error *err)
{
	char text[512];
	struct forge_config *c = NULL;

	(void)snprintf(text, sizeof(text), "health:\n  it:\n    %s\n", check);
	int rc = forge_config_parse(text, strlen(text), "t.yaml", "/base", &c, err);
	if (rc == 0)
		forge_config_free(c);
	return rc;
}

static void accepted(const char *check)
{
	struct forge_error err = UNIT_ERROR_UNTOUCHED;

	if (parse(check, &err) != 0)
		fail_msg("%s: %s", check, err.msg);
	assert_untouched(err);
}

/* The place is that of the value: line 4 is the second line of the check. */
static void refused(const char *check, unsigned line, unsigned column, const char *part)
{
	struct forge_error err = FORGE_ERROR_INIT;

	if (parse(check, &err) != -EINVAL)
		fail_msg("not refused: %s", check);
	assert_contains(err.msg, part);
	if (err.line != line || err.column != column)
		fail_msg("%s: at %u:%u, not %u:%u", err.msg, err.line, err.column, line,
			 column);
	assert_null(strstr(err.msg, "s3cret"));
	assert_null(strstr(err.hint, "s3cret"));
}

static void urls_of_http(void **state)
{
	(void)state;
	accepted("kind: http\n    url: http://localhost");
	accepted("kind: http\n    url: https://user:s3cret@example.org:8443/a/b?c=d");
	accepted("kind: http\n    url: http://[::1]:80/");
	refused("kind: http\n    url: ftp://localhost", 4, 10, "must begin with http://");
	refused("kind: http\n    url: file:///etc/passwd", 4, 10,
		"health.it.url: must begin");
	refused("kind: http\n    url: HTTP://localhost", 4, 10,
		"must begin with http://");
	refused("kind: http\n    url: http:///path", 4, 10, "names no host");
	refused("kind: http\n    url: http://u:s3cret@/path", 4, 10, "names no host");
	refused("kind: http\n    url: http://localhost:web/", 4, 10, "not a number");
	refused("kind: http\n    url: http://[::1/", 4, 10, "not a number");
	refused("kind: http\n    url: http://u:s3cret@x@localhost/", 4, 10, "%40");
	refused("kind: http\n    url: http://u:s3cret/x@localhost/", 4, 10, "%40");
	refused("kind: http\n    url: http://u:1?s3cret@localhost/", 4, 10, "%40");
	refused("kind: http\n    url: 'http://u:s3cret x@localhost/'", 4, 10, "blank");
}

static void urls_of_postgres(void **state)
{
	(void)state;
	accepted("kind: postgres\n    url: postgresql://u:s3cret@a:1,b:2/db?sslmode=off");
	accepted("kind: postgres\n    url: postgres:///db?host=/run/postgresql");
	refused("kind: postgres\n    url: host=/tmp password=s3cret", 4, 10,
		"must begin with postgresql://");
	refused("kind: postgres\n    url: postgresql://u:p@s3cret@host/db", 4, 10, "%40");
	refused("kind: postgres\n    url: postgresql://u:p/s3cret@host/db", 4, 10, "%2F");
	/* Without the @, libpq would print the password as the port. */
	refused("kind: postgres\n    url: postgresql://u:s3cret/db", 4, 10,
		"not a number");
}

static void thorough_needs_tables(void **state)
{
	(void)state;
	accepted("kind: postgres\n    url: postgres:///x\n    thorough: true\n    count: "
		 "[a]");
	accepted("kind: postgres\n    url: postgres:///x\n    thorough: false");
	refused("kind: postgres\n    url: postgres:///x\n    thorough: true", 5, 15,
		"there are none");
	refused("kind: postgres\n    url: postgres:///x\n    thorough: true\n    tables: "
		"[]",
		5, 15, "there are none");
}

static void addresses(void **state)
{
	static const char *const bad[] = { "localhost", "'localhost:'",	 ":80",
					   "a:0",	"a:65536",	 "a:080000",
					   "a:http",	"::1:80",	 "'[::1]'",
					   "'[]:80'",	"'[::1]x:80'",	 "a:-1",
					   "'a: 80'",	"'two words:80'" };
	char host[FORGE_HOST_MAX], port[FORGE_PORT_MAX], text[128];

	(void)state;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(bad); i++) {
		(void)snprintf(text, sizeof(text), "kind: tcp\n    address: %s", bad[i]);
		refused(text, 4, 14, "must be host:port");
	}
	accepted("kind: tcp\n    address: db.example.org:5432");
	assert_int_equal(forge_parse_address("[fe80::1%eth0]:65535", host, port, NULL),
			 0);
	assert_string_equal(host, "fe80::1%eth0");
	assert_string_equal(port, "65535");
	assert_int_equal(forge_parse_address("a:1", host, port, NULL), 0);
	assert_string_equal(host, "a");
	assert_string_equal(port, "1");
}

static void other_values(void **state)
{
	(void)state;
	accepted("kind: http\n    url: http://a\n    status: 599");
	refused("kind: http\n    url: http://a\n    status: 99", 5, 13, "100 to 599");
	refused("kind: http\n    url: http://a\n    status: 600", 5, 13, "100 to 599");
	accepted("kind: memory\n    max_pressure: 40%");
	refused("kind: memory\n    max_pressure: 40", 4, 19, "like 40%");
	accepted("kind: systemd\n    unit: a@b.service");
	refused("kind: systemd\n    unit: a b", 4, 11, "one unit");
	refused("kind: nope", 3, 11, "'nope' is not one of disk");
	refused("kind: tcp\n    url: http://a", 4, 10, "a check of kind tcp has no url");
	refused("kind: sqlite\n    tables: [a]", 3, 5, "needs path");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urls_of_http),
		cmocka_unit_test(urls_of_postgres),
		cmocka_unit_test(thorough_needs_tables),
		cmocka_unit_test(addresses),
		cmocka_unit_test(other_values),
	};

	return cmocka_run_group_tests_name("health-config", tests, NULL, NULL);
}
