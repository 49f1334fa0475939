/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of the host. */
#include "config/budget.h"

#include <unistd.h>

/* The host's own services need this much memory, however small the host is. */
#define HOST_RESERVE (256ull << 20)

void forge_budget_of(const struct forge_config *cfg, struct forge_budget *ret)
{
	static uint64_t total, cpus; /* cached: each sysconf() costs system calls */

	if (!total) {
		total = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			(uint64_t)sysconf(_SC_PAGESIZE);
		cpus = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	}
	uint64_t most = total > 2 * HOST_RESERVE ? total - HOST_RESERVE : total / 2;

	*ret = (struct forge_budget){
		.memory_bytes = cfg->budget_bytes	? cfg->budget_bytes
				: total / 10 * 8 < most ? total / 10 * 8
							: most,
		.cpus_milli = cfg->budget_cpus_milli ? cfg->budget_cpus_milli
						     : (cpus * 8 + 9) / 10 * 1000,
		.runs = cfg->budget_runs ? cfg->budget_runs : UINT64_MAX,
	};
}
