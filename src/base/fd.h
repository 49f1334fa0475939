/* SPDX-License-Identifier: Apache-2.0 */
/* Files by descriptor: whole reads and writes, paths opened without following links. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* 0 or -errno; retries short writes and EINTR. */
FORGE_MUST_CHECK int forge_write_all(int fd, const void *data, size_t len);
/* Writes text to an existing file with one write(2), as procfs and cgroupfs want it. */
FORGE_MUST_CHECK int forge_write_at(int dirfd, const char *path, const char *text);
/* Reads at most size-1 bytes and ends them with NUL. Returns the length or -errno. */
FORGE_MUST_CHECK ssize_t forge_read_at(int dirfd, const char *path, char *buf,
				       size_t size);
/* Reads one number; the word "max" gives UINT64_MAX. */
FORGE_MUST_CHECK int forge_read_u64_at(int dirfd, const char *path, uint64_t *ret);
/* The number behind "key " in text of "key value" lines, or fallback. */
uint64_t forge_key_u64(const char *text, const char *key, uint64_t fallback);
/*
 * Opens an absolute path without following a link in any component, with openat2 or, on a
 * kernel without it, component by component. Returns the fd or -errno (-ELOOP: a link).
 */
FORGE_MUST_CHECK int forge_open_nolink(const char *path, int flags);
/*
 * For trees that somebody else may have written. A path below dirfd: links are followed as long
 * as they stay below it (on a kernel without openat2: not at all). Returns the fd or -errno
 * (-EXDEV: it leads out).
 */
FORGE_MUST_CHECK int forge_open_beneath(int dirfd, const char *path, int flags);
/*
 * The same without following any link, not even inside: for a tree that its owner may change while
 * it is read. -ELOOP: a component is a link.
 */
FORGE_MUST_CHECK int forge_open_inside(int dirfd, const char *path, int flags);
/* forge_open_beneath() for a file to read: -EMEDIUMTYPE: not a regular one, -EFBIG: larger than max. */
FORGE_MUST_CHECK int forge_open_regular(int dirfd, const char *path, uint64_t max,
					uint64_t *ret_size);
/* All of such a file, ended with NUL, which is the caller's. */
FORGE_MUST_CHECK int forge_read_regular(int dirfd, const char *path, uint64_t max,
					char **ret, size_t *ret_len);
/*
 * The one way to read a small file of ours whole: name in dirfd, which is no link, never waited for
 * (a fifo), at most max bytes. The text ends with NUL and is the caller's. Errors are as above; only
 * -ENOENT means that there is none.
 */
FORGE_MUST_CHECK int forge_read_file(int dirfd, const char *name, uint64_t max,
				     char **ret, size_t *ret_len);
/* The same for an open file, from its beginning. */
FORGE_MUST_CHECK int forge_read_fd(int fd, uint64_t max, char **ret, size_t *ret_len);
/*
 * Whether it is proven that nobody, in any process, has this regular file open for writing or mapped so:
 * the kernel grants a read lease only then. fd is read-only. False also where it cannot be told: the file
 * is another user's, or its file system has no leases.
 */
bool forge_has_no_writer(int fd);
/* What is wrong, in words, when one of these returned rc. */
const char *forge_regular_problem(int rc);
/* Is path the directory top or something in it? By name alone; both normalised. */
bool forge_path_is_below(const char *path, const char *top);
/* mkdir -p with mode for what it makes. 0 or -errno. */
FORGE_MUST_CHECK int forge_mkdirs(const char *path, mode_t mode);
/* Writes data to name in dirfd through a temporary file and rename; durable: both are on disk. */
FORGE_MUST_CHECK int forge_replace_file(int dirfd, const char *name, const void *data,
					size_t len, bool durable);
