/* SPDX-License-Identifier: Apache-2.0 */
/* Objects are checked against their names; marks of damaged ones are made, read and removed. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "scratch.h"
#include "state/check.h"
#include "state/damage.h"
#include "state/objects.h"

static struct forge_home home = FORGE_HOME_INIT;

/* What another process does between the reading of an object and its marking; NULL: nothing. */
static void (*meanwhile)(void);

int __real_forge_damage_lock(int home_fd, bool makes);
int __wrap_forge_damage_lock(int home_fd, bool makes);
int __wrap_forge_damage_lock(int home_fd, bool makes)
{
	void (*act)(void) = meanwhile;

	meanwhile = NULL;
	if (act)
		act();
	return __real_forge_damage_lock(home_fd, makes);
}

static int make(void **state)
{
	(void)state;
	scratch_make();
	return forge_home_open(true, &home, NULL);
}

static int unmake(void **state)
{
	(void)state;
	forge_home_close(&home);
	scratch_remove();
	return 0;
}

/* Stores text as an object. */
static struct forge_object store(const char *text)
{
	struct forge_objects o;
	struct forge_object ret;
	forge_auto_close int fd = open(scratch("source"), O_RDWR | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(forge_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(forge_objects_open(&home, -1, &o, NULL), 0);
	assert_int_equal(forge_objects_put(&o, fd, false, true, &ret), 0);
	forge_objects_close(&o);
	return ret;
}

static const char *path_of(const struct forge_object *o)
{
	char stored[FORGE_STORED_MAX], below[128];

	(void)snprintf(below, sizeof(below), "home/%s", forge_objects_path(stored, o->digest));
	return scratch(below);
}

static void overwrite(const struct forge_object *o, const char *text)
{
	assert_int_equal(chmod(path_of(o), 0600), 0);
	forge_auto_close int fd = open(path_of(o), O_WRONLY | O_TRUNC);
	assert_int_equal(forge_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(chmod(path_of(o), 0444), 0);
}

static struct forge_checked checked(const struct forge_object *o, uint64_t recorded)
{
	struct forge_check_item item = { .recorded = recorded };
	struct forge_checked c;

	forge_check_pack(o->digest, item.digest);
	forge_check_object(&home, &item, &c);
	assert_string_equal(c.digest, o->digest);
	assert_int_equal(c.mark_error, 0);
	return c;
}

static int is_marked(const struct forge_object *o)
{
	return forge_damage_is_marked(home.fd, o->digest);
}

static void digests_are_packed_and_unpacked(void **state)
{
	static const char text[] =
		"sha256:00ff0123456789abcdef00112233445566778899aabbccddeeff010203040506";
	uint8_t raw[FORGE_SHA256_BYTES];
	char buf[FORGE_DIGEST_MAX];

	(void)state;
	forge_check_pack(text, raw);
	assert_int_equal(raw[0], 0);
	assert_int_equal(raw[1], 255);
	assert_string_equal(forge_check_unpack(raw, buf), text);
}

static void names_of_marks_are_told_from_others(void **state)
{
	char digest[FORGE_MARK_MAX];
	char name[] = "00ff0123456789abcdef00112233445566778899aabbccddeeff010203040506.json";

	(void)state;
	assert_true(forge_damage_digest_of(name, digest));
	assert_true(forge_objects_is_digest(digest));
	assert_memory_equal(digest + 7, name, 64);
	name[3] = 'F';
	assert_false(forge_damage_digest_of(name, digest));
	assert_false(forge_damage_digest_of(".x.json.12", digest));
	assert_false(forge_damage_digest_of("", digest));
}

static void the_states_of_an_object(void **state)
{
	(void)state;
	struct forge_object o = store("content");
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_GOOD);
	assert_int_equal(checked(&o, FORGE_SIZE_UNKNOWN).state, FORGE_CHECK_GOOD);
	assert_int_equal(checked(&o, 8).state, FORGE_CHECK_MISRECORDED);
	assert_int_equal(is_marked(&o), 0);
	overwrite(&o, "Content");
	struct forge_checked c = checked(&o, 7);
	assert_int_equal(c.state, FORGE_CHECK_DAMAGED);
	assert_contains(c.problem, "changed");
	assert_int_equal(is_marked(&o), 1);
	overwrite(&o, "cont");
	assert_contains(checked(&o, 7).problem, "4 bytes instead of 7");
	overwrite(&o, "content");
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_GOOD_AGAIN);
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_GOOD);
	assert_int_equal(is_marked(&o), 0);
	assert_int_equal(unlink(path_of(&o)), 0);
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_ABSENT);
	assert_int_equal(mkdir(path_of(&o), 0700), 0);
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_DAMAGED);
}

static void a_mark_says_what_was_found(void **state)
{
	(void)state;
	struct forge_object o = store("content");
	overwrite(&o, "Content");
	struct forge_checked c = checked(&o, 7);
	forge_auto_json json_t *mark = forge_damage_read(home.fd, o.digest);
	assert_string_equal(forge_json_string(mark, "sha256"), o.digest);
	assert_string_equal(forge_json_string(mark, "found"), c.found);
	assert_string_equal(forge_json_string(mark, "problem"), c.problem);
	assert_non_null(forge_json_string(mark, "time"));
	/* A mark that is torn is still one. */
	char name[FORGE_MARK_MAX + 16];
	(void)snprintf(name, sizeof(name), "home/damaged/%s.json", o.digest + 7);
	assert_int_equal(truncate(scratch(name), 0), 0);
	json_t *torn = forge_damage_read(home.fd, o.digest);
	assert_true(json_is_object(torn));
	json_decref(torn);
	/* None at all. */
	forge_auto_close int dir = forge_damage_lock(home.fd, false);
	assert_true(dir >= 0);
	assert_int_equal(forge_damage_unmark(dir, o.digest), 1);
	assert_int_equal(forge_damage_unmark(dir, o.digest), 0);
	assert_null(forge_damage_read(home.fd, o.digest));
}

static void storing_it_again_repairs_it(void **state)
{
	struct stat before, after;

	(void)state;
	struct forge_object o = store("content");
	assert_int_equal(stat(path_of(&o), &before), 0);
	(void)store("content");
	assert_int_equal(stat(path_of(&o), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	overwrite(&o, "Content");
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_DAMAGED);
	(void)store("content");
	assert_int_equal(is_marked(&o), 0);
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_GOOD);
	/* Also when the damaged file is gone. */
	overwrite(&o, "Content");
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_DAMAGED);
	assert_int_equal(unlink(path_of(&o)), 0);
	(void)store("content");
	assert_int_equal(is_marked(&o), 0);
	assert_int_equal(checked(&o, 7).state, FORGE_CHECK_GOOD);
}

static struct forge_object raced;

static void replace_it(void)
{
	forge_auto_close int fd = open(scratch("good"), O_RDWR | O_CREAT | O_TRUNC, 0444);

	assert_int_equal(forge_write_all(fd, "content", 7), 0);
	assert_int_equal(rename(scratch("good"), path_of(&raced)), 0);
}

static void remove_it(void)
{
	assert_int_equal(unlink(path_of(&raced)), 0);
}

static void no_mark_for_what_was_replaced_meanwhile(void **state)
{
	(void)state;
	raced = store("content");
	overwrite(&raced, "Content");
	meanwhile = replace_it;
	assert_int_equal(checked(&raced, 7).state, FORGE_CHECK_GOOD);
	assert_null(meanwhile);
	assert_int_equal(is_marked(&raced), 0);
	overwrite(&raced, "Content");
	meanwhile = remove_it;
	assert_int_equal(checked(&raced, 7).state, FORGE_CHECK_ABSENT);
	assert_null(meanwhile);
	assert_int_equal(is_marked(&raced), 0);
}

static void many_are_checked_and_only_the_others_returned(void **state)
{
	enum { MANY = 50 };
	struct forge_check_item items[MANY] = { 0 };
	struct forge_check_result r;
	const struct forge_check how = { .home = &home };

	(void)state;
	for (int i = 0; i < MANY; i++) {
		char text[16];
		(void)snprintf(text, sizeof(text), "content %d", i);
		struct forge_object o = store(text);
		forge_check_pack(o.digest, items[i].digest);
		items[i].size = o.size;
		items[i].recorded = o.size;
		if (i % 10 == 0)
			overwrite(&o, "!");
		if (i % 10 == 1)
			assert_int_equal(unlink(path_of(&o)), 0);
	}
	assert_int_equal(forge_check_objects(&how, items, MANY, &r), 0);
	assert_int_equal(r.checked, 45);
	assert_int_equal(r.n, 10);
	size_t damaged = 0;
	for (size_t i = 0; i < r.n; i++)
		damaged += r.at[i].state == FORGE_CHECK_DAMAGED;
	assert_int_equal(damaged, 5);
	forge_check_result_done(&r);
	assert_int_equal(forge_check_objects(&how, items, 0, &r), 0);
	assert_int_equal(r.checked, 0);
	forge_check_result_done(&r);
}

#define ON(f) cmocka_unit_test_setup_teardown(f, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON(digests_are_packed_and_unpacked),
		ON(names_of_marks_are_told_from_others),
		ON(the_states_of_an_object),
		ON(a_mark_says_what_was_found),
		ON(storing_it_again_repairs_it),
		ON(no_mark_for_what_was_replaced_meanwhile),
		ON(many_are_checked_and_only_the_others_returned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
