/* SPDX-License-Identifier: Apache-2.0 */
/* Forge as a program: what starts, ends or probes something is asked of it, so that there is one way to do it. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/strv.h"
#include "server/answer.h"

struct forge_server;

struct forge_command_result {
	int status; /* its exit status; 128 + N: signal N */
	char *out, *err;
	size_t out_len, err_len;
};
void forge_command_done(struct forge_command_result *r);

/*
 * Executes this program with these words (no shell), and waits. words: "submit", ... ; --store and --config of the server are
 * added behind the first one. It ends when timeout_sec is over: -ETIMEDOUT.
 */
FORGE_MUST_CHECK int forge_command_run(const struct forge_server *sv,
				       const struct forge_strv *words,
				       unsigned timeout_sec,
				       struct forge_command_result *ret,
				       struct forge_error *err);
/*
 * The same for an answer: the JSON that it printed into *ret (is_lines: a list of those in its lines). What it refused becomes the answer, with its sentence and its
 * hint; then this is false.
 */
bool forge_command_json(struct forge_server *sv, const struct forge_strv *words,
			bool is_lines, json_t **ret, struct forge_answer *a);
/* "forge: message\n...Hint" of stderr, as one error. */
void forge_command_error(const struct forge_command_result *r, struct forge_error *err);
