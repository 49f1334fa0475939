/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots: $FORGE_HOME/active holds numbered files, one for each run that is being carried out. A
 * supervisor locks a free slot for as long as it lives, and writes into it what it is about to make
 * before it makes it. A slot that has content and no lock belonged to a supervisor that was killed.
 *
 * A slot is a sequence of lines. Each line is a JSON object with what is new. A reader joins all
 * complete lines; where a key occurs again, the last value counts. So the size of a slot is the size
 * of what was written, however often it was written to. Slots are emptied and not removed: that is
 * cheaper, and no process ever holds a lock on a file that another process has unlinked.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "state/home.h"

struct forge_slot {
	int fd;		 /* holds the lock, -1: no slot */
	unsigned number; /* root's runs have a host uid for each number */
};
#define FORGE_SLOT_INIT ((struct forge_slot){ .fd = -1 })

/* What the first line of a slot says. All pointers are borrowed. */
struct forge_slot_run {
	const char *run_id;
	const char *store; /* URL */
	const char *executor, *executor_kind;
	bool keeps_workdir;
	/* What the executor is going to make, as an object; its keys are the executor's. NULL: nothing */
	json_t *plan;
};

/*
 * Locks a free slot with a number below n_slots, a low number if possible. *attempt is 0 for the first
 * call; further calls with the same variable return other slots.
 */
FORGE_MUST_CHECK int forge_slot_claim(const struct forge_home *home, unsigned *attempt,
				      unsigned n_slots, struct forge_slot *ret,
				      struct forge_error *err);
/* Writes the first line, before anything of the run is made. */
FORGE_MUST_CHECK int forge_slot_begin(struct forge_slot *s,
				      const struct forge_slot_run *run,
				      struct forge_error *err);
/* Appends a line with the keys of this object, and releases the object. */
FORGE_MUST_CHECK int forge_slot_add(struct forge_slot *s, json_t *object,
				    struct forge_error *err);
/* Appends the record as it is now. Repair completes it when the run is lost. */
FORGE_MUST_CHECK int forge_slot_add_record(struct forge_slot *s, json_t *record,
					   struct forge_error *err);
/* Appends that the workdir is to be kept. */
FORGE_MUST_CHECK int forge_slot_add_keep(struct forge_slot *s, struct forge_error *err);
/*
 * Locks the slot with this number, whose supervisor is dead, and becomes its supervisor. -EWOULDBLOCK: another
 * process has it; -ENOENT: it is empty.
 */
FORGE_MUST_CHECK int forge_slot_take_over(const struct forge_home *home, unsigned number,
					  struct forge_slot *ret, json_t **ret_content,
					  struct forge_error *err);
/* Empties the slot and releases its lock: the run is over and nothing of it is left. */
void forge_slot_close(struct forge_slot *s);
/* Releases the lock and leaves the content: the next repair cleans up. */
void forge_slot_release(struct forge_slot *s);

/*
 * The content of a slot as one object, NULL when there is none (empty, or torn before anything was made).
 * Negative: the slot cannot be read, and must not be taken for an empty one.
 */
FORGE_MUST_CHECK int forge_slot_read(int fd, json_t **ret);
/* The content of the slot of this run, NULL when no slot names it. Negative: some slot cannot be read. */
FORGE_MUST_CHECK int forge_slot_find(const struct forge_home *home, const char *run_id,
				     json_t **ret);
/* The number of the slot of this run; -ENOENT: no slot names it. */
FORGE_MUST_CHECK int forge_slot_number(const struct forge_home *home, const char *run_id);
/*
 * The first line of a slot alone, which says what forge_slot_begin() was told, if the slot has this word
 * anywhere (NULL: in any case); else NULL. For those who look at thousands of slots.
 */
FORGE_MUST_CHECK int forge_slot_read_first(int fd, const char *word, json_t **ret);
/* Whether the text of a slot has this word; not known counts as no. */
bool forge_slot_has(int fd, const char *word);
/* The ids of the runs in all slots, as keys. A slot that cannot be read is left out. NULL: out of memory. */
json_t *forge_slot_ids(const struct forge_home *home);
/*
 * All slots with content, by the ids of their runs, without what is large (the record, and what was saved). A
 * slot that cannot be read is left out. NULL: out of memory.
 */
json_t *forge_slot_all(const struct forge_home *home);
/*
 * Whether a slot names the run: its supervisor lives (here or in another pid namespace), or the supervisor
 * is dead and repair has not cleaned up yet. True also when a slot cannot be read.
 */
bool forge_slot_exists(const struct forge_home *home, const char *run_id);
/* The record of a run without a verdict, as it was when the run began. NULL: no slot has it. */
json_t *forge_slot_record(const struct forge_home *home, const char *run_id);
