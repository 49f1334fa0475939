/* SPDX-License-Identifier: Apache-2.0 */
/* Files by descriptor: whole reads and writes, paths opened without following links. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* 0 or -errno; retries short writes and EINTR. */
FORGE_MUST_CHECK int forge_write_all(int fd, const void *data, size_t len);
/* Writes text to an existing file with one write(2), as procfs and cgroupfs require. */
FORGE_MUST_CHECK int forge_write_at(int dirfd, const char *path, const char *text);
/* Reads at most size-1 bytes and ends them with NUL. Returns the length or -errno. */
FORGE_MUST_CHECK ssize_t forge_read_at(int dirfd, const char *path, char *buf,
				       size_t size);
/* Reads one number; the word "max" gives UINT64_MAX. */
FORGE_MUST_CHECK int forge_read_u64_at(int dirfd, const char *path, uint64_t *ret);
/* The number after "key " in text of "key value" lines, or fallback. */
uint64_t forge_key_u64(const char *text, const char *key, uint64_t fallback);
/*
 * Opens an absolute path without following a link in any component, with openat2 or, on a
 * kernel without it, component by component. Returns the fd or -errno (-ELOOP: a link).
 */
FORGE_MUST_CHECK int forge_open_nolink(const char *path, int flags);
/*
 * Opens a path below dirfd, for trees that another user may have written. Links are followed as
 * long as they stay below dirfd (on a kernel without openat2: not at all). Returns the fd or
 * -errno (-EXDEV: the path leads out).
 */
FORGE_MUST_CHECK int forge_open_beneath(int dirfd, const char *path, int flags);
/*
 * The same without following any link, not even one that stays inside: for a tree that its
 * owner may change while it is read. -ELOOP: a component is a link.
 */
FORGE_MUST_CHECK int forge_open_inside(int dirfd, const char *path, int flags);
/*
 * forge_open_beneath() for reading a regular file. -EMEDIUMTYPE: it is not regular; -EFBIG:
 * larger than max.
 */
FORGE_MUST_CHECK int forge_open_regular(int dirfd, const char *path, uint64_t max,
					uint64_t *ret_size);
/* Reads the whole of such a file into *ret, which ends with NUL and belongs to the caller. */
FORGE_MUST_CHECK int forge_read_regular(int dirfd, const char *path, uint64_t max,
					char **ret, size_t *ret_len);
/*
 * The usual way to read a small file of ours: name in dirfd, at most max bytes. A link is not
 * followed and a fifo is not waited for. The text ends with NUL and belongs to the caller.
 * Errors are as above; only -ENOENT means that there is no such file.
 */
FORGE_MUST_CHECK int forge_read_file(int dirfd, const char *name, uint64_t max,
				     char **ret, size_t *ret_len);
/* The same for an open file, from its beginning. */
FORGE_MUST_CHECK int forge_read_fd(int fd, uint64_t max, char **ret, size_t *ret_len);
/*
 * Is it certain that no process has this regular file open for writing or mapped writable? The
 * kernel grants a read lease only then. fd is read-only. Also false where that is unknown: the
 * file belongs to another user, or its file system has no leases.
 */
bool forge_has_no_writer(int fd);
/* Describes the error rc of one of these functions. */
const char *forge_regular_problem(int rc);
/* Is path the directory top or a path below it? Compares names only; both must be normalised. */
bool forge_path_is_below(const char *path, const char *top);
/* Is it relative, and without "..", "." and empty parts? */
bool forge_path_is_inner(const char *path);
/* mkdir -p; mode is for the directories that it makes. 0 or -errno. */
FORGE_MUST_CHECK int forge_mkdirs(const char *path, mode_t mode);
/*
 * Writes data to name in dirfd through a temporary file and rename; durable: both are synced to
 * disk.
 */
FORGE_MUST_CHECK int forge_replace_file(int dirfd, const char *name, const void *data,
					size_t len, bool durable);
