/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace with a loopback and nothing else, made by a thread in parallel with other
 * work: the kernel takes half a millisecond for it, a tenth of the shortest run. Only root can
 * do this, because only root's thread may have one without a user namespace around it.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct forge_netns {
	pthread_t thread;
	bool is_begun;
	int fd; /* -1: none */
};
#define FORGE_NETNS_INIT ((struct forge_netns){ .fd = -1 })

/* The signals that this process waits for must be blocked by now. */
void forge_netns_begin(struct forge_netns *n);
/*
 * Waits for the thread. -1: there is no namespace, and clone3() must make one or report why it
 * cannot.
 */
int forge_netns_fd(struct forge_netns *n);
void forge_netns_done(struct forge_netns *n);
/* Brings up the loopback of the namespace we are in. 0 or -errno. */
int forge_netns_loopback(void);
