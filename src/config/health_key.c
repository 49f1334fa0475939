/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of a configuration, and what is guarded. */
#include "config/health_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/glob.h"
#include "base/yaml.h"
#include "config/health_rules.h"
#include "config/named.h"
#include "config/path.h"
#include "config/setters.h"

#define SEC 1000000ull

const char *const forge_guard_modes[4] = {
	[FORGE_GUARD_AUTO] = "auto",
	[FORGE_GUARD_WATCH] = "watch",
	[FORGE_GUARD_SNAPSHOT] = "snapshot",
	[FORGE_GUARD_OFF] = "off",
};
const char *const forge_unattributed_words[3] = {
	[FORGE_UNATTRIBUTED_AUTO] = "auto",
	[FORGE_UNATTRIBUTED_CORRUPTED] = "corrupted",
	[FORGE_UNATTRIBUTED_WARN] = "warn",
};

static const char *const kinds[] = { "disk",	"memory",  "sqlite",  "postgres",
				     "http",	"tcp",	   "unix",    "process",
				     "systemd", "runtime", "command", "files",
				     NULL };
static const char *const severities[] = { "block", "warn", NULL };
static const char *const times[] = { "pre", "post", "both", "demand", NULL };
static const char *const answers[] = { "reject", "wait", NULL };

#define FIELD(f) offsetof(struct forge_check_decl, f)

static const struct forge_named_row rows[] = {
	{ "kind", FORGE_NAMED_ONE_OF, FIELD(kind),
	  "disk, memory, sqlite, postgres, http, tcp, unix, process, systemd, runtime, "
	  "command or files",
	  "What is checked", kinds },
	{ "severity", FORGE_NAMED_ONE_OF, FIELD(severity), "block or warn",
	  "Whether a run may start when the check fails (default: block)", severities },
	{ "when", FORGE_NAMED_ONE_OF, FIELD(when), "pre, post, both or demand",
	  "Before or after a run, or only for `forge health check` (default: both)",
	  times },
	{ "if_failed", FORGE_NAMED_ONE_OF, FIELD(if_failed), "reject or wait",
	  "What a run does that severity block holds back (default: reject)", answers },
	{ "timeout", FORGE_NAMED_DURATION, FIELD(timeout_usec), "duration",
	  "A check that takes longer has failed (default: 10s)", NULL },
	{ "every", FORGE_NAMED_DURATION, FIELD(every_usec), "duration",
	  "A result that is younger is used again, by other runs too (default: none is)",
	  NULL },
	{ "path", FORGE_NAMED_WORD, FIELD(path), "path",
	  "Kinds disk, sqlite and unix: what is looked at", NULL },
	{ "min_free", FORGE_NAMED_AMOUNT, FIELD(min_free), "size or part, like 5%",
	  "Kind disk: least that is free (default: 1%)", NULL },
	{ "min_inodes", FORGE_NAMED_AMOUNT, FIELD(min_inodes), "number or part",
	  "Kind disk: least number of files that can still be made (default: 1%)", NULL },
	{ "min_available", FORGE_NAMED_AMOUNT, FIELD(min_available), "size or part",
	  "Kind memory: least that is available (default: 2%)", NULL },
	{ "max_pressure", FORGE_NAMED_AMOUNT, FIELD(max_pressure), "part, like 40%",
	  "Kind memory: most of the last 10 s that all programs waited for memory",
	  NULL },
	{ "thorough", FORGE_NAMED_BOOL, FIELD(is_thorough), "true or false",
	  "Kind sqlite: integrity_check, not quick_check; kind postgres: also amcheck",
	  NULL },
	{ "url", FORGE_NAMED_WORD, FIELD(url), "URL",
	  "Kinds postgres and http: what is asked; a password in it is never printed",
	  NULL },
	{ "tables", FORGE_NAMED_LIST, FIELD(tables), "list of tables",
	  "Kinds postgres and sqlite: tables that must exist", NULL },
	{ "count", FORGE_NAMED_LIST, FIELD(count), "list of tables",
	  "Kind postgres: tables whose number of rows a run must not change", NULL },
	{ "contents", FORGE_NAMED_LIST, FIELD(contents), "list of tables",
	  "Kind postgres: tables whose rows a run must not change", NULL },
	{ "status", FORGE_NAMED_COUNT, FIELD(status), "number",
	  "Kind http: the expected status (default: 200 to 399)", NULL },
	{ "body", FORGE_NAMED_WORD, FIELD(body), "text",
	  "Kind http: a text that the answer must contain", NULL },
	{ "address", FORGE_NAMED_WORD, FIELD(address), "host:port",
	  "Kind tcp: what must accept a connection", NULL },
	{ "process", FORGE_NAMED_WORD, FIELD(process), "name or path of a pid file",
	  "Kind process: what must be alive", NULL },
	{ "unit", FORGE_NAMED_WORD, FIELD(unit), "name",
	  "Kind systemd: the unit that must be active", NULL },
	{ "runtime", FORGE_NAMED_WORD, FIELD(runtime), "name",
	  "Kind runtime: the runtime whose probe must succeed", NULL },
	{ "command", FORGE_NAMED_WORD, FIELD(command), "one line for sh",
	  "Kind command: what must succeed in a sandbox", NULL },
	{ "paths", FORGE_NAMED_LIST, FIELD(paths), "list of paths and patterns",
	  "Kind files: what no run may change", NULL },
	{ "exclude", FORGE_NAMED_LIST, FIELD(exclude), "list of paths and patterns",
	  "Kind files: what of it may change", NULL },
	{ "hash", FORGE_NAMED_BOOL, FIELD(is_hashed), "true or false",
	  "Kind files: compare contents, where changes cannot be watched", NULL },
};

static const struct forge_named_map keys = {
	.must_be = "a map with at least kind",
	.rows = rows,
	.n = FORGE_ARRAY_SIZE(rows),
	.builtin = "none of its own",
};

/* Keys that every kind has; then those that only some have. */
static const char *const common[] = { "kind",	   "severity", "when",
				      "if_failed", "timeout",  "every" };
static const struct {
	const char *kind, *keys; /* the first one is needed, unless it is in brackets */
} kind_keys[] = {
	{ "disk", "[path] min_free min_inodes" },
	{ "memory", "[min_available] max_pressure" },
	{ "sqlite", "path tables thorough" },
	{ "postgres", "url tables count contents thorough" },
	{ "http", "url status body" },
	{ "tcp", "address" },
	{ "unix", "path" },
	{ "process", "process" },
	{ "systemd", "unit" },
	{ "runtime", "runtime" },
	{ "command", "command" },
	{ "files", "paths exclude hash" },
};

const struct forge_named_row *forge_health_rows(size_t *ret_n)
{
	*ret_n = FORGE_ARRAY_SIZE(rows);
	return rows;
}

static void decl_done(struct forge_check_decl *d)
{
	forge_named_done(&keys, d);
	free(d->name);
	free(d->file);
	*d = (struct forge_check_decl){ .name = NULL };
}

void forge_health_done(struct forge_health_config *h)
{
	for (size_t i = 0; i < h->n_checks; i++)
		decl_done(&h->checks[i]);
	free(h->checks);
	free(h->guarded_by);
	*h = (struct forge_health_config){ 0 };
}

void forge_config_free_health(struct forge_config *c)
{
	forge_health_done(&c->health);
}

const struct forge_check_decl *forge_health_find(const struct forge_health_config *h,
						 const char *name)
{
	for (size_t i = 0; i < h->n_checks; i++)
		if (strcmp(h->checks[i].name, name) == 0)
			return &h->checks[i];
	return NULL;
}

static struct forge_check_decl *add(struct forge_health_config *h, const char *name)
{
	struct forge_check_decl *grown =
		reallocarray(h->checks, h->n_checks + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	h->checks = grown;
	struct forge_check_decl *d = &grown[h->n_checks];
	*d = (struct forge_check_decl){ .name = strdup(name) };
	h->n_checks += d->name != NULL;
	return d->name ? d : NULL;
}

/* Is word one of the words in list? The first may be in brackets. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p && *p; p = strchr(p, ' ')) {
		p += strspn(p, " [");
		if (strncmp(p, word, n) == 0 && strchr(" ]", p[n]))
			return true;
	}
	return false;
}

static const char *keys_of(const char *kind)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(kind_keys); i++)
		if (strcmp(kind_keys[i].kind, kind) == 0)
			return kind_keys[i].keys;
	return "";
}

static bool is_common(const char *key)
{
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(common); i++)
		if (strcmp(common[i], key) == 0)
			return true;
	return false;
}

/* A key of another kind would be ignored, and its user would rely on it. */
static int check_keys(struct forge_loader *ld, const struct forge_yaml *node,
		      const char *path, const char *kind, struct forge_error *err)
{
	const char *list = keys_of(kind);
	char needed[32];

	(void)snprintf(needed, sizeof(needed), "%.*s", (int)strcspn(list, " "), list);
	for (const struct forge_yaml *n = node->child; n; n = n->next)
		if (!is_common(n->key) && !has_word(list, n->key))
			return forge_loader_fail(
				ld, n, path, err,
				"a check of kind %s has no %s (it has: %s)", kind, n->key,
				list);
	return *needed == '[' || forge_named_find(node, needed)
		       ? 0
		       : forge_loader_fail(ld, node, path, err,
					   "a check of kind %s needs %s", kind, needed);
}

/* The directory in which runs get their workdirs, without a final slash. */
static char *workdir_parent(const struct forge_config *c)
{
	char *parent = strndup(c->workdir, strcspn(c->workdir, "{"));
	char *slash = parent ? strrchr(parent, '/') : NULL;

	if (slash)
		slash[slash == parent] = '\0';
	return parent;
}

/*
 * A guard must not contain what forge itself changes for each run. Of "/" the workdirs are a part, too, but
 * the reason that helps is another one.
 */
static int check_guarded(const struct forge_loader *ld, const struct forge_yaml *node,
			 const char *path, const char *pattern, struct forge_error *err)
{
	forge_auto_free char *workdirs = workdir_parent(ld->config);
	forge_auto_free char *top = forge_glob_fixed_part(pattern);
	struct forge_error why = FORGE_ERROR_INIT;

	if (!workdirs || !top)
		return forge_loader_oom(err);
	if (strcmp(pattern, "/") == 0)
		return forge_loader_fail(
			ld, node, path, err,
			"/ is too much: name the directories whose files "
			"no run may change");
	if (forge_path_is_below(workdirs, top) && strcmp(top, pattern) == 0)
		return forge_loader_fail(ld, node, path, err,
					 "%s contains the workdirs of runs (%s), which "
					 "change with each run",
					 pattern, workdirs);
	if (forge_glob_check(pattern + 1, &why) < 0)
		return forge_loader_fail(ld, node, path, err, "%s", why.msg);
	return 0;
}

static int fix_paths(const struct forge_loader *ld, const struct forge_yaml *list,
		     const char *path, struct forge_strv *patterns,
		     struct forge_error *err)
{
	const struct forge_yaml *n = list ? list->child : NULL;
	int rc = 0;

	for (size_t i = 0; i < patterns->n && rc == 0; i++, n = n ? n->next : NULL) {
		rc = forge_named_absolute(ld, &patterns->v[i], err);
		if (rc == 0)
			rc = check_guarded(ld, n ? n : list, path, patterns->v[i], err);
	}
	return rc;
}

static int check_files(const struct forge_loader *ld, const struct forge_yaml *node,
		       const char *path, struct forge_check_decl *d,
		       struct forge_error *err)
{
	int rc = fix_paths(ld, forge_named_find(node, "paths"), path, &d->paths, err);

	for (size_t i = 0; i < d->exclude.n && rc == 0; i++)
		rc = forge_named_absolute(ld, &d->exclude.v[i], err);
	if (rc == 0 && d->paths.n == 0)
		rc = forge_loader_fail(ld, node, path, err, "has no paths");
	return rc;
}

static int add_check(struct forge_loader *ld, const struct forge_yaml *node,
		     const char *path, void *arg, struct forge_error *err)
{
	(void)arg; /* there is none */
	if (forge_health_find(&ld->config->health, node->key))
		return 0; /* an outer file's: an inner one cannot weaken it */
	struct forge_check_decl *d = add(&ld->config->health, node->key);
	if (!d)
		return forge_loader_oom(err);
	int rc = forge_named_read(ld, node, path, &keys, d, err);
	if (rc == 0 && !d->kind)
		rc = forge_loader_fail(ld, node, path, err, "has no kind (%s)",
				       rows[0].type_name);
	if (rc == 0)
		rc = check_keys(ld, node, path, d->kind, err);
	if (rc == 0)
		rc = forge_health_check_values(ld, node, path, d->kind, err);
	if (rc == 0)
		rc = forge_named_absolute(ld, &d->path, err);
	if (rc == 0 && d->process && strchr(d->process, '/'))
		rc = forge_named_absolute(ld, &d->process, err);
	if (rc == 0 && strcmp(d->kind, "files") == 0)
		rc = check_files(ld, node, path, d, err);
	d->file = strdup(ld->name);
	d->line = (unsigned)node->line;
	return rc < 0 ? rc : d->file ? 0 : forge_loader_oom(err);
}

/* Files inside of this one cannot weaken its guards. */
static int note_guard(struct forge_loader *ld, struct forge_error *err)
{
	char **by = &ld->config->health.guarded_by;

	if (!*by)
		*by = strdup(ld->name);
	return *by ? 0 : forge_loader_oom(err);
}

static bool has_files(const struct forge_yaml *checks)
{
	for (const struct forge_yaml *n = checks->child; n; n = n->next) {
		const struct forge_yaml *kind =
			n->type == FORGE_YAML_MAP ? forge_named_find(n, "kind") : NULL;
		if (kind && kind->type == FORGE_YAML_SCALAR &&
		    strcmp(kind->scalar, "files") == 0)
			return true;
	}
	return false;
}

FORGE_SETTER(forge_set_health)
{
	if (node->type != FORGE_YAML_MAP)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a map of names to checks");
	ld->health = node;
	return has_files(node) ? note_guard(ld, err) : 0;
}

FORGE_SETTER(forge_set_guard_paths)
{
	if (node->type != FORGE_YAML_LIST)
		return forge_loader_fail(ld, node, row->path, err,
					 "must be a list of paths and patterns");
	for (const struct forge_yaml *n = node->child; n; n = n->next)
		if (n->type != FORGE_YAML_SCALAR || !*n->scalar)
			return forge_loader_fail(ld, n, row->path, err,
						 "must be a path or a pattern");
	/* Checked with all files read: the workdir may be set after it. */
	if (strcmp(row->path, "guard.paths") == 0) {
		ld->guard_paths = node;
		return note_guard(ld, err);
	}
	ld->guard_exclude = node;
	return 0;
}

/* A word, and how strict it is. */
struct strict_word {
	const char *word;
	int strictness;
};

/* What an outer file guards, or says of guards, an inner one can make stricter, and not weaker. */
static int set_word(struct forge_loader *ld, const struct forge_schema_row *row,
		    const struct forge_yaml *node, const struct strict_word *words,
		    size_t n, int *value, struct forge_error *err)
{
	const struct forge_origin *from = forge_config_origin(ld->config, row->path);
	const char *guards = ld->config->health.guarded_by;
	bool is_inner = from || (guards && strcmp(guards, ld->name) != 0);
	const char *list[8];
	char text[FORGE_UNKNOWN_MAX];
	size_t i = 0;

	if (node->type != FORGE_YAML_SCALAR)
		return forge_loader_fail(ld, node, row->path, err, "must be one of %s",
					 row->type);
	for (size_t k = 0; k < n; k++)
		list[k] = words[k].word;
	while (i < n && strcmp(words[i].word, node->scalar) != 0)
		i++;
	if (i == n)
		return forge_loader_fail(ld, node, row->path, err, "%s",
					 forge_describe_unknown(text, "unknown value",
								node->scalar, list, n));
	if (is_inner && words[i].strictness < words[*value].strictness)
		return forge_loader_fail(
			ld, node, row->path, err,
			"is %s because of %s, and cannot be weakened here",
			words[*value].word, from ? from->from : guards);
	*value = (int)i;
	return 0;
}

FORGE_SETTER(forge_set_guard_mode)
{
	static const struct strict_word words[] = {
		[FORGE_GUARD_AUTO] = { "auto", 2 },
		[FORGE_GUARD_WATCH] = { "watch", 3 },
		[FORGE_GUARD_SNAPSHOT] = { "snapshot", 1 },
		[FORGE_GUARD_OFF] = { "off", 0 },
	};
	int value = (int)ld->config->health.mode;
	int rc = set_word(ld, row, node, words, FORGE_ARRAY_SIZE(words), &value, err);

	ld->config->health.mode = (enum forge_guard_mode)value;
	return rc;
}

FORGE_SETTER(forge_set_unattributed)
{
	static const struct strict_word words[] = {
		[FORGE_UNATTRIBUTED_AUTO] = { "auto", 1 },
		[FORGE_UNATTRIBUTED_CORRUPTED] = { "corrupted", 2 },
		[FORGE_UNATTRIBUTED_WARN] = { "warn", 0 },
	};
	int value = (int)ld->config->health.unattributed;
	int rc = set_word(ld, row, node, words, FORGE_ARRAY_SIZE(words), &value, err);

	ld->config->health.unattributed = (enum forge_unattributed)value;
	return rc;
}

FORGE_SETTER(forge_set_guard_hold)
{
	static const struct strict_word words[] = { { "false", 0 }, { "true", 1 } };
	int value = ld->config->health.holds;
	int rc = set_word(ld, row, node, words, FORGE_ARRAY_SIZE(words), &value, err);

	ld->config->health.holds = value;
	return rc;
}

/*
 * The check that guard.paths and guard.exclude of this file are: "guard", and "guard-2" and so on for those of
 * inner files, because what an inner file excludes stays guarded by an outer one.
 */
static struct forge_check_decl *guard_of(struct forge_loader *ld)
{
	char name[32] = "guard";
	struct forge_check_decl *d;

	for (unsigned i = 2; (d = (struct forge_check_decl *)forge_health_find(
				      &ld->config->health, name));
	     i++) {
		if (d->file && strcmp(d->file, ld->name) == 0)
			return d;
		(void)snprintf(name, sizeof(name), "guard-%u", i);
	}
	return add(&ld->config->health, name);
}

static int add_guard(struct forge_loader *ld, struct forge_error *err)
{
	static const char *const paths[] = { "guard.paths", "guard.exclude" };
	const struct forge_yaml *lists[] = { ld->guard_paths, ld->guard_exclude };
	int rc = 0;

	if (!ld->guard_paths && !ld->guard_exclude)
		return 0;
	struct forge_check_decl *d = guard_of(ld);
	if (!d || (!d->kind && !(d->kind = strdup("files"))) ||
	    (!d->file && !(d->file = strdup(ld->name))))
		return forge_loader_oom(err);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(lists) && rc == 0; i++)
		for (const struct forge_yaml *n = lists[i] ? lists[i]->child : NULL;
		     n && rc == 0; n = n->next) {
			char *full = forge_path_absolute(ld->base_dir, n->scalar);
			rc = full ? 0 : forge_loader_oom(err);
			if (rc == 0 && i == 0)
				rc = check_guarded(ld, n, paths[i], full, err);
			if (rc < 0)
				free(full);
			else if (forge_strv_take(i ? &d->exclude : &d->paths, full) < 0)
				rc = forge_loader_oom(err);
		}
	return rc;
}

int forge_health_apply(struct forge_loader *ld, struct forge_error *err)
{
	int rc = forge_named_each(ld, ld->health, "health", add_check, NULL, err);

	return rc < 0 ? rc : add_guard(ld, err);
}

void forge_health_each_key(void (*visit)(const struct forge_config_key *key, void *arg),
			   void *arg)
{
	static char paths[FORGE_ARRAY_SIZE(rows)][FORGE_NAMED_PATH_MAX];

	forge_named_each_key(&keys, "health", paths, visit, arg);
}

static bool is_empty(const struct forge_amount *a)
{
	return !a->absolute && !a->milli;
}

static int set_defaults(struct forge_check_decl *d)
{
	/* A probe after the run would compete with runs for room. */
	const char *when = strcmp(d->kind, "runtime") == 0 ? "pre" : "both";

	d->timeout_usec = d->timeout_usec ? d->timeout_usec : 10 * SEC;
	if (strcmp(d->kind, "disk") == 0 && is_empty(&d->min_free))
		d->min_free.milli = 10;
	if (strcmp(d->kind, "disk") == 0 && is_empty(&d->min_inodes))
		d->min_inodes.milli = 10;
	if (strcmp(d->kind, "memory") == 0 && is_empty(&d->min_available))
		d->min_available.milli = 20;
	d->severity = d->severity ? d->severity : strdup("block");
	d->when = d->when ? d->when : strdup(when);
	d->if_failed = d->if_failed ? d->if_failed : strdup("reject");
	return d->severity && d->when && d->if_failed ? 0 : -ENOMEM;
}

/* Cheap ones, so that every host has a few. A check of the same name in a file replaces them. */
int forge_config_add_usual_checks(struct forge_config *c, struct forge_error *err)
{
	static const char *const usual[] = { "disk", "memory" };

	for (size_t i = 0; i < FORGE_ARRAY_SIZE(usual); i++) {
		if (forge_health_find(&c->health, usual[i]))
			continue;
		struct forge_check_decl *d = add(&c->health, usual[i]);
		if (!d || !(d->kind = strdup(usual[i])))
			return forge_loader_oom(err);
		d->every_usec = 2 * SEC;
		/* What other programs use is no reason to refuse every run of a host that says nothing. */
		if (!(d->severity = strdup("warn")))
			return forge_loader_oom(err);
	}
	for (size_t i = 0; i < c->health.n_checks; i++)
		if (set_defaults(&c->health.checks[i]) < 0)
			return forge_loader_oom(err);
	return 0;
}
