/* SPDX-License-Identifier: Apache-2.0 */
/* What every run sees of the host's system: the lists behind the plan, and nothing else. */
#pragma once

struct forge_view_text {
	const char *path, *content;
};

struct forge_view_dev {
	const char *path;
	unsigned minor; /* of major 1 */
};

/* All end with a NULL entry. */
extern const char *const forge_view_system[]; /* trees of the root directory, read-only */
extern const char *const forge_view_etc[];    /* of /etc, where they exist */
extern const char *const forge_view_etc_net[];	  /* of /etc, with --network host only */
extern const char *const forge_view_proc_masks[]; /* hidden in /proc */
extern const char *const forge_view_dirs[];	  /* empty directories programs expect */
extern const struct forge_view_text forge_view_texts[];	    /* made-up files */
extern const struct forge_view_text forge_view_dev_links[]; /* links in /dev */
extern const struct forge_view_dev forge_view_devs[];
