/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of the host: what all analyses together may use. */
#pragma once

#include <stdint.h>

#include "config/config.h"

struct forge_budget {
	uint64_t memory_bytes, cpus_milli, runs;
};

/* As configured, and otherwise 80 % of the host's memory and CPUs. */
void forge_budget_of(const struct forge_config *cfg, struct forge_budget *ret);
