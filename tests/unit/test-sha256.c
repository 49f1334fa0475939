/* SPDX-License-Identifier: Apache-2.0 */
/* Digests: the vectors of FIPS 180-2, files against sha256sum, copies. */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sha256.h"

static void known_vectors(void **state)
{
	static const struct {
		const char *text, *digest;
	} known[] = {
		{ "",
		  "sha256:"
		  "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc",
		  "sha256:"
		  "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "sha256:"
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};
	char digest[FORGE_DIGEST_MAX];
	struct forge_sha256 h;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		forge_sha256_init(&h);
		forge_sha256_add(&h, known[i].text, strlen(known[i].text));
		assert_string_equal(forge_sha256_done(&h, digest), known[i].digest);
	}
}

static void pieces_make_the_same_whole(void **state)
{
	char digest[FORGE_DIGEST_MAX], million[1000];
	struct forge_sha256 h;

	(void)state;
	memset(million, 'a', sizeof(million));
	forge_sha256_init(&h);
	for (int i = 0; i < 1000; i++) {
		size_t cut = (size_t)(i * 7) % sizeof(million);
		forge_sha256_add(&h, million, cut);
		forge_sha256_add(&h, million + cut, sizeof(million) - cut);
	}
	assert_string_equal(
		forge_sha256_done(&h, digest),
		"sha256:"
		"cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

struct files {
	char dir[32], path[48];
	int fd;
};

/* Bytes that repeat nowhere a buffer could end. */
static int make_file(void **state)
{
	struct files *f = calloc(1, sizeof(*f));
	uint32_t x = 1, chunk[16384];

	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/forge-unit-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/big", f->dir);
	f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(f->fd >= 0);
	for (int i = 0; i < 80; i++) {
		for (size_t k = 0; k < sizeof(chunk) / sizeof(*chunk); k++) {
			x = x * 1664525 + 1013904223;
			chunk[k] = x;
		}
		assert_int_equal(write(f->fd, chunk, sizeof(chunk)), sizeof(chunk));
	}
	assert_int_equal(write(f->fd, "tail", 4), 4);
	*state = f;
	return 0;
}

static int remove_file(void **state)
{
	struct files *f = *state;

	close(f->fd);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

/* What sha256sum prints, with our prefix. */
static void ask_sha256sum(const char *path, char ret[FORGE_DIGEST_MAX])
{
	int fds[2], status;
	size_t have = 0;

	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();
	if (pid == 0) {
		(void)dup2(fds[1], 1);
		(void)execlp("sha256sum", "sha256sum", path, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	memcpy(ret, "sha256:", 7);
	while (have < 64) {
		ssize_t n = read(fds[0], ret + 7 + have, 64 - have);
		assert_true(n > 0);
		have += (size_t)n;
	}
	ret[71] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void a_big_file_is_as_sha256sum_says(void **state)
{
	struct files *f = *state;
	char digest[FORGE_DIGEST_MAX], wanted[FORGE_DIGEST_MAX];
	uint64_t size = 0;

	ask_sha256sum(f->path, wanted);
	/* Its position does not matter: it stands at the end here. */
	assert_int_equal(forge_sha256_fd(f->fd, -1, digest, &size), 0);
	assert_string_equal(digest, wanted);
	assert_int_equal(size, 80 * 65536 + 4);
}

static void a_copy_is_equal(void **state)
{
	struct files *f = *state;
	char digest[FORGE_DIGEST_MAX], again[FORGE_DIGEST_MAX];
	int copy = memfd_create("copy", MFD_CLOEXEC);
	uint64_t size = 0, copied = 0;

	assert_true(copy >= 0);
	assert_int_equal(forge_sha256_fd(f->fd, copy, digest, &size), 0);
	assert_int_equal(forge_sha256_fd(copy, -1, again, &copied), 0);
	assert_string_equal(digest, again);
	assert_int_equal(size, copied);
	close(copy);
}

static void a_copy_that_does_not_fit_is_told(void **state)
{
	struct files *f = *state;
	char digest[FORGE_DIGEST_MAX];
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	uint64_t size = 7;

	assert_true(full >= 0);
	assert_int_equal(forge_sha256_fd(f->fd, full, digest, &size), -ENOSPC);
	assert_int_equal(size, 7);
	close(full);
}

static void what_cannot_be_read_is_told(void **state)
{
	char digest[FORGE_DIGEST_MAX];
	int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t size;

	(void)state;
	assert_int_equal(forge_sha256_fd(dir, -1, digest, &size), -EISDIR);
	close(dir);
	assert_int_equal(forge_sha256_fd(-1, -1, digest, &size), -EBADF);
}

/* Zeros at the beginning, between and at the end; and what is no whole chunk. */
static void a_sparse_copy_is_equal_and_smaller(void **state)
{
	char digest[FORGE_DIGEST_MAX], again[FORGE_DIGEST_MAX];
	int from = memfd_create("from", MFD_CLOEXEC), copy = memfd_create("copy", MFD_CLOEXEC);
	uint64_t size = 0, copied = 0;
	struct stat st;

	(void)state;
	assert_true(from >= 0 && copy >= 0);
	assert_int_equal(ftruncate(from, (32 << 20) + 77), 0);
	assert_int_equal(pwrite(from, "data", 4, 9 << 20), 4);
	assert_int_equal(forge_sha256_until(from, copy, -1, digest, &size), 0);
	assert_int_equal(forge_sha256_fd(copy, -1, again, &copied), 0);
	assert_string_equal(digest, again);
	assert_int_equal(size, (32 << 20) + 77);
	assert_int_equal(size, copied);
	assert_int_equal(fstat(copy, &st), 0);
	assert_true(st.st_blocks * 512 < 2 << 20);
	close(from);
	close(copy);
}

static void it_can_be_stopped(void **state)
{
	struct files *f = *state;
	char digest[FORGE_DIGEST_MAX];
	uint64_t size = 7;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_int_equal(forge_sha256_until(f->fd, -1, fds[0], digest, &size), 0);
	size = 7;
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(forge_sha256_until(f->fd, -1, fds[0], digest, &size), -ECANCELED);
	assert_int_equal(size, 7);
	close(fds[0]);
	close(fds[1]);
}

#define WITH_FILE(f) cmocka_unit_test_setup_teardown(f, make_file, remove_file)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_vectors),
		cmocka_unit_test(pieces_make_the_same_whole),
		WITH_FILE(a_big_file_is_as_sha256sum_says),
		WITH_FILE(a_copy_is_equal),
		WITH_FILE(a_copy_that_does_not_fit_is_told),
		cmocka_unit_test(what_cannot_be_read_is_told),
		cmocka_unit_test(a_sparse_copy_is_equal_and_smaller),
		WITH_FILE(it_can_be_stopped),
	};

	return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
