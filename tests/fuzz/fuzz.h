/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target is one function. The build links it with replay.c, so that every test run
 * goes through the corpus; to look for new inputs, compile the target and src/ with
 * clang -fsanitize=fuzzer,address,undefined instead. assert must stay on.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#undef NDEBUG

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
