/* SPDX-License-Identifier: Apache-2.0 */
/* kept.json. */
#include "state/kept.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"

#define KEPT_FILE "kept.json"

int forge_kept_write(int dir, const char *path, dev_t dev, ino_t ino,
		     struct forge_error *err)
{
	json_t *j = json_pack("{s:s, s:I, s:I}", "path", path, "dev", (json_int_t)dev,
			      "ino", (json_int_t)ino);
	forge_auto_free char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	int rc = text ? forge_replace_file(dir, KEPT_FILE, text, strlen(text), false)
		      : -ENOMEM;

	json_decref(j);
	return rc < 0 ? forge_fail_errno(err, -rc, "note which workdir is kept") : 0;
}

int forge_kept_read(int dir, struct forge_kept *ret, struct forge_error *err)
{
	forge_auto_free char *text = NULL;
	size_t len = 0;
	int rc = forge_read_file(dir, KEPT_FILE, 1 << 16, &text, &len);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return forge_fail_errno(err, -rc, "read %s", KEPT_FILE);
	json_t *j = json_loadb(text, len, 0, NULL);
	const char *path = forge_json_string(j, "path");
	struct forge_kept k = {
		.path = path && *path == '/' ? strdup(path) : NULL,
		.dev = (dev_t)json_integer_value(json_object_get(j, "dev")),
		.ino = (ino_t)json_integer_value(json_object_get(j, "ino")),
	};
	json_decref(j);
	if (!k.path)
		return 0; /* torn by a power cut: the path is lost */
	*ret = k;
	return 1;
}

void forge_kept_forget(int dir)
{
	(void)unlinkat(dir, KEPT_FILE, 0); /* it names nothing that is there */
}

void forge_kept_done(struct forge_kept *k)
{
	free(k->path);
	*k = (struct forge_kept){ 0 };
}
