/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor and forge-shim, process 1 of a container, say to each other. forge-shim connects to a
 * socket (SOCK_SEQPACKET) that the supervisor listens on; from then on it speaks as the init of a sandbox
 * does (sandbox/sandbox.h), so that the same event loop supervises both.
 *
 * When the supervisor dies, the connection ends and the run goes on. forge-shim then tries to connect again;
 * the streams of the command are fifos, which keep what was printed meanwhile.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Inside the container. */
#define FORGE_SHIM_PROGRAM "/.forge-shim"
#define FORGE_SHIM_DIR	   "/.forge"
#define FORGE_SHIM_SOCKET  FORGE_SHIM_DIR "/control"

enum forge_shim_fd {
	FORGE_SHIM_IN,	/* standard input of the command */
	FORGE_SHIM_OUT, /* for writing */
	FORGE_SHIM_ERR, /* for writing */
	FORGE_SHIM_REPORT, /* a struct forge_child_report when the command cannot be executed */
	/* For reading, and never read: while forge-shim has them open, the command gets no SIGPIPE. */
	FORGE_SHIM_KEEP_OUT,
	FORGE_SHIM_KEEP_ERR,
	FORGE_SHIM_FDS,
};

/* With all descriptors: start the command. A command that runs already goes on, with the streams it has. */
#define FORGE_SHIM_START 'g'

/* The last message of a supervisor: it has read the counters and the streams, and the container may end. */
#define FORGE_SHIM_LEAVE 'q'

/* The first message of forge-shim to every supervisor. */
struct forge_shim_ready {
	int32_t landlock_abi; /* what the command is, or will be, confined with; 0: no Landlock */
};

/* The first message of every supervisor. */
struct forge_shim_hello {
	char what;
	bool own_network;
	/* After so long everything is killed, whatever the supervisor does; UINT64_MAX: never. */
	uint64_t most_usec;
	uint64_t sockets;    /* limit, UINT64_MAX: none */
	uint64_t file_bytes; /* of one file, UINT64_MAX: no limit */
};
