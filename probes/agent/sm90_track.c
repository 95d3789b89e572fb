/* SPDX-License-Identifier: Apache-2.0 */
#include "sm90_track.h"

uint32_t sm90_untracked(const struct sm90_instr *i)
{
        const struct sm90_op *op = sm90_op(i);
        uint32_t dest = (uint32_t)(i->lo >> 16) & 0xff;

        if (!op || !(op->properties & (SM90_RESULT_LATE | SM90_SOURCE_LATE)) ||
            sm90_result_scoreboard(i) != SM90_NO_BARRIER)
                return 0; /* the result comes after the sources were read */
        if (sm90_loads_stack_pointer(i))
                return 0; /* no probe touches it, and nearly every kernel starts with it */
        if ((op->properties & SM90_RESULT_LATE) && dest != SM90_R_ZERO)
                return SM90_UNTRACKED_RESULT;
        if ((op->properties & SM90_SOURCE_LATE) && sm90_source_scoreboard(i) == SM90_NO_BARRIER)
                return SM90_UNTRACKED_SOURCE;
        return 0;
}

void sm90_count_waits(struct sm90_wait_counts *w, uint64_t packed)
{
        for (uint32_t s = 0; s < SM90_SCOREBOARDS; s++)
                w->waits[s] += packed >> s * SM90_WAITS_BITS & SM90_WAITS_MAX;
}

void sm90_count_depbar(struct sm90_wait_counts *w, const struct sm90_instr *i)
{
        uint32_t scoreboard = (uint32_t)(i->lo >> 44) & 7;

        if (scoreboard < SM90_SCOREBOARDS)
                w->counted[scoreboard]++;
}

/* Fewest waits. A counted wait would have to wait for much more. */
uint32_t sm90_quiet_scoreboard(const struct sm90_wait_counts *w, size_t count)
{
        size_t waits, fewest = SIZE_MAX;
        uint32_t best = 0;

        for (uint32_t s = 0; s < SM90_SCOREBOARDS; s++) {
                waits = w->waits[s] + w->counted[s] * count;
                if (waits < fewest) {
                        fewest = waits;
                        best = s;
                }
        }
        return best;
}

static uint32_t quiet_scoreboard(const uint8_t *code, size_t count)
{
        struct sm90_wait_counts waits = {.counted = {0}};

        for (size_t k = 0; k < count; k++) {
                struct sm90_instr i = sm90_load(code, k);

                sm90_count_waits(&waits, sm90_packed_waits(&i));
                if (sm90_opcode(&i) == SM90_DEPBAR)
                        sm90_count_depbar(&waits, &i);
        }
        return sm90_quiet_scoreboard(&waits, count);
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
        uint32_t tracks; /* SM90_UNTRACKED_* it takes care of */
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

static bool tracked_later(struct witnesses *w, const struct sm90_instr *i, uint32_t need)
{
        const struct witness *later = find_witness(w, sm90_opcode(i));

        if (need == SM90_UNTRACKED_RESULT && !(sm90_op(i)->properties & SM90_IN_ORDER))
                return false;
        return later && (later->tracks & need);
}

static void remember(struct witnesses *w, const struct sm90_instr *i)
{
        struct witness *known;
        uint32_t tracks = 0;

        if (sm90_predicate(i) != 7)
                return;
        if (sm90_result_scoreboard(i) != SM90_NO_BARRIER)
                tracks = SM90_UNTRACKED_RESULT | SM90_UNTRACKED_SOURCE;
        else if (sm90_source_scoreboard(i) != SM90_NO_BARRIER)
                tracks = SM90_UNTRACKED_SOURCE;
        if (!tracks)
                return;
        known = find_witness(w, sm90_opcode(i));
        if (known)
                known->tracks |= tracks;
        else if (w->count < sizeof(w->at) / sizeof(w->at[0]))
                w->at[w->count++] = (struct witness){sm90_opcode(i), tracks};
}

struct tracker {
        uint8_t *code;
        size_t count;
        bool trust_order;
        uint32_t scoreboard; /* to give; SM90_SCOREBOARDS: not chosen yet */
        struct witnesses witnesses;
        size_t changed;
};

static void track_one(struct tracker *t, size_t k, struct sm90_instr i, uint32_t need)
{
        unsigned shift = need == SM90_UNTRACKED_RESULT ? 46 : 49;

        if (need && !(t->trust_order && tracked_later(&t->witnesses, &i, need))) {
                if (t->scoreboard == SM90_SCOREBOARDS)
                        t->scoreboard = quiet_scoreboard(t->code, t->count);
                i.hi = (i.hi & ~(7ULL << shift)) | (uint64_t)t->scoreboard << shift;
                sm90_store(t->code, k, i);
                t->changed++;
        }
        remember(&t->witnesses, &i);
}

/* Backwards from `end` (not included) to `begin`. */
static void track_range(struct tracker *t, size_t begin, size_t end)
{
        for (size_t k = end; k-- > begin;) {
                struct sm90_instr i = sm90_load(t->code, k);
                const struct sm90_op *op = sm90_op(&i);

                if (!op || (op->properties & SM90_CONTROL))
                        t->witnesses.count = 0;
                if (op && (op->properties & (SM90_RESULT_LATE | SM90_SOURCE_LATE)))
                        track_one(t, k, i, sm90_untracked(&i));
        }
}

size_t sm90_track_all(uint8_t *code, size_t count, bool trust_order)
{
        struct tracker t = {.code = code,
                            .count = count,
                            .trust_order = trust_order,
                            .scoreboard = SM90_SCOREBOARDS};

        track_range(&t, 0, count);
        return t.changed;
}

size_t sm90_track_marked(uint8_t *code, size_t count, const uint32_t *marks, size_t mark_count,
                         uint32_t scoreboard)
{
        struct tracker t = {
                .code = code, .count = count, .trust_order = true, .scoreboard = scoreboard};
        size_t end = count;

        while (mark_count-- > 0) {
                struct sm90_instr i = sm90_load(code, marks[mark_count]);

                if (sm90_untracked(&i))
                        track_range(&t, marks[mark_count], end);
                else
                        t.witnesses.count = 0;
                end = marks[mark_count];
        }
        return t.changed;
}
