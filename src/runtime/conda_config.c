/* SPDX-License-Identifier: Apache-2.0 */
/* Finds all condarc files and merges them. */
#include "runtime/conda_config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/yaml.h"
#include "config/schema.h"
#include "runtime/conda_parts.h"

#define TEXT_MAX  (1u << 20)
#define ALL_MAX	  (4u << 20) /* of all files together */
#define FILES_MAX 256
#define LINES_MAX 4096 /* of one list */

/* ---- text ---- */

int forge_conda_read_text(const char *path, char **ret, size_t *ret_len)
{
	struct stat st;
	forge_auto_close int fd =
		open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOTDIR ? -ENOENT : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? forge_read_fd(fd, TEXT_MAX, ret, ret_len)
				   : -EMEDIUMTYPE;
}

/* The length of "$NAME" or "${NAME}" at p, and the name; 0: it is none. */
static size_t variable_at(const char *p, char name[128])
{
	bool has_brace = p[0] == '$' && p[1] == '{';
	const char *word = p + 1 + has_brace;
	size_t n = *p != '$'   ? 0
		   : has_brace ? strcspn(word, "}")
			       : strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					      "abcdefghijklmnopqrstuvwxyz0123456789_");

	if (n == 0 || n >= 128 || (has_brace && word[n] != '}'))
		return 0;
	(void)snprintf(name, 128, "%.*s", (int)n, word);
	return 1 + n + (has_brace ? 2 : 0);
}

char *forge_conda_expand(const char *text)
{
	const char *home = getenv("HOME");
	char out[PATH_MAX] = "", name[128];
	size_t len = 0;

	for (const char *p = text; *p && len < sizeof(out);) {
		size_t n = variable_at(p, name);
		const char *value = n ? getenv(name) : NULL;
		len += (size_t)snprintf(out + len, sizeof(out) - len, "%.*s",
					value ? PATH_MAX : 1, value ? value : p);
		p += value ? n : 1;
	}
	if (len >= sizeof(out))
		return strdup(text);
	if (out[0] == '~' && (out[1] == '/' || !out[1]) && home)
		return forge_asprintf("%s%s", home, out + 1);
	return strdup(out);
}

/* Removes blanks at both ends, in place. */
static char *strip(char *text)
{
	text += strspn(text, " \t\r\n\v\f");
	for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]);)
		text[--n] = '\0';
	return text;
}

/* ---- where the files are ---- */

static bool is_yaml(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot && dot != name &&
	       (strcmp(dot, ".yml") == 0 || strcmp(dot, ".yaml") == 0);
}

/*
 * Adds every YAML file of a directory, in order. A directory that is absent or that we may not
 * read has none, as in conda.
 */
static int add_condarc_d(const char *path, struct forge_strv *ret)
{
	struct dirent **list = NULL;
	int n = scandir(path, &list, NULL, alphasort), rc = 0;

	if (n < 0 && errno == ENOMEM)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		if (rc == 0 && ret->n < FILES_MAX && is_yaml(list[i]->d_name))
			rc = forge_strv_addf(ret, "%s/%s", path, list[i]->d_name);
		free(list[i]);
	}
	free(list);
	return rc;
}

static int add_condarcs(const char *dir, const char *below, struct forge_strv *ret)
{
	if (!dir || !*dir)
		return 0;
	forge_auto_free char *full = forge_asprintf("%s%s", dir, below);
	forge_auto_free char *inner = full ? forge_asprintf("%s/condarc.d", full) : NULL;
	int rc = inner ? forge_strv_addf(ret, "%s/.condarc", full) : -ENOMEM;

	if (rc == 0)
		rc = forge_strv_addf(ret, "%s/condarc", full);
	return rc < 0 ? rc : add_condarc_d(inner, ret);
}

/* $CONDARC is a directory of files, or one file, whose name must be that of a condarc. */
static int add_named(const char *said, struct forge_strv *ret,
		     struct forge_strv *warnings)
{
	if (!said || !*said)
		return 0;
	forge_auto_free char *expanded = forge_conda_expand(said);
	forge_auto_free char *path =
		expanded ? forge_path_absolute(NULL, expanded) : NULL;
	struct stat st;
	if (!path)
		return -ENOMEM;
	const char *name = strrchr(path, '/') + 1;
	if (stat(path, &st) < 0)
		return 0;
	if (S_ISDIR(st.st_mode))
		return add_condarc_d(path, ret);
	if (is_yaml(name) || strcmp(name, ".condarc") == 0 ||
	    strcmp(name, "condarc") == 0)
		return forge_strv_add(ret, path);
	forge_conda_warn(warnings,
			 "CONDARC: conda reads %.200s only if it is called .condarc, "
			 "condarc, or ends in .yml or .yaml",
			 path);
	return 0;
}

/* Lists every condarc that conda would read; a later one takes precedence. */
static int list_condarcs(const char *root, struct forge_strv *ret,
			 struct forge_strv *warnings)
{
	const char *home = getenv("HOME");
	int rc = add_condarcs("/etc/conda", "", ret);

	if (rc == 0)
		rc = add_condarcs("/var/lib/conda", "", ret);
	if (rc == 0)
		rc = add_condarcs(root, "", ret);
	if (rc == 0)
		rc = add_condarcs(getenv("XDG_CONFIG_HOME"), "/conda", ret);
	if (rc == 0)
		rc = add_condarcs(home, "/.config/conda", ret);
	if (rc == 0)
		rc = add_condarcs(home, "/.conda", ret);
	if (rc == 0 && home)
		rc = forge_strv_addf(ret, "%s/.condarc", home);
	if (rc == 0)
		rc = add_condarcs(getenv("CONDA_PREFIX"), "", ret);
	return rc < 0 ? rc : add_named(getenv("CONDARC"), ret, warnings);
}

/* ---- the files ---- */

struct source {
	char *path, *text;
	struct forge_yaml *root; /* a map */
};

struct sources {
	struct source *v;
	size_t n, bytes;
};

static void sources_done(struct sources *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->v[i].path);
		free(s->v[i].text);
		forge_yaml_free(s->v[i].root);
	}
	free(s->v);
}

static int load_source(const char *path, struct sources *s, struct forge_strv *warnings)
{
	struct forge_error err = FORGE_ERROR_INIT;
	forge_auto_free char *text = NULL;
	forge_auto_yaml struct forge_yaml *root = NULL;
	size_t len = 0;
	int rc = forge_conda_read_text(path, &text, &len);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		(void)forge_fail(&err, -rc, "%s", forge_regular_problem(rc));
	else if (s->bytes + len > ALL_MAX)
		rc = forge_fail(&err, EFBIG, "there is more than 4 MiB of them");
	else
		rc = forge_yaml_parse_any(text, len, path, &root, &err);
	if (rc == 0 && root->type != FORGE_YAML_MAP)
		rc = forge_fail(&err, EINVAL, "it is no map");
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) {
		forge_conda_warn(warnings, "conda's configuration %.200s is left out: %s",
				 path, err.msg);
		return 0;
	}
	char *copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	s->v[s->n++] = (struct source){ .path = copy,
					.text = forge_take_ptr(text),
					.root = forge_take_ptr(root) };
	s->bytes += len;
	return 0;
}

static int load_sources(const char *root, struct sources *s, struct forge_strv *warnings)
{
	forge_auto_strv struct forge_strv files = { 0 };
	int rc = list_condarcs(root, &files, warnings);

	s->v = calloc(files.n + 1, sizeof(*s->v));
	if (!s->v)
		rc = -ENOMEM;
	forge_strv_foreach (path, &files)
		if (rc == 0)
			rc = load_source(path, s, warnings);
	return rc;
}

static const struct forge_yaml *find_key(const struct forge_yaml *map, const char *key)
{
	const struct forge_yaml *merged = NULL;

	for (const struct forge_yaml *k = map->child; k; k = k->next) {
		if (strcmp(k->key, key) == 0)
			return k;
		if (strcmp(k->key, "<<") == 0)
			merged = k;
	}
	/* "<<: *other", or a list of these. */
	if (merged && merged->type == FORGE_YAML_MAP)
		return find_key(merged, key);
	const struct forge_yaml *ret = NULL;
	for (const struct forge_yaml *m =
		     merged && merged->type == FORGE_YAML_LIST ? merged->child : NULL;
	     m && !ret; m = m->next)
		ret = m->type == FORGE_YAML_MAP ? find_key(m, key) : NULL;
	return ret;
}

/* ---- "#!top", "#!bottom" and "#!final" behind a value ---- */

enum flag { NO_FLAG, TOP, BOTTOM, FINAL };

static enum flag flag_word(const char *comment, size_t len)
{
	static const char *const words[] = {
		[TOP] = "top", [BOTTOM] = "bottom", [FINAL] = "final"
	};

	while (len > 0 && isspace((unsigned char)comment[len - 1]))
		len--;
	while (len > 0 && (comment[len - 1] == '#' || comment[len - 1] == '!'))
		len--;
	for (; len > 0 && (*comment == '#' || *comment == '!'); len--)
		comment++;
	for (enum flag f = TOP; f <= FINAL; f++)
		if (len == strlen(words[f]) && strncmp(comment, words[f], len) == 0)
			return f;
	return NO_FLAG;
}

/* The flag in the comment on a line; the YAML parser skips comments. */
static enum flag flag_at(const char *text, unsigned line)
{
	const char *p = text;
	char quote = '\0';

	for (unsigned i = 1; p && i < line; i++) {
		p = strchr(p, '\n');
		p = p ? p + 1 : NULL;
	}
	for (const char *start = p; p && *p && *p != '\n'; p++) {
		bool is_first = p == start || isblank((unsigned char)p[-1]);
		if (quote == '"' && *p == '\\' && p[1] && p[1] != '\n')
			p++;
		else if (quote && *p == quote)
			quote = '\0';
		else if (!quote && (is_first || p[-1] == '[') && strchr("'\"", *p))
			quote = *p;
		else if (!quote && *p == '#' && is_first)
			return flag_word(p, strcspn(p, "\n"));
	}
	return NO_FLAG;
}

/* ---- one value: the first that is final, else the last ---- */

struct value {
	char *text;	   /* NULL: it is set nowhere */
	const char *where; /* borrowed */
};

/* "false !important" */
static int take_variable(const char *variable, struct value *ret)
{
	const char *said = getenv(variable);
	const char *mark = said ? strstr(said, "!important") : NULL;

	if (!said)
		return 0;
	forge_auto_free char *copy =
		strndup(said, mark ? (size_t)(mark - said) : strlen(said));
	free(ret->text);
	ret->text = copy ? strdup(strip(copy)) : NULL;
	ret->where = variable;
	return ret->text ? 0 : -ENOMEM;
}

static int find_value(const struct sources *s, const char *key, const char *variable,
		      struct value *ret, struct forge_strv *warnings)
{
	*ret = (struct value){ .text = NULL };
	for (size_t i = 0; i < s->n; i++) {
		const struct forge_yaml *k = find_key(s->v[i].root, key);
		if (k && k->type != FORGE_YAML_SCALAR)
			forge_conda_warn(warnings, "%.200s: %s is not one value",
					 s->v[i].path, key);
		if (!k || k->type != FORGE_YAML_SCALAR)
			continue;
		free(ret->text);
		ret->text = strdup(k->scalar);
		ret->where = s->v[i].path;
		if (!ret->text)
			return -ENOMEM;
		if (flag_at(s->v[i].text, k->key_line) == FINAL)
			return 0;
	}
	return take_variable(variable, ret);
}

/* A number as Python's complex() reads it, without parentheses. */
static bool read_number(const char *text, double *ret)
{
	char *end;

	if (!*text || text[strspn(text, "0123456789.+-ejinfatyEJINFATY")])
		return false;
	*ret = strtod(text, &end);
	return end != text && (!*end || strcmp(end, "j") == 0);
}

/* 1: true, 0: false, -1: neither. As conda's boolify(). */
static int truth(const char *text)
{
	static const char *const yes[] = { "true", "yes", "on", "y" };
	static const char *const no[] = { "false", "off", "n", "no", "non", "none", "" };
	char word[64];
	double number;
	size_t n = 0;
	bool has_dot = false;

	if (strlen(text) >= sizeof(word))
		return -1;
	for (; *text; text++) {
		/* The first dot is dropped, so that "0.0" has only digits. */
		if (*text == '.' && !has_dot)
			has_dot = true;
		else
			word[n++] = (char)tolower((unsigned char)*text);
	}
	word[n] = '\0';
	const char *stripped = strip(word);
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(yes); i++)
		if (strcmp(stripped, yes[i]) == 0)
			return 1;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(no); i++)
		if (strcmp(stripped, no[i]) == 0)
			return 0;
	return read_number(stripped, &number) ? number != 0 : -1;
}

static int find_truth(const struct sources *s, const char *key, const char *variable,
		      bool *ret, struct forge_strv *warnings)
{
	struct value v;
	int rc = find_value(s, key, variable, &v, warnings);
	int is_true = rc == 0 && v.text ? truth(v.text) : *ret;

	if (is_true < 0)
		forge_conda_warn(warnings,
				 "%.200s: %s: '%.40s' is neither true nor false", v.where,
				 key, v.text);
	else
		*ret = is_true;
	free(v.text);
	return rc;
}

static int find_level(const struct sources *s, unsigned *ret, struct forge_strv *warnings)
{
	struct value v;
	int rc = find_value(s, "auto_stack", "CONDA_AUTO_STACK", &v, warnings);

	if (rc == 0 && v.text) {
		char *end, *text = strip(v.text);
		long n = strtol(text, &end, 10);
		if (end == text || *end)
			n = truth(text);
		if (n < 0)
			forge_conda_warn(warnings,
					 "%.200s: auto_stack: '%.40s' is no level",
					 v.where, text);
		*ret = n > 0 && n < 1000 ? (unsigned)n : n > 0 ? 1000 : 0;
	}
	free(v.text);
	return rc;
}

/* ---- a list: of all files, later ones first; marked lines come before or after all others ---- */

struct line {
	char *text;
	enum flag flag;
	size_t source;
};

struct lines {
	struct line *v;
	size_t n, n_sources;
	bool is_final; /* later sources do not count */
};

static void lines_done(struct lines *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].text);
	free(l->v);
}

static int add_line(struct lines *l, const char *text, enum flag flag)
{
	if (l->n == LINES_MAX)
		return 0;
	if (!l->v) {
		l->v = calloc(LINES_MAX, sizeof(*l->v));
		if (!l->v)
			return -ENOMEM;
	}
	char *copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	l->v[l->n++] = (struct line){ copy, flag, l->n_sources };
	return 0;
}

static int add_source_lines(const struct source *s, struct lines *l,
			    struct forge_strv *warnings)
{
	const struct forge_yaml *key = find_key(s->root, "envs_dirs");
	const struct forge_yaml *other = find_key(s->root, "envs_path");
	int rc = 0;

	if (key && other)
		forge_conda_warn(
			warnings,
			"%.200s has envs_dirs and envs_path, which are the same; "
			"envs_path is left out",
			s->path);
	key = key ? key : other;
	if (!key || (key->type == FORGE_YAML_SCALAR && !*key->scalar))
		return 0;
	if (key->type != FORGE_YAML_LIST) {
		forge_conda_warn(warnings, "%.200s: %s is no list", s->path, key->key);
		return 0;
	}
	for (const struct forge_yaml *n = key->child; n && rc == 0; n = n->next)
		if (n->type == FORGE_YAML_SCALAR)
			rc = add_line(l, n->scalar, flag_at(s->text, n->line));
	l->n_sources++;
	l->is_final = flag_at(s->text, key->key_line) == FINAL;
	return rc;
}

/* "a : b": blanks around a directory, and empty entries, are ignored. */
static int add_variable_lines(const char *variable, struct lines *l)
{
	const char *said = getenv(variable);
	int rc = 0;

	for (const char *p = said; p && *p && rc == 0;) {
		size_t len = strcspn(p, ":");
		forge_auto_free char *copy = strndup(p, len);
		const char *dir = copy ? strip(copy) : NULL;
		rc = !dir ? -ENOMEM : *dir ? add_line(l, dir, NO_FLAG) : 0;
		p += len + (p[len] == ':');
	}
	l->n_sources += said != NULL;
	return rc;
}

/* Adds a directory expanded, absolute, and once. */
static int add_dir(struct forge_strv *ret, const char *text)
{
	forge_auto_free char *expanded = forge_conda_expand(text);
	char *dir = expanded && *expanded ? forge_path_absolute(NULL, expanded) : NULL;
	bool is_known = false;

	if (!expanded)
		return -ENOMEM;
	if (!dir)
		return 0; /* empty, or below a directory that is gone */
	forge_strv_foreach (have, ret)
		is_known |= strcmp(have, dir) == 0;
	if (!is_known)
		return forge_strv_take(ret, dir);
	free(dir);
	return 0;
}

static bool is_at_bottom(const struct lines *l, const char *text)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].flag == BOTTOM && strcmp(l->v[i].text, text) == 0)
			return true;
	return false;
}

static int merge_lines(const struct lines *l, struct forge_strv *ret)
{
	int rc = 0;

	for (size_t i = 0; i < l->n && rc == 0; i++)
		if (l->v[i].flag == TOP && !is_at_bottom(l, l->v[i].text))
			rc = add_dir(ret, l->v[i].text);
	for (size_t s = l->n_sources; s > 0 && rc == 0; s--)
		for (size_t i = 0; i < l->n && rc == 0; i++)
			if (l->v[i].source == s - 1 && !is_at_bottom(l, l->v[i].text))
				rc = add_dir(ret, l->v[i].text);
	for (size_t s = l->n_sources; s > 0 && rc == 0; s--)
		for (size_t i = 0; i < l->n && rc == 0; i++)
			if (l->v[i].source == s - 1 && l->v[i].flag == BOTTOM)
				rc = add_dir(ret, l->v[i].text);
	return rc;
}

static int find_envs_dirs(const struct sources *s, struct forge_strv *ret,
			  struct forge_strv *warnings)
{
	FORGE_CLEANUP(lines_done) struct lines l = { .v = NULL };
	int rc = 0;

	for (size_t i = 0; i < s->n && rc == 0 && !l.is_final; i++)
		rc = add_source_lines(&s->v[i], &l, warnings);
	if (rc == 0 && !l.is_final)
		rc = add_variable_lines("CONDA_ENVS_PATH", &l);
	if (rc == 0 && !l.is_final)
		rc = add_variable_lines("CONDA_ENVS_DIRS", &l);
	return rc < 0 ? rc : merge_lines(&l, ret);
}

/* ---- all of it ---- */

int forge_conda_config_read(const char *root, struct forge_conda_config *ret,
			    struct forge_strv *warnings)
{
	FORGE_CLEANUP(sources_done) struct sources s = { .v = NULL };
	bool is_upper = true, changes_prompt = true;
	struct value prompt = { .text = NULL };
	int rc = load_sources(root, &s, warnings);

	*ret = (struct forge_conda_config){ .env_prompt = NULL };
	if (rc == 0)
		rc = find_envs_dirs(&s, &ret->envs_dirs, warnings);
	if (rc == 0)
		rc = find_truth(&s, "envvars_force_uppercase",
				"CONDA_ENVVARS_FORCE_UPPERCASE", &is_upper, warnings);
	if (rc == 0)
		rc = find_truth(&s, "changeps1", "CONDA_CHANGEPS1", &changes_prompt,
				warnings);
	if (rc == 0)
		rc = find_level(&s, &ret->auto_stack, warnings);
	if (rc == 0)
		rc = find_value(&s, "env_prompt", "CONDA_ENV_PROMPT", &prompt, warnings);
	ret->keeps_case = !is_upper;
	if (rc == 0 && changes_prompt && prompt.text)
		ret->env_prompt = forge_take_ptr(prompt.text);
	else if (rc == 0)
		ret->env_prompt = strdup(changes_prompt ? "({default_env}) " : "");
	free(prompt.text);
	if (rc == 0 && ret->env_prompt)
		return 0;
	forge_conda_config_done(ret);
	return -ENOMEM;
}

void forge_conda_config_done(struct forge_conda_config *c)
{
	forge_strv_done(&c->envs_dirs);
	free(c->env_prompt);
	*c = (struct forge_conda_config){ .env_prompt = NULL };
}
