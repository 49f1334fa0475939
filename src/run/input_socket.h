/* SPDX-License-Identifier: Apache-2.0 */
/* Is there a UNIX socket in what a run can read? By its path even a run without a network reaches who listens there. */
#pragma once

#include <stdbool.h>

#include "base/strv.h"

#define FORGE_INPUT_SOCKET_TEXT 256

/*
 * Looks at these files, and at all in these directories. True: there is one, or there may be one because not all could be
 * looked at; text says which or why.
 */
bool forge_find_input_socket(const struct forge_strv *paths,
			     char text[FORGE_INPUT_SOCKET_TEXT]);
