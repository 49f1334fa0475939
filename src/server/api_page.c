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
		a->is_gzip = w->gzip.data && ask->takes_gzip;
		const struct forge_web_form *form = a->is_gzip ? &w->gzip : &w->plain;
		a->status = 200;
		a->data = form->data;
		a->len = form->size;
		a->type = w->type;
		a->etag = form->etag;
		a->is_page = true;
		return;
	}
	forge_answer_error(a, 404, "not_found", "there is nothing at this path", NULL);
}
