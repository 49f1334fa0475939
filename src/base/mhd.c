/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libmicrohttpd. */
#include "base/mhd.h"

#include <dlfcn.h>
#include <errno.h>

#define DEFINE(name, result, params) result(*p_##name) params;
FORGE_MHD_FUNCTIONS(DEFINE)

int forge_mhd_load(struct forge_error *err)
{
	static void *lib; /* never closed: its threads may still end */

	if (lib)
		return 0;
	void *handle = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return forge_hint(err, forge_fail(err, EOPNOTSUPP, "%s", dlerror()),
				  "Install libmicrohttpd (Debian: libmicrohttpd12)");
#define LOAD(name, result, params)                                                       \
	if (!(*(void **)&p_##name = dlsym(handle, #name)))                               \
		return forge_fail(err, EOPNOTSUPP, "libmicrohttpd has no %s", #name);
	FORGE_MHD_FUNCTIONS(LOAD)
	lib = handle;
	return 0;
}
