/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the plain functions, not the EVP ones: those load OpenSSL's providers at first use,
 * which takes longer than most of our runs. The machine code underneath is the same.
 */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"

#define CHUNK (256 * 1024)

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct forge_sha256), "room for its state");

static SHA256_CTX *ctx(struct forge_sha256 *h)
{
	return (SHA256_CTX *)(void *)h->state;
}

void forge_sha256_init(struct forge_sha256 *h)
{
	(void)SHA256_Init(ctx(h));
}

void forge_sha256_add(struct forge_sha256 *h, const void *data, size_t len)
{
	(void)SHA256_Update(ctx(h), data, len);
}

const char *forge_sha256_done(struct forge_sha256 *h, char buf[FORGE_DIGEST_MAX])
{
	static const char hex[] = "0123456789abcdef";
	unsigned char raw[FORGE_SHA256_BYTES];
	char *p = buf + 7;

	(void)SHA256_Final(raw, ctx(h));
	memcpy(buf, "sha256:", 7);
	for (size_t i = 0; i < sizeof(raw); i++) {
		*p++ = hex[raw[i] >> 4];
		*p++ = hex[raw[i] & 15];
	}
	*p = '\0';
	return buf;
}

struct job {
	int fd, copy_fd, stop_fd;
	bool is_sparse; /* blocks of zeros are not written */
};

static bool is_stopped(const struct job *j)
{
	struct pollfd p = { .fd = j->stop_fd, .events = POLLIN };

	return j->stop_fd >= 0 && poll(&p, 1, 0) > 0;
}

static bool is_zero(const char *data, size_t len)
{
	return data[0] == 0 && memcmp(data, data + 1, len - 1) == 0;
}

static int copy(const struct job *j, const void *data, size_t len, uint64_t at)
{
	if (!j->is_sparse)
		return forge_write_all(j->copy_fd, data, len);
	if (is_zero(data, len))
		return ftruncate(j->copy_fd, (off_t)(at + len)) < 0 ? -errno : 0;
	if (lseek(j->copy_fd, (off_t)at, SEEK_SET) < 0)
		return -errno;
	return forge_write_all(j->copy_fd, data, len);
}

static int feed(const struct job *j, void *chunk, struct forge_sha256 *h, uint64_t *size)
{
	for (;;) {
		if (is_stopped(j))
			return -ECANCELED;
		ssize_t n = pread(j->fd, chunk, CHUNK, (off_t)*size);
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n < 0)
			continue;
		forge_sha256_add(h, chunk, (size_t)n);
		int rc = j->copy_fd < 0 ? 0 : copy(j, chunk, (size_t)n, *size);
		if (rc < 0)
			return rc;
		*size += (uint64_t)n;
	}
}

static int hash(const struct job *j, char buf[FORGE_DIGEST_MAX], uint64_t *ret_size)
{
	struct forge_sha256 h;
	uint64_t size = 0;
	/* A mapping of its own: it is returned at once, and threads do not grow the heap. */
	void *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (chunk == MAP_FAILED)
		return -ENOMEM;
	forge_sha256_init(&h);
	(void)posix_fadvise(j->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a hint */
	int rc = feed(j, chunk, &h, &size);
	(void)munmap(chunk, CHUNK);
	if (rc < 0)
		return rc;
	forge_sha256_done(&h, buf);
	*ret_size = size;
	return 0;
}

int forge_sha256_fd(int fd, int copy_fd, char buf[FORGE_DIGEST_MAX], uint64_t *ret_size)
{
	return hash(&(struct job){ fd, copy_fd, -1, false }, buf, ret_size);
}

int forge_sha256_until(int fd, int copy_fd, int stop_fd, char buf[FORGE_DIGEST_MAX],
		       uint64_t *ret_size)
{
	return hash(&(struct job){ fd, copy_fd, stop_fd, true }, buf, ret_size);
}
