/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the kernel memory that no cgroup is charged for; see kernel_memory.h. */
#include "sandbox/kernel_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>

#include "base/fd.h"
#include "sandbox/kernel_numbers.h"

#define MIB (1LL << 20)
/* Growth beyond the run's room that starts a trial; the number varies by a few MiB by itself. */
#define SUSPICIOUS (32 * MIB)
/* Growth of the near number from which on the exact number, which costs more, is read too. */
#define NOTEWORTHY (16 * MIB)
/*
 * No kernel allocates faster. A run that used less CPU time than the growth takes at this rate
 * is not the cause.
 */
#define BYTES_PER_USEC 8000
/* Time between two looks while the run uses CPU time, and while it does not ... */
#define BUSY_USEC 20000
#define IDLE_USEC 50000
/* ... and while the number is close to the threshold. */
#define NEAR_USEC 5000
/* CPU time of the run since the last look that makes another look worth its cost. */
#define WORTH_USEC 3000
/*
 * How long a run is frozen, and then let run, in each round of a trial; longer if the number
 * grew slowly.
 */
#define SHORT_USEC   4000
#define LONG_USEC    50000
#define LONGEST_USEC 400000
#define SHORT_ROUNDS 5
#define LONG_ROUNDS  5
/* Rounds that must each point to the run: a single one can be chance. */
#define SHORT_ALIKE 3
#define LONG_ALIKE  3
/* Growth that a long phase should show if the run is the cause. */
#define SHOWN (4 * MIB)
/* The number varies by this much by itself. */
#define NOISE (2 * MIB)
/* Unclear trials with signs against the run: so many within this time are not chance. */
#define STRIKES	     2
#define STRIKES_USEC 60000000ULL

enum phase { WATCHING, STOPPED, MOVING };

struct forge_kernel_memory {
	struct forge_kernel_numbers numbers;
	enum phase phase;
	int64_t rough_start, near_base;	   /* at the start; the lowest so far */
	struct forge_kernel_reading base;  /* when the number was lowest */
	int64_t carried;		   /* growth from before base that still counts */
	uint64_t base_usec, base_cpu_usec; /* the time, and the run's CPU time, at base */
	uint64_t moment_usec;
	uint64_t waiting_usec; /* since when it waits for its turn, 0: it does not */
	uint64_t looked_usec, looked_cpu_usec;
	struct forge_kernel_reading phase_start;
	uint64_t phase_usec;
	int64_t grew_stopped; /* in the frozen phase before this phase */
	uint64_t usec_stopped;
	struct forge_memory_trial trial;
	bool is_open, is_near, is_strict, knows_strict;
	unsigned strikes;
	uint64_t strike_usec;
};

/* ---- the trial ---- */

enum forge_memory_opinion forge_memory_judge(const struct forge_memory_trial *t)
{
	int64_t least = t->is_slow ? 3 * SHOWN / 2 : 2 * SHOWN;
	int64_t stopped = t->grew_stopped > 0 ? t->grew_stopped : 0;
	/* Growth rates, each multiplied by both times. */
	double rate_moving = (double)t->grew_moving * (double)t->usec_stopped;
	double rate_stopped = (double)stopped * (double)t->usec_moving;

	if (t->alike >= (t->is_slow ? LONG_ALIKE : SHORT_ALIKE) &&
	    t->grew_moving >= least && rate_moving >= 4 * rate_stopped)
		return FORGE_MEMORY_CAUSED;
	/*
	 * A little growth while the run was frozen can be chance: then the answer waits for all
	 * rounds.
	 */
	bool is_last = t->rounds >= (t->is_slow ? LONG_ROUNDS : SHORT_ROUNDS);
	if (stopped >= (is_last ? NOISE : 4 * NOISE) && 2 * rate_stopped >= rate_moving)
		return FORGE_MEMORY_NOT_CAUSED;
	return FORGE_MEMORY_UNCLEAR;
}

void forge_memory_note(struct forge_memory_trial *t, int64_t grew_stopped,
		       uint64_t usec_stopped, int64_t grew_moving, uint64_t usec_moving)
{
	double rate_moving = (double)grew_moving * (double)usec_stopped;
	double rate_stopped = (double)grew_stopped * (double)usec_moving;

	t->rounds++;
	if (grew_moving >= (t->is_slow ? SHOWN / 2 : SHOWN / 4) &&
	    rate_moving >= 4 * rate_stopped)
		t->alike++;
	/*
	 * Much growth, and none while the run was frozen, is less likely to be chance: it
	 * counts twice.
	 */
	if (grew_moving >= 2 * SHOWN && rate_moving >= 16 * rate_stopped)
		t->alike++;
	t->grew_stopped += grew_stopped;
	t->usec_stopped += usec_stopped;
	t->grew_moving += grew_moving;
	t->usec_moving += usec_moving;
}

static int freeze(const struct forge_kernel_memory *k, bool is_on)
{
	return k->numbers.cg->v2_fd < 0
		       ? -EOPNOTSUPP
		       : forge_write_at(k->numbers.cg->v2_fd, "cgroup.freeze",
					is_on ? "1" : "0");
}

/*
 * A random time between half of usec and one and a half: a neighbour that knew the times could
 * allocate in step with the run.
 */
static uint64_t about(uint64_t usec, uint64_t now)
{
	uint32_t chance = (uint32_t)now * 2654435761u;

	return usec / 2 + usec * (chance >> 22) / 1024;
}

static uint64_t enter(struct forge_kernel_memory *k, enum phase phase,
		      const struct forge_kernel_reading *r, uint64_t now)
{
	k->phase = phase;
	k->phase_start = *r;
	k->phase_usec = now;
	return now + (phase == WATCHING ? BUSY_USEC : about(k->moment_usec, now));
}

/*
 * The host loses the memory that the run is charged for and the memory that no cgroup is
 * charged for. The second is tolerated as long as both together are within the run's limit.
 * Slabs with holes, left when many files were deleted, are such memory. Half of the remaining
 * room is kept for what the run takes during a trial.
 */
static int64_t threshold(const struct forge_kernel_memory *k)
{
	return SUSPICIOUS + forge_kernel_room(&k->numbers) / 2;
}

static void set_base(struct forge_kernel_memory *k, const struct forge_kernel_reading *r,
		     uint64_t now)
{
	k->base = *r;
	k->carried = 0;
	k->base_usec = now;
	k->base_cpu_usec = forge_kernel_cpu_usec(&k->numbers);
}

/*
 * Only one run of the host is tried at a time: two that freeze and run together could not be
 * told apart. The lock is on a file that every supervisor has open anyway, and that no process
 * inside can reach.
 */
#define TURN_USEC  2000
#define TURNS_USEC 400000

static bool has_turn(struct forge_kernel_memory *k, uint64_t now)
{
	bool is_ours = flock(k->numbers.meminfo, LOCK_EX | LOCK_NB) == 0;

	if (!is_ours && !k->waiting_usec)
		k->waiting_usec = now;
	/*
	 * A supervisor that holds the lock for so long does not intend to release it: go on
	 * without the lock.
	 */
	if (!is_ours && now - k->waiting_usec < TURNS_USEC)
		return false;
	k->waiting_usec = 0;
	return true;
}

static void give_turn_back(struct forge_kernel_memory *k)
{
	k->waiting_usec = 0;
	(void)flock(k->numbers.meminfo, LOCK_UN); /* it may not be held */
}

/* How much the number has grown since it was lowest. */
static int64_t grown(const struct forge_kernel_memory *k,
		     const struct forge_kernel_reading *r)
{
	return k->carried + forge_kernel_growth(&k->base, r);
}

/* The run is not the cause, or that is unknown: watching goes on from the present number. */
static uint64_t go_on(struct forge_kernel_memory *k, const struct forge_kernel_reading *r,
		      uint64_t now)
{
	(void)!freeze(k, false);
	give_turn_back(k);
	set_base(k, r, now);
	k->near_base = forge_kernel_near_number(&k->numbers);
	return enter(k, WATCHING, r, now);
}

static uint64_t blame(struct forge_kernel_memory *k, const struct forge_kernel_reading *r,
		      uint64_t now, uint64_t *ret_taken)
{
	give_turn_back(k);
	int64_t grew = grown(k, r);
	/*
	 * Other processes may have freed memory meanwhile. What the run took during the trial
	 * counts in any case.
	 */
	if (grew < k->trial.grew_moving)
		grew = k->trial.grew_moving;
	*ret_taken = grew > 0 ? (uint64_t)grew : 1;
	return now + BUSY_USEC;
}

/*
 * Do the file locks that the run holds make up half of the growth? Then the run is the cause,
 * whatever the trial shows.
 */
static bool holds_it(const struct forge_kernel_memory *k,
		     const struct forge_kernel_reading *r)
{
	int64_t grew = grown(k, r);

	return grew >= SUSPICIOUS &&
	       forge_kernel_bytes_of_locks(&k->numbers, grew / 2) >= grew / 2;
}

static uint64_t acquit(struct forge_kernel_memory *k,
		       const struct forge_kernel_reading *r, uint64_t now,
		       uint64_t *ret_taken)
{
	return holds_it(k, r) ? blame(k, r, now, ret_taken) : go_on(k, r, now);
}

/*
 * The number grew, and the run could be the cause, but the trial shows no growth: the run may
 * have paused. What it holds says more, where that can be seen.
 */
static uint64_t remain_unclear(struct forge_kernel_memory *k,
			       const struct forge_kernel_reading *r, uint64_t now,
			       uint64_t *ret_taken)
{
	int64_t grew = grown(k, r);

	/* The number has fallen again by itself. */
	if (grew < threshold(k) - SUSPICIOUS / 2)
		return go_on(k, r, now);
	if (holds_it(k, r))
		return blame(k, r, now, ret_taken);
	if (!forge_kernel_has_thin_queues(&k->numbers, grew) &&
	    !forge_kernel_is_scarce(&k->numbers))
		return go_on(k, r, now);
	if (now - k->strike_usec > STRIKES_USEC)
		k->strikes = 0;
	k->strike_usec = now;
	if (++k->strikes >= STRIKES)
		return blame(k, r, now, ret_taken);
	/* The next trial starts after half as much growth. */
	uint64_t at = go_on(k, r, now);
	k->carried = threshold(k) - SUSPICIOUS / 2;
	return at;
}

static uint64_t stop_for_a_moment(struct forge_kernel_memory *k,
				  const struct forge_kernel_reading *r, uint64_t now,
				  uint64_t *ret_taken)
{
	/* There is no trial without a cgroup that can be frozen. */
	if (freeze(k, true) < 0)
		return remain_unclear(k, r, now, ret_taken);
	return enter(k, STOPPED, r, now);
}

static uint64_t begin_trial(struct forge_kernel_memory *k,
			    const struct forge_kernel_reading *r, uint64_t now,
			    uint64_t *ret_taken)
{
	k->trial = (struct forge_memory_trial){ 0 };
	k->moment_usec = SHORT_USEC;
	return stop_for_a_moment(k, r, now, ret_taken);
}

/*
 * Makes the phases long enough to show growth at the rate seen so far, unless that takes too
 * long.
 */
static uint64_t begin_slow_trial(struct forge_kernel_memory *k,
				 const struct forge_kernel_reading *r, uint64_t now,
				 uint64_t *ret_taken)
{
	int64_t grew = grown(k, r) > 0 ? grown(k, r) : 1;
	uint64_t usec =
		(uint64_t)((double)SHOWN * (double)(now - k->base_usec) / (double)grew);

	if (usec > LONGEST_USEC)
		return remain_unclear(k, r, now, ret_taken);
	k->trial = (struct forge_memory_trial){ .is_slow = true };
	k->moment_usec = usec < LONG_USEC ? LONG_USEC : usec;
	return stop_for_a_moment(k, r, now, ret_taken);
}

static uint64_t end_round(struct forge_kernel_memory *k,
			  const struct forge_kernel_reading *r, uint64_t now,
			  uint64_t *ret_taken)
{
	struct forge_memory_trial *t = &k->trial;

	switch (forge_memory_judge(t)) {
	case FORGE_MEMORY_CAUSED:
		return blame(k, r, now, ret_taken);
	case FORGE_MEMORY_NOT_CAUSED:
		return acquit(k, r, now, ret_taken);
	case FORGE_MEMORY_UNCLEAR:
		break;
	}
	if (t->rounds < (t->is_slow ? LONG_ROUNDS : SHORT_ROUNDS))
		return stop_for_a_moment(k, r, now, ret_taken);
	if (!k->knows_strict) {
		k->knows_strict = true;
		k->is_strict = forge_kernel_has_plain_file_systems();
	}
	if (t->is_slow || (!k->is_strict && !forge_kernel_is_scarce(&k->numbers)))
		return remain_unclear(k, r, now, ret_taken);
	return begin_slow_trial(k, r, now, ret_taken);
}

/* ---- watching ---- */

static uint64_t watch(struct forge_kernel_memory *k, uint64_t now, uint64_t *ret_taken)
{
	uint64_t used = forge_kernel_cpu_usec(&k->numbers);
	bool is_idle = used != UINT64_MAX && used - k->looked_cpu_usec < WORTH_USEC;

	if (is_idle && !k->waiting_usec && now - k->looked_usec < 1000000)
		return now + (used == k->looked_cpu_usec ? IDLE_USEC : BUSY_USEC);
	k->looked_usec = now;
	k->looked_cpu_usec = used;
	int64_t near = forge_kernel_near_number(&k->numbers);
	if (near < k->near_base)
		k->near_base = near;
	if (near - k->near_base < NOTEWORTHY && !k->is_near && !k->waiting_usec)
		return now + BUSY_USEC;
	struct forge_kernel_reading r;
	forge_kernel_read(&k->numbers, &r);
	k->near_base = near;
	int64_t grew = grown(k, &r), most = threshold(k);
	if (grew <= 0)
		set_base(k, &r, now);
	/*
	 * Close to the threshold the looks are more frequent, to limit what can be taken
	 * between two of them.
	 */
	k->is_near = grew > most - 2 * SUSPICIOUS && grew > NOTEWORTHY / 2;
	if (grew < most) {
		if (k->waiting_usec)
			(void)!freeze(k, false);
		k->waiting_usec = 0;
		return now + (k->is_near ? NEAR_USEC : BUSY_USEC);
	}
	if (used != UINT64_MAX &&
	    (int64_t)(used - k->base_cpu_usec) < grew / BYTES_PER_USEC)
		return go_on(k, &r, now);
	if (!has_turn(k, now)) {
		/*
		 * A run that may be the cause must not go on while it waits, nor disturb the
		 * trial of another run.
		 */
		(void)!freeze(k, true);
		return now + TURN_USEC;
	}
	return begin_trial(k, &r, now, ret_taken);
}

/*
 * Most runs are over before the first look, so only the rough number is read at the start. The
 * rest is read now. What grew in between grew in both the rough and the exact number, so their
 * difference is still that of the start.
 */
static void open_rest(struct forge_kernel_memory *k, uint64_t now)
{
	forge_kernel_numbers_open_rest(&k->numbers);
	forge_kernel_read(&k->numbers, &k->base);
	k->base.rough = k->rough_start;
	k->near_base = k->base.rough - k->base.in_lists;
	k->base_usec = k->looked_usec = now;
	k->is_open = true;
}

uint64_t forge_kernel_memory_step(struct forge_kernel_memory *k, uint64_t now,
				  uint64_t *ret_taken)
{
	*ret_taken = 0;
	if (!k->is_open)
		open_rest(k, now);
	if (k->phase == WATCHING)
		return watch(k, now, ret_taken);
	struct forge_kernel_reading r;
	forge_kernel_read(&k->numbers, &r);
	int64_t grew = forge_kernel_growth(&k->phase_start, &r);
	uint64_t usec = now > k->phase_usec ? now - k->phase_usec : 1;
	if (k->phase == STOPPED) {
		k->grew_stopped = grew;
		k->usec_stopped = usec;
		/*
		 * The number grew this much while the run was frozen: another process is the
		 * cause.
		 */
		if (k->trial.rounds == 0 && grew >= 2 * SHOWN)
			return acquit(k, &r, now, ret_taken);
		(void)!freeze(k, false);
		return enter(k, MOVING, &r, now);
	}
	forge_memory_note(&k->trial, k->grew_stopped, k->usec_stopped, grew, usec);
	return end_round(k, &r, now, ret_taken);
}

int forge_kernel_memory_new(struct forge_cgroup *cg, pid_t init,
			    struct forge_kernel_memory **ret)
{
	*ret = NULL;
	if ((cg->memory_fd < 0 && cg->v2_fd < 0) ||
	    cg->limits.memory_bytes == FORGE_UNLIMITED)
		return 0;
	struct forge_kernel_memory *k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	forge_kernel_numbers_open(&k->numbers, cg, init);
	k->rough_start = forge_kernel_rough_number(&k->numbers);
	*ret = k;
	return 0;
}

void forge_kernel_memory_free(struct forge_kernel_memory *k)
{
	if (!k)
		return;
	if (k->phase == STOPPED || k->waiting_usec)
		(void)!freeze(k, false);
	forge_kernel_numbers_close(&k->numbers);
	free(k);
}
