/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libcurl. */
#include "base/curl.h"

#include <dlfcn.h>
#include <errno.h>

#include "base/cleanup.h"

#define DEFINE(name, result, params) result(*p_##name) params;
FORGE_CURL_FUNCTIONS(DEFINE)

int forge_curl_load(struct forge_error *err)
{
	static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4" };
	static void *lib; /* never closed: it has state of its own */
	void *handle = NULL;

	if (lib)
		return 0;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(names) && !handle; i++)
		handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return forge_hint(err, forge_fail(err, EOPNOTSUPP, "%s", dlerror()),
				  "Install libcurl (Debian: libcurl4)");
#define LOAD(name, result, params)                                                       \
	if (!(*(void **)&p_##name = dlsym(handle, #name)))                               \
		return forge_fail(err, EOPNOTSUPP, "libcurl has no %s", #name);
	FORGE_CURL_FUNCTIONS(LOAD)
	lib = handle;
	return 0;
}
