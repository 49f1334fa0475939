/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP over a Unix socket. */
#include "executor/container/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/curl.h"
#include "base/json.h"
#include "base/strv.h"

#define API "http://engine/v1.41"
/* An answer is never longer; an image with thousands of layers has 1 MiB. */
#define ANSWER_MAX	(16u << 20)
#define PING_SECONDS	10L
#define CONNECT_SECONDS 10L
#define ANSWER_SECONDS	120L

struct answer {
	char *text;
	size_t len;
	bool is_too_long;
};

static size_t take_piece(char *data, size_t size, size_t n, void *arg)
{
	struct answer *a = arg;
	size_t len = size * n;
	char *grown =
		a->len + len < ANSWER_MAX ? realloc(a->text, a->len + len + 1) : NULL;

	if (!grown) {
		a->is_too_long = true;
		return 0;
	}
	a->text = grown;
	memcpy(a->text + a->len, data, len);
	a->len += len;
	a->text[a->len] = '\0';
	return len;
}

static int fail_connect(const struct forge_engine *e, CURLcode code, long error,
			struct forge_error *err)
{
	const char *why = error ? strerror((int)error) : p_curl_easy_strerror(code);
	/* ENOENT is an answer: the engine does not have that container. */
	int number = !error ? EIO : error == ENOENT ? ECONNREFUSED : (int)error;
	int rc = forge_fail(err, number, "the container engine at %s does not answer: %s",
			    e->socket, why);

	if (error == EACCES)
		return forge_hint(
			err, rc,
			"Your user may not use it: the group docker may, or use "
			"rootless Podman");
	return forge_hint(err, rc,
			  "Is it running? (dockerd; podman system service --time=0 "
			  "unix://%s)",
			  e->socket);
}

/* "Server: Docker/20.10.24 (linux)", "Server: Libpod/4.3.1 (linux)". */
static size_t take_header(char *data, size_t size, size_t n, void *arg)
{
	struct forge_engine *e = arg;
	char product[32], version[32];
	char line[256];

	(void)snprintf(line, sizeof(line), "%.*s", (int)(size * n < 255 ? size * n : 255),
		       data);
	if (strncasecmp(line, "server:", 7) == 0 &&
	    sscanf(line + 7, " %31[A-Za-z]/%31[0-9A-Za-z.+~-]", product, version) == 2) {
		e->is_podman = strcmp(product, "Libpod") == 0;
		(void)snprintf(e->name, sizeof(e->name), "%s %s",
			       e->is_podman ? "Podman" : product, version);
	}
	return size * n;
}

/* Body and answer are JSON; the answer may be NULL. Returns the HTTP status or -errno. */
static int call(struct forge_engine *e, const char *method, const char *path,
		const json_t *body, json_t **ret, struct forge_error *err)
{
	forge_auto_free char *url = forge_asprintf("%s%s", API, path);
	forge_auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	struct curl_slist *headers =
		p_curl_slist_append(NULL, "Content-Type: application/json");
	struct answer a = { NULL, 0, false };
	long status = 0, error = 0;

	*ret = NULL;
	if (!url || (body && !text) || !headers) {
		p_curl_slist_free_all(headers);
		return forge_fail(err, ENOMEM, "out of memory");
	}
	p_curl_easy_reset(e->curl);
	p_curl_easy_setopt(e->curl, CURLOPT_URL, url);
	p_curl_easy_setopt(e->curl, CURLOPT_UNIX_SOCKET_PATH, e->socket);
	p_curl_easy_setopt(e->curl, CURLOPT_CUSTOMREQUEST, method);
	p_curl_easy_setopt(e->curl, CURLOPT_HTTPHEADER, headers);
	p_curl_easy_setopt(e->curl, CURLOPT_NOSIGNAL, 1L);
	p_curl_easy_setopt(e->curl, CURLOPT_PROXY, "");
	p_curl_easy_setopt(e->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
	/* Until the engine has answered once, nothing is known to work: it may not even be one. */
	p_curl_easy_setopt(e->curl, CURLOPT_TIMEOUT,
			   *e->name ? ANSWER_SECONDS : PING_SECONDS);
	p_curl_easy_setopt(e->curl, CURLOPT_WRITEFUNCTION, take_piece);
	p_curl_easy_setopt(e->curl, CURLOPT_WRITEDATA, &a);
	if (!*e->name) {
		p_curl_easy_setopt(e->curl, CURLOPT_HEADERFUNCTION, take_header);
		p_curl_easy_setopt(e->curl, CURLOPT_HEADERDATA, e);
	}
	if (strcmp(method, "POST") == 0)
		p_curl_easy_setopt(e->curl, CURLOPT_POSTFIELDS, text ? text : "");
	CURLcode code = p_curl_easy_perform(e->curl);
	p_curl_slist_free_all(headers);
	p_curl_easy_getinfo(e->curl, CURLINFO_RESPONSE_CODE, &status);
	p_curl_easy_getinfo(e->curl, CURLINFO_OS_ERRNO, &error);
	int rc = (int)status;
	if (code != CURLE_OK && a.is_too_long)
		rc = forge_fail(err, EFBIG, "an answer of %s is too long", e->socket);
	else if (code != CURLE_OK)
		rc = fail_connect(e, code, error, err);
	else if (a.len)
		*ret = json_loadb(a.text, a.len, 0, NULL);
	free(a.text);
	return rc;
}

/* What the engine says about its refusal, in one line. */
static int fail_status(const struct forge_engine *e, int status, const json_t *answer,
		       struct forge_error *err)
{
	char text[300];

	(void)snprintf(text, sizeof(text), "%s",
		       forge_json_string_or(answer, "message", "no reason given"));
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = ' ';
	return forge_fail(err,
			  status == 404	  ? ENOENT
			  : status == 409 ? EEXIST
					  : EIO,
			  "%s: %s", *e->name ? e->name : "container engine", text);
}

/* 0 for a status of 2xx (and 304: it is so already); *ret, unless NULL, has the answer. */
static int request(struct forge_engine *e, const char *method, const char *path,
		   const json_t *body, json_t **ret, struct forge_error *err)
{
	json_t *answer = NULL;
	int rc = call(e, method, path, body, &answer, err);

	if (rc > 0)
		rc = (rc >= 200 && rc < 300) || rc == 304
			     ? 0
			     : fail_status(e, rc, answer, err);
	if (rc == 0 && ret && !answer)
		rc = forge_fail(err, EPROTO, "%s: the answer is not JSON", e->name);
	if (rc == 0 && ret)
		*ret = json_incref(answer);
	json_decref(answer);
	return rc;
}

/* _ping is answered at once; /version and /info take Podman half a second. */
static int ping(struct forge_engine *e, struct forge_error *err)
{
	json_t *answer = NULL;
	int rc = call(e, "GET", "/_ping", NULL, &answer, err);

	json_decref(answer);
	if (rc < 0)
		return rc;
	return rc == 200 && *e->name
		       ? 0
		       : forge_fail(err, EPROTO,
				    "%s is not the socket of Docker or Podman",
				    e->socket);
}

int forge_engine_open(const char *socket, struct forge_engine *ret,
		      struct forge_error *err)
{
	struct stat st;
	int rc = forge_curl_load(err);

	if (rc < 0)
		return rc;
	ret->socket = strdup(socket);
	ret->curl = p_curl_easy_init();
	if (!ret->socket || !ret->curl)
		return forge_fail(err, ENOMEM, "out of memory");
	/* An engine of root has a socket of root. */
	ret->is_rootless = stat(socket, &st) == 0 && st.st_uid != 0;
	return ping(ret, err);
}

void forge_engine_close(struct forge_engine *e)
{
	if (e->curl)
		p_curl_easy_cleanup(e->curl);
	free(e->socket);
	*e = (struct forge_engine){ 0 };
}

/* Names come from the configuration and go into a URL. */
static bool is_plain(const char *name)
{
	return *name && strlen(name) < 500 &&
	       !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "0123456789._-:/@")] &&
	       !strstr(name, "..");
}

int forge_engine_image(struct forge_engine *e, const char *image, json_t **ret,
		       struct forge_error *err)
{
	if (!is_plain(image))
		return forge_fail(err, EINVAL, "'%.100s' is not the name of an image",
				  image);
	forge_auto_free char *path = forge_asprintf("/images/%s/json", image);
	int rc = path ? request(e, "GET", path, NULL, ret, err)
		      : forge_fail(err, ENOMEM, "out of memory");
	if (rc != -ENOENT)
		return rc;
	return forge_hint(
		err,
		forge_fail(err, ENOENT, "%s does not have the image %s", e->name, image),
		"%s pull %s", e->is_podman ? "podman" : "docker", image);
}

static int with_container(struct forge_engine *e, const char *method, const char *name,
			  const char *what, const json_t *body, json_t **ret,
			  struct forge_error *err)
{
	forge_auto_free char *path = forge_asprintf("/containers/%s%s", name, what);

	return path ? request(e, method, path, body, ret, err)
		    : forge_fail(err, ENOMEM, "out of memory");
}

int forge_engine_create(struct forge_engine *e, const char *name, const json_t *body,
			struct forge_error *err)
{
	forge_auto_free char *path = forge_asprintf("/containers/create?name=%s", name);

	return path ? request(e, "POST", path, body, NULL, err)
		    : forge_fail(err, ENOMEM, "out of memory");
}

int forge_engine_start(struct forge_engine *e, const char *name, struct forge_error *err)
{
	return with_container(e, "POST", name, "/start", NULL, NULL, err);
}

int forge_engine_inspect(struct forge_engine *e, const char *name, json_t **ret,
			 struct forge_error *err)
{
	return with_container(e, "GET", name, "/json", NULL, ret, err);
}

int forge_engine_remove(struct forge_engine *e, const char *name, struct forge_error *err)
{
	struct forge_error why = FORGE_ERROR_INIT;
	forge_auto_free char *path =
		forge_asprintf("/containers/%s?force=true&v=true", name);
	int rc = path ? request(e, "DELETE", path, NULL, NULL, &why)
		      : forge_fail(&why, ENOMEM, "out of memory");

	if (rc == -ENOENT)
		return 0;
	if (rc < 0 && err)
		*err = why;
	return rc;
}
