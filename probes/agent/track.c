/* SPDX-License-Identifier: Apache-2.0 */
#include "track.h"

uint32_t track_untracked(const struct arch *a, const struct instr *i)
{
        const struct arch_op *op = arch_op(a, i);
        uint32_t dest = instr_register_d(i);

        if (!op || !(op->properties & (ARCH_RESULT_LATE | ARCH_SOURCE_LATE)) ||
            instr_result_scoreboard(i) != INSTR_NO_SCOREBOARD)
                return 0; /* the result comes after the sources were read */
        if (arch_loads_stack_pointer(a, i))
                return 0; /* no probe touches it, and nearly every kernel starts with it */
        if ((op->properties & ARCH_RESULT_LATE) && dest != INSTR_R_ZERO)
                return TRACK_RESULT;
        if ((op->properties & ARCH_SOURCE_LATE) &&
            instr_source_scoreboard(i) == INSTR_NO_SCOREBOARD)
                return TRACK_SOURCE;
        return 0;
}

uint32_t track_predicate(const struct arch *a, const struct instr *i, bool *ret_missing)
{
        /* Without a result, some have no predicate either. */
        bool other = instr_register_d(i) != INSTR_R_ZERO,
             written = other || !arch_has(a, i, ARCH_PREDICATE_LATE);
        uint32_t board = instr_result_scoreboard(i);

        *ret_missing = false;
        if (!arch_predicate_late(a, i))
                return INSTR_NO_SCOREBOARD;
        if (board == INSTR_NO_SCOREBOARD && written && !other)
                board = instr_source_scoreboard(i);
        *ret_missing = written && board == INSTR_NO_SCOREBOARD;
        return board;
}

void track_predicates(const struct arch *a, uint8_t *code, size_t count, uint32_t scoreboard)
{
        for (size_t k = 0; k < count; k++) {
                struct instr i = instr_load(code, k);
                bool missing;

                track_predicate(a, &i, &missing);
                if (!missing)
                        continue;
                if (instr_register_d(&i) != INSTR_R_ZERO)
                        instr_set_result_scoreboard(&i, scoreboard);
                else
                        instr_set_source_scoreboard(&i, scoreboard);
                instr_store(code, k, i);
        }
}

void track_count_waits(struct track_waits *w, uint64_t packed)
{
        for (uint32_t s = 0; s < INSTR_SCOREBOARDS; s++)
                w->waits[s] += packed >> s * TRACK_WAITS_BITS & TRACK_WAITS_MAX;
}

void track_count_depbar(struct track_waits *w, const struct instr *i)
{
        uint32_t scoreboard = (uint32_t)(i->lo >> 44) & 7;

        if (scoreboard < INSTR_SCOREBOARDS)
                w->counted[scoreboard]++;
}

/* Fewest waits. A counted wait would have to wait for much more. */
uint32_t track_quiet_scoreboard(const struct track_waits *w, size_t count)
{
        size_t waits, fewest = SIZE_MAX;
        uint32_t best = 0;

        for (uint32_t s = 0; s < INSTR_SCOREBOARDS; s++) {
                waits = w->waits[s] + w->counted[s] * count;
                if (waits < fewest) {
                        fewest = waits;
                        best = s;
                }
        }
        return best;
}

static uint32_t quiet_scoreboard(const struct arch *a, const uint8_t *code, size_t count)
{
        struct track_waits waits = {.counted = {0}};

        for (size_t k = 0; k < count; k++) {
                struct instr i = instr_load(code, k);

                track_count_waits(&waits, track_packed_waits(&i));
                if (arch_role(a, &i) == ARCH_DEPBAR)
                        track_count_depbar(&waits, &i);
        }
        return track_quiet_scoreboard(&waits, count);
}

/*
 * What is known, going backwards through a run of instructions without control
 * flow, about later instructions: most queues work in order, so if a later
 * instruction of the same opcode is tracked and certain to be issued, waiting for
 * it is waiting for the earlier one. This is how the assembler itself tracks
 * batches of shared-memory loads and of stores.
 */
struct witness {
        uint32_t opcode;
        uint32_t tracks; /* TRACK_* it takes care of */
};

struct witnesses {
        struct witness at[16]; /* more in one run are not worth remembering */
        size_t count;
};

static struct witness *find_witness(struct witnesses *w, uint32_t opcode)
{
        for (size_t k = 0; k < w->count; k++) {
                if (w->at[k].opcode == opcode)
                        return &w->at[k];
        }
        return NULL;
}

static bool tracked_later(const struct arch *a, struct witnesses *w, const struct instr *i,
                          uint32_t need)
{
        const struct witness *later = find_witness(w, instr_opcode(i));

        if (need == TRACK_RESULT && !arch_has(a, i, ARCH_IN_ORDER))
                return false;
        return later && (later->tracks & need);
}

static void remember(struct witnesses *w, const struct instr *i)
{
        struct witness *known;
        uint32_t tracks = 0;

        if (instr_predicate(i) != INSTR_ALWAYS)
                return;
        if (instr_result_scoreboard(i) != INSTR_NO_SCOREBOARD)
                tracks = TRACK_RESULT | TRACK_SOURCE;
        else if (instr_source_scoreboard(i) != INSTR_NO_SCOREBOARD)
                tracks = TRACK_SOURCE;
        if (!tracks)
                return;
        known = find_witness(w, instr_opcode(i));
        if (known)
                known->tracks |= tracks;
        else if (w->count < sizeof(w->at) / sizeof(w->at[0]))
                w->at[w->count++] = (struct witness){instr_opcode(i), tracks};
}

struct tracker {
        const struct arch *arch;
        uint8_t *code;
        size_t count;
        bool trust_order;
        uint32_t scoreboard; /* to give; INSTR_SCOREBOARDS: not chosen yet */
        struct witnesses witnesses;
        size_t changed;
};

static void track_one(struct tracker *t, size_t k, struct instr i, uint32_t need)
{
        if (need && !(t->trust_order && tracked_later(t->arch, &t->witnesses, &i, need))) {
                if (t->scoreboard == INSTR_SCOREBOARDS)
                        t->scoreboard = quiet_scoreboard(t->arch, t->code, t->count);
                if (need == TRACK_RESULT)
                        instr_set_result_scoreboard(&i, t->scoreboard);
                else
                        instr_set_source_scoreboard(&i, t->scoreboard);
                instr_store(t->code, k, i);
                t->changed++;
        }
        remember(&t->witnesses, &i);
}

/* Backwards from `end` (not included) to `begin`. */
static void track_range(struct tracker *t, size_t begin, size_t end)
{
        const struct arch *a = t->arch;

        for (size_t k = end; k-- > begin;) {
                struct instr i = instr_load(t->code, k);
                const struct arch_op *op = arch_op(a, &i);

                if (!op || (op->properties & ARCH_CONTROL))
                        t->witnesses.count = 0;
                if (op && (op->properties & (ARCH_RESULT_LATE | ARCH_SOURCE_LATE)))
                        track_one(t, k, i, track_untracked(a, &i));
        }
}

size_t track_all(const struct arch *a, uint8_t *code, size_t count, bool trust_order)
{
        struct tracker t = {.arch = a,
                            .code = code,
                            .count = count,
                            .trust_order = trust_order,
                            .scoreboard = INSTR_SCOREBOARDS};

        track_range(&t, 0, count);
        return t.changed;
}

size_t track_marked(const struct arch *a, uint8_t *code, size_t count, const uint32_t *marks,
                    size_t mark_count, uint32_t scoreboard)
{
        struct tracker t = {.arch = a,
                            .code = code,
                            .count = count,
                            .trust_order = true,
                            .scoreboard = scoreboard};
        size_t end = count;

        while (mark_count-- > 0) {
                struct instr i = instr_load(code, marks[mark_count]);

                if (track_untracked(a, &i))
                        track_range(&t, marks[mark_count], end);
                else
                        t.witnesses.count = 0;
                end = marks[mark_count];
        }
        return t.changed;
}
