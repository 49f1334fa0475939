/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which connections a run makes over the host's network. Small eBPF programs on the control group of the run
 * count them in a map. They need the rights to load and attach programs (root has them), and a control group on a
 * unified hierarchy. They stop nothing, and end with the group.
 */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "sandbox/cgroup.h"

struct forge_connections {
	int map, lost; /* maps, -1: nothing is counted */
	bool has_unix; /* connections to UNIX sockets are counted as well */
};
#define FORGE_CONNECTIONS_INIT ((struct forge_connections){ .map = -1, .lost = -1 })

/* Before the first process is in the group: later sockets only are seen. Negative: nothing is counted. */
FORGE_MUST_CHECK int forge_connections_watch(struct forge_connections *c,
					     const struct forge_cgroup *cg,
					     struct forge_error *err);
/*
 * What was counted so far:
 *   made       [{address, port, udp, count}], the attempts to reach another socket, with UDP each datagram that
 *              was sent without a connection
 *   incoming   how often another program tried to connect to the run
 *   unix       attempts to connect or send to a named UNIX socket; null: they cannot be seen here
 *   sessions   [{address, port, local_port}], connections over which a PostgreSQL server said that it was ready.
 *              At least these: encrypted ones are not among them.
 *   complete   false: there were more than the map has room for
 */
FORGE_MUST_CHECK int forge_connections_read(const struct forge_connections *c,
					    json_t **ret, struct forge_error *err);
void forge_connections_done(struct forge_connections *c);
