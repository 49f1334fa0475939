/* SPDX-License-Identifier: Apache-2.0 */
/* Who changed a table of a database while a run with a network was there. */
#pragma once

#include <jansson.h>

enum forge_writer {
	FORGE_WRITER_OTHER,   /* for certain not the run */
	FORGE_WRITER_RUN,     /* for certain the run */
	FORGE_WRITER_UNKNOWN, /* text says why */
};
#define FORGE_WRITER_TEXT 520

/*
 * connections: of on_connections of forge_job, or NULL: nothing was counted. before, after: what the check of the
 * database found before and after the run, as in the record. text: the reason, to follow a semicolon.
 */
enum forge_writer forge_table_writer(const json_t *connections, const json_t *before,
				     const json_t *after, char text[FORGE_WRITER_TEXT]);
