/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd, opened at run time, and only by `forge serve`: it brings a TLS library with it, which a run should not pay
 * for. Each function has its usual name with p_ before it.
 */
#pragma once

#include <microhttpd.h>

#include "base/error.h"

#define FORGE_MHD_FUNCTIONS(X)                                                           \
	X(MHD_start_daemon, struct MHD_Daemon *,                                         \
	  (unsigned flags, uint16_t port, MHD_AcceptPolicyCallback apc, void *apc_cls,   \
	   MHD_AccessHandlerCallback dh, void *dh_cls, ...))                             \
	X(MHD_stop_daemon, void, (struct MHD_Daemon * daemon))                           \
	X(MHD_quiesce_daemon, MHD_socket, (struct MHD_Daemon * daemon))                  \
	X(MHD_get_connection_info, const union MHD_ConnectionInfo *,                     \
	  (struct MHD_Connection * connection, enum MHD_ConnectionInfoType type, ...))   \
	X(MHD_lookup_connection_value, const char *,                                     \
	  (struct MHD_Connection * connection, enum MHD_ValueKind kind,                  \
	   const char *key))                                                             \
	X(MHD_get_connection_values, int,                                                \
	  (struct MHD_Connection * connection, enum MHD_ValueKind kind,                  \
	   MHD_KeyValueIterator iterator, void *cls))                                    \
	X(MHD_create_response_from_buffer, struct MHD_Response *,                        \
	  (size_t size, void *buffer, enum MHD_ResponseMemoryMode mode))                 \
	X(MHD_create_response_from_fd_at_offset64, struct MHD_Response *,                \
	  (uint64_t size, int fd, uint64_t offset))                                      \
	X(MHD_create_response_from_callback, struct MHD_Response *,                      \
	  (uint64_t size, size_t block_size, MHD_ContentReaderCallback crc,              \
	   void *crc_cls, MHD_ContentReaderFreeCallback crfc))                           \
	X(MHD_add_response_header, enum MHD_Result,                                      \
	  (struct MHD_Response * response, const char *header, const char *content))     \
	X(MHD_queue_response, enum MHD_Result,                                           \
	  (struct MHD_Connection * connection, unsigned status,                          \
	   struct MHD_Response *response))                                               \
	X(MHD_destroy_response, void, (struct MHD_Response * response))                  \
	X(MHD_suspend_connection, void, (struct MHD_Connection * connection))            \
	X(MHD_resume_connection, void, (struct MHD_Connection * connection))

#define FORGE_MHD_DECLARE(name, result, params) extern result(*p_##name) params;
FORGE_MHD_FUNCTIONS(FORGE_MHD_DECLARE)
#undef FORGE_MHD_DECLARE

/* Must succeed before any of them is called. Later calls cost nothing. */
FORGE_MUST_CHECK int forge_mhd_load(struct forge_error *err);
