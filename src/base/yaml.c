/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the tree from libyaml's events, with its own stack to bound the depth. */
#include "base/yaml.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#define MAX_DEPTH   16
#define MAX_ANCHORS 1000
/* Each key of a map is compared with all keys before it, up to so many; then they are sorted. */
#define MAX_COMPARED 256

struct bounds {
	size_t bytes, nodes;
	const char *bytes_text;
	bool takes_any; /* anchors, aliases, tags, directives */
};
static const struct bounds own = { 1u << 20, 10000, "1 MiB", false };
static const struct bounds any = { 1u << 20, 100000, "1 MiB", true };
static const struct bounds large = { 16u << 20, 1000000, "16 MiB", false };

struct frame {
	struct forge_yaml *node;
	struct forge_yaml **tail; /* where the next child goes */
	size_t n_keys;
};

struct anchor {
	char *name;
	const struct forge_yaml *node; /* borrowed from the tree */
};

struct builder {
	yaml_parser_t parser;
	const struct bounds *bounds;
	struct anchor *anchors;
	size_t n_anchors;
	const char *name;
	struct forge_yaml *root;
	struct frame stack[MAX_DEPTH];
	size_t depth, n_nodes, n_documents;
	char *key; /* a key that has no value yet */
	yaml_mark_t key_mark;
};

static void builder_done(struct builder *b)
{
	yaml_parser_delete(&b->parser);
	forge_yaml_free(b->root);
	free(b->key);
	for (size_t i = 0; i < b->n_anchors; i++)
		free(b->anchors[i].name);
	free(b->anchors);
}

static void event_done(yaml_event_t *event)
{
	yaml_event_delete(event); /* harmless on an event that is all zero */
}

static unsigned mark_line(yaml_mark_t m)
{
	return (unsigned)m.line + 1;
}

static unsigned mark_column(yaml_mark_t m)
{
	return (unsigned)m.column + 1;
}

#define FAIL_MARK(b, mark, err, ...)                                                     \
	forge_fail_at(err, (b)->name, mark_line(mark), mark_column(mark), __VA_ARGS__)

static int out_of_memory(struct forge_error *err)
{
	return forge_fail(err, ENOMEM, "read YAML: out of memory");
}

/* libyaml's reader reports only a byte offset. */
static yaml_mark_t mark_of_offset(const char *text, size_t len, size_t offset)
{
	yaml_mark_t m = { .index = offset };

	for (size_t i = 0; i < offset && i < len; i++) {
		if (text[i] == '\n') {
			m.line++;
			m.column = 0;
		} else if (((unsigned char)text[i] & 0xc0) != 0x80) {
			m.column++; /* not a continuation byte: one more character */
		}
	}
	return m;
}

static int parser_failed(const struct builder *b, const char *text, size_t len,
			 struct forge_error *err)
{
	const yaml_parser_t *p = &b->parser;
	yaml_mark_t mark = p->problem_mark;

	if (p->error == YAML_MEMORY_ERROR)
		return out_of_memory(err);
	if (p->error == YAML_READER_ERROR)
		mark = mark_of_offset(text, len, p->problem_offset);
	return FAIL_MARK(b, mark, err, "not valid YAML: %s%s%s",
			 p->problem ? p->problem : "malformed", p->context ? " " : "",
			 p->context ? p->context : "");
}

/* A scalar without quotes that YAML reads as null. */
static bool is_null(const yaml_event_t *e)
{
	static const char *const words[] = { "", "~", "null", "Null", "NULL" };

	if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	for (size_t i = 0; i < FORGE_ARRAY_SIZE(words); i++)
		if (strcmp((const char *)e->data.scalar.value, words[i]) == 0)
			return true;
	return false;
}

static int refuse_extras(const struct builder *b, const yaml_event_t *e,
			 const yaml_char_t *anchor, const yaml_char_t *tag,
			 struct forge_error *err)
{
	if (b->bounds->takes_any)
		return 0;
	if (anchor)
		return FAIL_MARK(
			b, e->start_mark, err,
			"anchors are not supported ('&%.40s'): write the value out",
			(const char *)anchor);
	if (tag)
		return FAIL_MARK(b, e->start_mark, err,
				 "tags are not supported ('%.40s')", (const char *)tag);
	return 0;
}

static struct frame *top(struct builder *b)
{
	return b->depth > 0 ? &b->stack[b->depth - 1] : NULL;
}

static bool expects_key(struct builder *b)
{
	return b->depth > 0 && top(b)->node->type == FORGE_YAML_MAP && !b->key;
}

/* Links an empty node into the tree, which then owns it. */
static int add_node(struct builder *b, enum forge_yaml_type type, yaml_mark_t mark,
		    struct forge_yaml **ret, struct forge_error *err)
{
	struct frame *parent = top(b);

	if (++b->n_nodes > b->bounds->nodes)
		return FAIL_MARK(b, mark, err, "more than %zu values", b->bounds->nodes);
	struct forge_yaml *node = calloc(1, sizeof(*node));
	if (!node)
		return out_of_memory(err);
	node->type = type;
	node->line = mark_line(mark);
	node->column = mark_column(mark);
	if (b->key) {
		node->key = forge_take_ptr(b->key);
		node->key_line = mark_line(b->key_mark);
		node->key_column = mark_column(b->key_mark);
	}
	if (parent) {
		*parent->tail = node;
		parent->tail = &node->next;
	} else {
		b->root = node;
	}
	*ret = node;
	return 0;
}

static int duplicate(const struct builder *b, unsigned line, unsigned column,
		     const char *key, const struct forge_yaml *first,
		     struct forge_error *err)
{
	return forge_fail_at(err, b->name, line, column,
			     "duplicate key '%.80s' (first on line %u)", key,
			     first->key_line);
}

static int on_key(struct builder *b, const char *key, const yaml_event_t *e,
		  struct forge_error *err)
{
	struct frame *f = top(b);

	if (*key == '\0')
		return FAIL_MARK(b, e->start_mark, err, "a key must not be empty");
	if (f->n_keys++ < MAX_COMPARED)
		for (const struct forge_yaml *n = f->node->child; n; n = n->next)
			if (strcmp(n->key, key) == 0)
				return duplicate(b, mark_line(e->start_mark),
						 mark_column(e->start_mark), key, n, err);
	b->key = strdup(key);
	b->key_mark = e->start_mark;
	return b->key ? 0 : out_of_memory(err);
}

/* The last anchor of a name is valid from there on. */
static int note_anchor(struct builder *b, const yaml_char_t *name,
		       const struct forge_yaml *node, const yaml_event_t *e,
		       struct forge_error *err)
{
	if (!name)
		return 0;
	if (b->n_anchors == MAX_ANCHORS)
		return FAIL_MARK(b, e->start_mark, err, "more than %d anchors",
				 MAX_ANCHORS);
	struct anchor *grown = reallocarray(b->anchors, b->n_anchors + 1, sizeof(*grown));
	if (!grown)
		return out_of_memory(err);
	b->anchors = grown;
	grown[b->n_anchors] = (struct anchor){ strdup((const char *)name), node };
	return grown[b->n_anchors++].name ? 0 : out_of_memory(err);
}

static int on_scalar(struct builder *b, const yaml_event_t *e, struct forge_error *err)
{
	const char *value = (const char *)e->data.scalar.value;
	struct forge_yaml *node;

	int rc = refuse_extras(b, e, e->data.scalar.anchor, e->data.scalar.tag, err);
	if (rc < 0)
		return rc;
	/* "\0" in double quotes is legal YAML, and would end our strings early. */
	if (memchr(value, '\0', e->data.scalar.length))
		return FAIL_MARK(b, e->start_mark, err,
				 "a value must not contain a NUL byte");
	if (expects_key(b))
		return on_key(b, value, e, err);
	bool is_empty_document = b->depth == 0 && is_null(e);
	rc = add_node(b, is_empty_document ? FORGE_YAML_MAP : FORGE_YAML_SCALAR,
		      e->start_mark, &node, err);
	if (rc < 0 || is_empty_document)
		return rc;
	node->scalar = strdup(is_null(e) ? "" : value);
	return node->scalar ? note_anchor(b, e->data.scalar.anchor, node, e, err)
			    : out_of_memory(err);
}

/* Adds a copy of a node and its content as the next child. */
static int copy_node(struct builder *b, const struct forge_yaml *from,
		     const yaml_event_t *e, struct forge_error *err)
{
	struct forge_yaml *node;
	int rc = add_node(b, from->type, e->start_mark, &node, err);

	if (rc < 0)
		return rc;
	if (from->type == FORGE_YAML_SCALAR) {
		node->scalar = strdup(from->scalar);
		return node->scalar ? 0 : out_of_memory(err);
	}
	if (b->depth == MAX_DEPTH)
		return FAIL_MARK(b, e->start_mark, err, "nested more than %d levels deep",
				 MAX_DEPTH);
	b->stack[b->depth++] = (struct frame){ .node = node, .tail = &node->child };
	for (const struct forge_yaml *n = from->child; n && rc == 0; n = n->next) {
		b->key = n->key ? strdup(n->key) : NULL;
		b->key_mark = e->start_mark;
		rc = n->key && !b->key ? out_of_memory(err) : copy_node(b, n, e, err);
	}
	b->depth--;
	return rc;
}

static int on_alias(struct builder *b, const yaml_event_t *e, struct forge_error *err)
{
	const char *name = (const char *)e->data.alias.anchor;
	const struct forge_yaml *node = NULL;

	if (!b->bounds->takes_any)
		return FAIL_MARK(
			b, e->start_mark, err,
			"aliases are not supported ('*%.40s'): write the value out",
			name);
	for (size_t i = 0; i < b->n_anchors; i++)
		if (strcmp(b->anchors[i].name, name) == 0)
			node = b->anchors[i].node;
	if (!node)
		return FAIL_MARK(b, e->start_mark, err, "there is no anchor '&%.40s'",
				 name);
	/* The copy would have no end. */
	for (size_t i = 0; i < b->depth; i++)
		if (b->stack[i].node == node)
			return FAIL_MARK(b, e->start_mark, err,
					 "'*%.40s' is inside what it names", name);
	if (!expects_key(b))
		return copy_node(b, node, e, err);
	if (node->type != FORGE_YAML_SCALAR)
		return FAIL_MARK(b, e->start_mark, err, "a key must be a word");
	return on_key(b, node->scalar, e, err);
}

static int on_open(struct builder *b, const yaml_event_t *e, enum forge_yaml_type type,
		   struct forge_error *err)
{
	bool is_map = type == FORGE_YAML_MAP;
	struct forge_yaml *node;

	int rc = refuse_extras(
		b, e,
		is_map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor,
		is_map ? e->data.mapping_start.tag : e->data.sequence_start.tag, err);
	if (rc < 0)
		return rc;
	if (expects_key(b))
		return FAIL_MARK(b, e->start_mark, err, "a key must be a word, not a %s",
				 is_map ? "map" : "list");
	if (b->depth == MAX_DEPTH)
		return FAIL_MARK(b, e->start_mark, err, "nested more than %d levels deep",
				 MAX_DEPTH);
	rc = add_node(b, type, e->start_mark, &node, err);
	if (rc < 0)
		return rc;
	b->stack[b->depth++] = (struct frame){ .node = node, .tail = &node->child };
	return note_anchor(
		b, is_map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor,
		node, e, err);
}

static int on_document(struct builder *b, const yaml_event_t *e, struct forge_error *err)
{
	if (!b->bounds->takes_any && (e->data.document_start.version_directive ||
			      e->data.document_start.tag_directives.start !=
				      e->data.document_start.tag_directives.end))
		return FAIL_MARK(b, e->start_mark, err,
				 "directives ('%%...') are not supported");
	if (b->n_documents++ > 0)
		return FAIL_MARK(b, e->start_mark, err,
				 "a second document ('---') is not supported");
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct forge_yaml *x = *(struct forge_yaml *const *)a;
	const struct forge_yaml *y = *(struct forge_yaml *const *)b;
	int order = strcmp(x->key, y->key);

	return order ? order : (x->key_line > y->key_line) - (x->key_line < y->key_line);
}

/* The end of a map with many keys: looks for those that are there twice. */
static int check_keys(const struct builder *b, const struct frame *f,
		      struct forge_error *err)
{
	size_t n = 0;
	int rc = 0;

	if (f->n_keys <= MAX_COMPARED)
		return 0;
	struct forge_yaml **sorted = calloc(f->n_keys, sizeof(struct forge_yaml *));
	if (!sorted)
		return out_of_memory(err);
	for (struct forge_yaml *c = f->node->child; c && n < f->n_keys; c = c->next)
		sorted[n++] = c;
	qsort(sorted, n, sizeof(struct forge_yaml *), by_key);
	for (size_t i = 1; i < n && rc == 0; i++)
		if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
			rc = duplicate(b, sorted[i]->key_line, sorted[i]->key_column,
				       sorted[i]->key, sorted[i - 1], err);
	free(sorted);
	return rc;
}

static int on_event(struct builder *b, const yaml_event_t *e, struct forge_error *err)
{
	switch (e->type) {
	case YAML_DOCUMENT_START_EVENT:
		return on_document(b, e, err);
	case YAML_ALIAS_EVENT:
		return on_alias(b, e, err);
	case YAML_SCALAR_EVENT:
		return on_scalar(b, e, err);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(b, e, FORGE_YAML_LIST, err);
	case YAML_MAPPING_START_EVENT:
		return on_open(b, e, FORGE_YAML_MAP, err);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		b->depth--;
		return check_keys(b, &b->stack[b->depth], err);
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_STREAM_END_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		return 0;
	}
	return 0;
}

static int build(struct builder *b, const char *text, size_t len, struct forge_error *err)
{
	yaml_event_type_t type = YAML_NO_EVENT;

	while (type != YAML_STREAM_END_EVENT) {
		FORGE_CLEANUP(event_done) yaml_event_t event = { .type = YAML_NO_EVENT };
		if (!yaml_parser_parse(&b->parser, &event))
			return parser_failed(b, text, len, err);
		type = event.type;
		int rc = on_event(b, &event, err);
		if (rc < 0)
			return rc;
	}
	if (b->root)
		return 0;
	/* The text has only comments. */
	struct forge_yaml *node;
	return add_node(b, FORGE_YAML_MAP, (yaml_mark_t){ 0 }, &node, err);
}

static int parse(const char *text, size_t len, const char *name,
		 const struct bounds *bounds, struct forge_yaml **ret,
		 struct forge_error *err)
{
	FORGE_CLEANUP(builder_done)
	struct builder b = { .name = name, .bounds = bounds };

	if (len > bounds->bytes)
		return forge_fail(err, EFBIG, "%s: more than %s", name,
				  bounds->bytes_text);
	const char *nul = len > 0 ? memchr(text, '\0', len) : NULL;
	if (nul)
		return FAIL_MARK(&b, mark_of_offset(text, len, (size_t)(nul - text)), err,
				 "not valid YAML: NUL byte");
	if (!yaml_parser_initialize(&b.parser))
		return out_of_memory(err);
	/* Set explicitly: a byte order mark must not switch the parser to UTF-16. */
	yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&b.parser, (const unsigned char *)(text ? text : ""),
				     len);
	int rc = build(&b, text, len, err);
	if (rc < 0)
		return rc;
	*ret = forge_take_ptr(b.root);
	return 0;
}

int forge_yaml_parse(const char *text, size_t len, const char *name,
		     struct forge_yaml **ret, struct forge_error *err)
{
	return parse(text, len, name, &own, ret, err);
}

int forge_yaml_parse_any(const char *text, size_t len, const char *name,
			 struct forge_yaml **ret, struct forge_error *err)
{
	return parse(text, len, name, &any, ret, err);
}

int forge_yaml_parse_large(const char *text, size_t len, const char *name,
			   struct forge_yaml **ret, struct forge_error *err)
{
	return parse(text, len, name, &large, ret, err);
}

void forge_yaml_free(struct forge_yaml *node)
{
	while (node) {
		struct forge_yaml *next = node->next;
		forge_yaml_free(node->child); /* at most MAX_DEPTH deep */
		free(node->key);
		free(node->scalar);
		free(node);
		node = next;
	}
}
