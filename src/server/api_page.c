/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the dashboard, which are part of the program. */
#include <string.h>

#include "server/assets.h"
#include "server/route.h"

/* Without a token: they are the same for everybody, and ask for one. */
void forge_api_page(struct forge_server *sv, const struct forge_ask *ask,
		    struct forge_answer *a)
{
	const char *name = ask->target.n_segments ? ask->target.segments[0] : "";

	(void)sv;
	for (const struct forge_web_asset *w = forge_web_assets; w->path; w++) {
		if (strcmp(w->path + 1, name) != 0)
			continue;
		a->status = 200;
		a->data = w->data;
		a->len = w->size;
		a->type = w->type;
		a->etag = w->etag;
		a->is_gzip = w->is_gzip;
		a->is_page = true;
		return;
	}
	forge_answer_error(a, 404, "not_found", "there is nothing at this path", NULL);
}
