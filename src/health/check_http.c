/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of web services: kind http. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/curl.h"
#include "base/json.h"
#include "base/parse.h"
#include "config-build.h"
#include "health/kinds.h"

/* As much of an answer is read, and searched for the text. */
#define BODY_MAX (1u << 20)

/* "scheme://host:port/path": without user, password and query. Returns buf. */
#define PLACE_MAX 200
static const char *place_of(const char *url, char buf[PLACE_MAX])
{
	const char *rest = strstr(url, "://");

	rest = rest ? rest + 3 : url;
	const char *at = strchr(rest, '@'); /* the configuration allows one */
	const char *host = at ? at + 1 : rest;
	(void)snprintf(buf, PLACE_MAX, "%.*s%.*s", (int)(rest - url), url,
		       (int)strcspn(host, "?#"), host);
	return buf;
}

struct body {
	char *text;
	size_t len;
	bool is_cut; /* there was more of it */
};

static size_t take_piece(char *data, size_t size, size_t n, void *arg)
{
	struct body *b = arg;
	size_t len = size * n;
	size_t room = BODY_MAX - b->len;

	b->is_cut = len > room;
	memcpy(b->text + b->len, data, b->is_cut ? room : len);
	b->len += b->is_cut ? room : len;
	return b->is_cut ? 0 : len; /* 0: no more, please */
}

/*
 * A redirect is an answer, and is not followed: it could lead anywhere. Certificates are verified. Proxies of the
 * environment are not used: they are there for what people look at. There is no time-out here: the process has one.
 */
static CURLcode ask(CURL *curl, const char *url, struct body *b)
{
	p_curl_easy_setopt(curl, CURLOPT_URL, url);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	/* What replaces it is unknown to versions before 7.85, and then nothing would be forbidden. */
	CURLcode code = p_curl_easy_setopt(curl, CURLOPT_PROTOCOLS,
					   (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#pragma GCC diagnostic pop
	if (code != CURLE_OK)
		return code;
	p_curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	p_curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	p_curl_easy_setopt(curl, CURLOPT_PROXY, "");
	p_curl_easy_setopt(curl, CURLOPT_USERAGENT, "forge/" FORGE_VERSION);
	p_curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_piece);
	p_curl_easy_setopt(curl, CURLOPT_WRITEDATA, b);
	code = p_curl_easy_perform(curl);
	return code == CURLE_WRITE_ERROR && b->is_cut ? CURLE_OK : code;
}

/* libcurl's own text about the error: that of the request may contain parts of the URL. */
static void report_error(CURL *curl, CURLcode code, const char *place,
			 struct forge_check_report *ret)
{
	long error = 0;

	p_curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &error);
	if (error && code == CURLE_COULDNT_CONNECT)
		forge_check_say(ret, false, "%s: %s", place, strerror((int)error));
	else
		forge_check_say(ret, false, "%s: %s", place, p_curl_easy_strerror(code));
}

static void judge(const struct forge_check_decl *d, const char *place, long status,
		  const struct body *b, struct forge_check_report *ret)
{
	bool is_redirect = status >= 300 && status < 400;
	bool is_right =
		d->status ? (uint64_t)status == d->status : status >= 200 && status < 400;
	const char *note = is_redirect ? ", a redirect, which is not followed" : "";

	if (!is_right && d->status)
		forge_check_say(ret, false, "%s: status %ld%s, expected %u", place,
				status, note, (unsigned)d->status);
	else if (!is_right)
		forge_check_say(ret, false, "%s: status %ld, expected 200 to 399", place,
				status);
	else if (d->body && !memmem(b->text, b->len, d->body, strlen(d->body)))
		forge_check_say(ret, false,
				"%s: status %ld%s, without the expected text in %s%zu B",
				place, status, note, b->is_cut ? "the first " : "",
				b->len);
	else
		forge_check_say(ret, true, "%s: status %ld%s, %s%zu B", place, status,
				note, b->is_cut ? "more than " : "", b->len);
}

FORGE_CHECK(forge_check_http)
{
	char place[PLACE_MAX];
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_free char *text = malloc(BODY_MAX);
	struct body b = { text, 0, false };
	long status = 0;

	(void)env; /* nothing of it is needed */
	(void)place_of(d->url, place);
	if (forge_curl_load(&err) < 0) {
		forge_check_say(ret, false, "%s. %s", err.msg, err.hint);
		return;
	}
	CURL *curl = p_curl_easy_init();
	if (!curl || !text) {
		forge_check_say(ret, false, "out of memory");
		return;
	}
	uint64_t begin = forge_now_usec();
	CURLcode code = ask(curl, d->url, &b);
	if (code == CURLE_OK) {
		p_curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
		ret->numbers = json_pack("{s:I, s:I, s:o}", "status", (json_int_t)status,
					 "bytes", (json_int_t)b.len, "answer_seconds",
					 forge_json_seconds(forge_now_usec() - begin));
		judge(d, place, status, &b, ret);
	} else {
		report_error(curl, code, place, ret);
	}
	p_curl_easy_cleanup(curl);
}
