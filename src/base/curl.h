/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl, opened at run time, and only when something is asked over HTTP: it brings many libraries with it,
 * which a local run should not pay for. Each function has its usual name with p_ before it.
 */
#pragma once

#include <curl/curl.h>

#include "base/error.h"

#define FORGE_CURL_FUNCTIONS(X)                                                          \
	X(curl_easy_init, CURL *, (void))                                                \
	X(curl_easy_setopt, CURLcode, (CURL * curl, CURLoption option, ...))             \
	X(curl_easy_perform, CURLcode, (CURL * curl))                                    \
	X(curl_easy_getinfo, CURLcode, (CURL * curl, CURLINFO info, ...))                \
	X(curl_easy_reset, void, (CURL * curl))                                          \
	X(curl_easy_strerror, const char *, (CURLcode code))                             \
	X(curl_easy_cleanup, void, (CURL * curl))                                        \
	X(curl_slist_append, struct curl_slist *,                                        \
	  (struct curl_slist * list, const char *text))                                  \
	X(curl_slist_free_all, void, (struct curl_slist * list))

/* The macros check types, and call the library that is not linked. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#define FORGE_CURL_DECLARE(name, result, params) extern result(*p_##name) params;
FORGE_CURL_FUNCTIONS(FORGE_CURL_DECLARE)
#undef FORGE_CURL_DECLARE

/* Must succeed before any of them is called. Later calls cost nothing. */
FORGE_MUST_CHECK int forge_curl_load(struct forge_error *err);
