/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libpq. */
#include "base/pq.h"

#include <dlfcn.h>
#include <errno.h>

#define DEFINE(name, result, params) result(*p##name) params;
FORGE_PQ_FUNCTIONS(DEFINE)

int forge_pq_load(struct forge_error *err)
{
	static void *lib; /* never closed: it may have threads and at-exit work */

	if (lib)
		return 0;
	void *handle = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return forge_hint(err, forge_fail(err, EOPNOTSUPP, "%s", dlerror()),
				  "Install PostgreSQL's client library (Debian: libpq5)");
#define LOAD(name, result, params)                                                       \
	if (!(*(void **)&p##name = dlsym(handle, #name)))                                \
		return forge_fail(err, EOPNOTSUPP, "libpq has no %s", #name);
	FORGE_PQ_FUNCTIONS(LOAD)
	lib = handle;
	return 0;
}
