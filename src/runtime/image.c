/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kind image: what a container engine has under a name. Only an executor of kind container can run it; here
 * it is a reference, whose content the engine knows.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/runtime.h"

/* Such a reference means the same content for ever. */
static bool is_pinned(const char *image)
{
	return strstr(image, "sha256:") != NULL;
}

static int image_open(struct forge_runtime *rt, struct forge_error *err)
{
	return rt->decl->image ? 0 : forge_fail(err, EINVAL, "it names no image");
}

static int image_view(const struct forge_runtime *rt, struct forge_strv *read_only,
		      char **ret_root, struct forge_error *err)
{
	(void)rt; /* everything that a run needs is in the image */
	(void)read_only;
	(void)ret_root;
	(void)err;
	return 0;
}

static int image_activate(const struct forge_runtime *rt, struct forge_strv *env,
			  struct forge_strv *scripts, struct forge_strv *warnings,
			  struct forge_error *err)
{
	(void)env; /* the image has variables of its own, which the engine sets */
	(void)scripts;
	if (is_pinned(rt->decl->image))
		return 0;
	return forge_strv_addf(warnings,
			       "the name %.200s can come to mean another image; "
			       "name@sha256:... or the id cannot",
			       rt->decl->image) < 0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

static int image_identify(const struct forge_runtime *rt, struct forge_packages *ret,
			  struct forge_error *err)
{
	const char *hash = strstr(rt->decl->image, "sha256:");

	return forge_packages_add(ret, "image", rt->decl->image, NULL, NULL, hash, NULL) <
			       0
		       ? forge_fail(err, ENOMEM, "out of memory")
		       : 0;
}

const struct forge_runtime_kind forge_kind_image = {
	.name = "image",
	.help = "an image of a container engine (executors docker, podman)",
	.open = image_open,
	.view = image_view,
	.activate = image_activate,
	.identify = image_identify,
};
