/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/group_actuator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/group_notes.h"
#include "util/macro.h"

/* A group of an order, at work. */
struct part {
        struct tsg *tsg; /* NULL: it failed */
        int error;
        bool set_back;  /* it failed, and is as it was */
        bool stays;     /* it failed, and what it was could not be set back */
        bool elsewhere; /* on another GPU than the order is about */
        uint8_t gpu[UVM_UUID_BYTES];
        uint64_t before_us;
        uint64_t noted; /* the entry that a newer one takes the place of; 0: none */
};

DEFINE_CLEANUP(struct tsg *, tsg_close)

static bool means_gone(int error)
{
        return error == -ESRCH || error == -EBADF || error == -ENODEV || error == -ENOENT;
}

bool group_actuator_is_known(const uint8_t uuid[UVM_UUID_BYTES])
{
        static const uint8_t unknown[UVM_UUID_BYTES];

        return memcmp(uuid, unknown, sizeof(unknown)) != 0;
}

/* ---- the journal ---- */

static struct tsg_target target_of(const struct undo_entry *e)
{
        return (struct tsg_target){.pid = e->pid,
                                   .start_ticks = e->start_ticks,
                                   .fd = (int)e->values[3],
                                   .client = (uint32_t)e->values[0],
                                   .object = (uint32_t)e->values[1]};
}

static bool is_of_group(const struct undo_entry *e, const struct tsg_target *t)
{
        return e->kind == UNDO_TIME_SLICE && e->pid == t->pid && e->start_ticks == t->start_ticks &&
               e->values[0] == t->client && e->values[1] == t->object;
}

/* The journal's entries, to be freed; NULL on no memory. */
static struct undo_entry *list_journal(const struct driver_actuator_options *o, size_t *ret_count)
{
        struct undo_entry *entries = calloc(UNDO_ENTRIES_MAX, sizeof(*entries));
        size_t n = entries ? undo_journal_list(o->journal, entries, UNDO_ENTRIES_MAX) : 0;

        *ret_count = n < UNDO_ENTRIES_MAX ? n : UNDO_ENTRIES_MAX;
        return entries;
}

static const struct undo_entry *find_noted(const struct undo_entry *entries, size_t n,
                                           const struct tsg_target *t)
{
        for (size_t i = 0; i < n; i++)
                if (is_of_group(&entries[i], t))
                        return &entries[i];
        return NULL;
}

static bool is_gone(const struct driver_actuator_options *o, const struct undo_entry *e)
{
        const struct tsg_target target = target_of(e);
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        uint64_t now_us;
        int r = tsg_open_any(o->tsg, &target, &t);

        if (r == 0)
                r = tsg_get_timeslice(t, &now_us);
        return means_gone(r);
}

/*
 * In a journal that is full: what groups had that their processes have freed since. These are
 * others than the order's, and the driver may not return from a call about one of them.
 */
static void forget_gone(const struct driver_actuator_options *o, const struct policy_order *order,
                        const struct undo_entry *entries, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const struct undo_entry *e = &entries[i];

                if (e->kind == UNDO_TIME_SLICE &&
                    policy_worker_turn_to((uint32_t)e->pid, e->start_ticks) && is_gone(o, e))
                        (void)undo_journal_done(o->journal, e->id);
        }
        (void)policy_worker_turn_to(order->pid, order->start_ticks);
}

/* ---- noting what is to be set back ---- */

/*
 * What the slice was before the first policy came is noted once: whoever is the
 * last to go sets that back. What the process has set itself since takes its place; both
 * are in the journal for a moment, and the later one is set back last.
 */
static bool is_to_note(const struct undo_entry *entries, size_t n, const struct tsg_target *t,
                       struct part *part)
{
        const struct undo_entry *noted = find_noted(entries, n, t);

        if (noted && (!t->slice_us || noted->values[2] == t->slice_us))
                return false;
        part->noted = noted ? noted->id : 0;
        return true;
}

static struct undo_entry entry_of(const struct policy_order *order, const struct tsg_target *t,
                                  const struct part *part)
{
        struct undo_entry e = {
                .kind = UNDO_TIME_SLICE,
                .pid = t->pid,
                .start_ticks = t->start_ticks,
                .values = {t->client, t->object, t->slice_us ? t->slice_us : part->before_us,
                           (uint64_t)t->fd},
        };

        snprintf(e.owner, sizeof(e.owner), "%s", order->owner);
        memcpy(e.uuid, part->gpu, sizeof(e.uuid));
        return e;
}

/* All at once, and to the disk once. The number that is there; -errno: none. */
static int add_notes(const struct driver_actuator_options *o, const struct policy_order *order,
                     struct undo_entry *notes, size_t n, const struct undo_entry *entries,
                     size_t entry_count)
{
        size_t added = 0, more = 0;
        int r = undo_journal_add_all(o->journal, notes, n, &added);

        if (r == 0 && added < n) {
                forget_gone(o, order, entries, entry_count);
                r = undo_journal_add_all(o->journal, notes + added, n - added, &more);
        }
        return added + more || r == 0 ? (int)(added + more) : r;
}

/* Whether what is known will do to note it, and that it is to be noted. */
static bool is_notable(const struct group_choice *choice, const struct tsg_target *group)
{
        return group->slice_us && (!choice->has_gpu || group_actuator_is_known(group->gpu));
}

/*
 * Whether it was noted as the order was taken, and what is in the journal is that or newer: the
 * process may have set another slice since, which an order that waits has noted.
 */
static bool is_noted_since(const struct driver_actuator_options *o,
                           const struct group_choice *choice, const struct tsg_target *group,
                           const struct part *part)
{
        return part->noted && o->notes && is_notable(choice, group) &&
               group_notes_missed(o->notes) == choice->missed;
}

/* Before anything is set; a group that cannot be noted is not set. */
static void note_slices(const struct driver_actuator_options *o, const struct policy_order *order,
                        const struct group_choice *choice, struct part *parts)
{
        const struct tsg_target *groups = choice->list;
        size_t entry_count, count = choice->count, n = 0;
        _cleanup_free_ struct undo_entry *notes = calloc(count, sizeof(*notes));
        _cleanup_free_ size_t *of = calloc(count, sizeof(*of));
        _cleanup_free_ struct undo_entry *entries = NULL;
        int added;

        entries = list_journal(o, &entry_count);
        if (!notes || !of || !entries) {
                for (size_t i = 0; i < count; i++)
                        parts[i].error = -ENOMEM;
                return;
        }
        for (size_t i = 0; i < count; i++) {
                if (!parts[i].tsg || !is_to_note(entries, entry_count, &groups[i], &parts[i]) ||
                    is_noted_since(o, choice, &groups[i], &parts[i]))
                        continue;
                notes[n] = entry_of(order, &groups[i], &parts[i]);
                of[n++] = i;
        }
        added = n ? add_notes(o, order, notes, n, entries, entry_count) : 0;
        for (size_t i = 0; i < n; i++) {
                struct part *part = &parts[of[i]];

                if ((int)i < added && part->noted)
                        (void)undo_journal_done(o->journal, part->noted);
                if ((int)i >= added)
                        part->error = -EIO; /* a full disk is no full GPU */
        }
}

/* ---- noting for all orders that wait ---- */

void group_actuator_note(const struct driver_actuator_options *o, const struct policy_order *order,
                         struct group_choice *choice)
{
        choice->missed = o->notes ? group_notes_missed(o->notes) : 0;
        for (size_t i = 0; o->notes && i < choice->count; i++) {
                const struct tsg_target *group = &choice->list[i];
                struct part part = {0};
                struct undo_entry e;

                memcpy(part.gpu, group->gpu, sizeof(part.gpu));
                e = entry_of(order, group, &part);
                if (is_notable(choice, group))
                        group_notes_add(o->notes, &e);
        }
}

/* Of two about the same group, the later one is right. */
static bool is_superseded(const struct undo_entry *notes, size_t n, size_t i)
{
        const struct tsg_target t = target_of(&notes[i]);

        return find_noted(&notes[i + 1], n - i - 1, &t);
}

/*
 * Those that are not noted already, to the front; replaced: what each takes the place of, or 0.
 * 0 or -ENOMEM.
 */
static int select_notes(const struct driver_actuator_options *o, struct undo_entry *notes, size_t n,
                        uint64_t *replaced, size_t *ret_kept)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        size_t entry_count, kept = 0;

        entries = list_journal(o, &entry_count);
        if (!entries)
                return -ENOMEM;
        for (size_t i = 0; i < n; i++) {
                struct tsg_target t = target_of(&notes[i]);
                struct part part = {0};

                t.slice_us = notes[i].values[2];
                if (is_superseded(notes, n, i) || !is_to_note(entries, entry_count, &t, &part))
                        continue;
                replaced[kept] = part.noted;
                notes[kept++] = notes[i];
        }
        *ret_kept = kept;
        return 0;
}

/* False: not all are written, or were so already. */
static bool write_taken(const struct driver_actuator_options *o, struct undo_entry *notes, size_t n)
{
        _cleanup_free_ uint64_t *replaced = calloc(n, sizeof(*replaced));
        size_t kept, added = 0;

        if (!replaced || select_notes(o, notes, n, replaced, &kept) < 0)
                return false;
        if (kept && undo_journal_add_all(o->journal, notes, kept, &added) < 0)
                return false;
        for (size_t i = 0; i < added; i++)
                if (replaced[i])
                        (void)undo_journal_done(o->journal, replaced[i]);
        return added == kept;
}

/* What cannot be written now its own order tries again, and is not carried out without. */
static void write_notes(const struct driver_actuator_options *o)
{
        _cleanup_free_ struct undo_entry *notes = NULL;
        size_t n;

        notes = group_notes_take(o->notes, &n);
        if (n && !write_taken(o, notes, n))
                group_notes_miss(o->notes);
}

void driver_actuator_forget(const struct driver_actuator_options *o, pid_t pid,
                            uint64_t start_ticks)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        size_t n;

        if (o->notes)
                group_notes_ended(o->notes, pid, start_ticks);
        entries = list_journal(o, &n);
        for (size_t i = 0; i < n; i++)
                if (entries[i].kind == UNDO_TIME_SLICE && entries[i].pid == pid &&
                    entries[i].start_ticks == start_ticks)
                        (void)undo_journal_done(o->journal, entries[i].id);
}

static bool is_chosen(const struct group_choice *choice, const struct undo_entry *e)
{
        for (size_t i = 0; i < choice->count; i++)
                if (is_of_group(e, &choice->list[i]))
                        return true;
        return false;
}

/* Handles of clients are not used again: those of what the process runs now are others. */
static void forget_chosen(const struct driver_actuator_options *o,
                          const struct group_choice *choice)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        size_t n;

        entries = list_journal(o, &n);
        for (size_t i = 0; i < n; i++)
                if (is_chosen(choice, &entries[i]))
                        (void)undo_journal_done(o->journal, entries[i].id);
}

void group_actuator_release(const struct driver_actuator_options *o, struct group_choice *choice)
{
        if (o->notes && group_notes_unwatch(o->notes, choice->process))
                forget_chosen(o, choice);
        free(choice->list);
}

/* ---- carrying out ---- */

/*
 * Where an order is about one GPU the driver is asked whose the group is: its handle may be another
 * group's by now. What was seen as it was made has to do where the driver does not tell.
 */
static void check_gpu(const struct group_choice *choice, const struct tsg_target *group,
                      struct part *part)
{
        int r;

        memcpy(part->gpu, group->gpu, sizeof(part->gpu));
        if (!choice->has_gpu)
                return;
        r = tsg_get_gpu(part->tsg, part->gpu);
        if (r < 0 && (means_gone(r) || !group_actuator_is_known(group->gpu)))
                part->error = r;
        else
                part->elsewhere = memcmp(part->gpu, choice->gpu, sizeof(part->gpu)) != 0;
}

/* tsg stays NULL where the group is not to be acted on. */
static void open_part(const struct driver_actuator_options *o, const struct group_choice *choice,
                      const struct tsg_target *group, struct part *part)
{
        part->error = tsg_open(o->tsg, group, &part->tsg);
        if (part->error == 0)
                check_gpu(choice, group, part);
        if (part->error < 0 || part->elsewhere)
                part->tsg = tsg_close(part->tsg);
}

/* What counts as failed is not left in force, whatever it was that failed. */
static void set_slice(const struct policy_order *order, struct part *part)
{
        uint64_t now_us = 0;
        int r;

        part->error = tsg_set_timeslice(part->tsg, order->action.value, &now_us);
        if (part->error == 0 || means_gone(part->error))
                return;
        r = tsg_set_timeslice(part->tsg, part->before_us, &now_us);
        if (r < 0)
                r = tsg_get_timeslice(part->tsg, &now_us);
        part->set_back = r == 0 && now_us == part->before_us;
        part->stays = !part->set_back && !means_gone(r);
}

/* A group that is as the process had it needs no note, nor does one that has gone. */
static bool needs_note(const struct driver_actuator_options *o, const struct undo_entry *e,
                       const struct group_choice *choice, const struct part *parts)
{
        for (size_t i = 0; i < choice->count; i++) {
                if (!is_of_group(e, &choice->list[i]))
                        continue;
                if (means_gone(parts[i].error))
                        return !is_gone(o, e);
                return !parts[i].set_back || parts[i].before_us != e->values[2];
        }
        return true;
}

static void settle_notes(const struct driver_actuator_options *o, const struct group_choice *choice,
                         const struct part *parts)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        bool any = false;
        size_t n = 0;

        for (size_t i = 0; i < choice->count; i++)
                any = any || parts[i].set_back || means_gone(parts[i].error);
        entries = any ? list_journal(o, &n) : NULL;
        for (size_t i = 0; i < n; i++)
                if (!needs_note(o, &entries[i], choice, parts))
                        (void)undo_journal_done(o->journal, entries[i].id);
}

static void read_slice(struct part *part)
{
        if (part->tsg)
                part->error = tsg_get_timeslice(part->tsg, &part->before_us);
        if (part->error == 0 && part->tsg && !part->before_us)
                part->error = -EOPNOTSUPP; /* none can be set back to none */
        if (part->error < 0)
                part->tsg = tsg_close(part->tsg);
}

static void set_slices(const struct driver_actuator_options *o, const struct policy_order *order,
                       const struct group_choice *choice, struct part *parts)
{
        if (o->notes)
                write_notes(o);
        for (size_t i = 0; i < choice->count; i++) {
                open_part(o, choice, &choice->list[i], &parts[i]);
                read_slice(&parts[i]);
        }
        note_slices(o, order, choice, parts);
        for (size_t i = 0; i < choice->count; i++) {
                if (parts[i].tsg && parts[i].error == 0)
                        set_slice(order, &parts[i]);
                tsg_close(parts[i].tsg);
        }
        settle_notes(o, choice, parts);
}

static void preempt(const struct driver_actuator_options *o, const struct group_choice *choice,
                    struct part *parts)
{
        for (size_t i = 0; i < choice->count; i++) {
                open_part(o, choice, &choice->list[i], &parts[i]);
                if (parts[i].tsg)
                        parts[i].error = tsg_preempt(parts[i].tsg, 0);
                tsg_close(parts[i].tsg);
        }
}

/*
 * A group that has gone meanwhile is no failure as long as another one is there. What was
 * set in part is in force, so that it is set back with the rest.
 */
static void sum_up(const struct part *parts, size_t count, size_t beyond,
                   struct policy_result *result)
{
        uint32_t failed = 0;
        bool done = false;

        result->error = -ENODATA; /* no channel group is known */
        result->in_part = false;
        for (size_t i = 0; i < count; i++) {
                if (parts[i].elsewhere)
                        continue;
                if (parts[i].error == 0 && !done)
                        result->before = parts[i].before_us;
                done = done || parts[i].error == 0;
                result->in_part = result->in_part || parts[i].stays;
                if (parts[i].error < 0 && !means_gone(parts[i].error))
                        failed++;
                if (parts[i].error < 0 && (!failed || !means_gone(parts[i].error)))
                        result->error = parts[i].error;
        }
        result->error = done ? 0 : result->error;
        result->in_part = result->in_part && !done;
        result->missed = done ? failed + (uint32_t)beyond : 0;
}

void group_actuator_perform(const struct driver_actuator_options *o,
                            const struct policy_order *order, const struct group_choice *choice,
                            struct policy_result *result)
{
        size_t count = choice->count;
        _cleanup_free_ struct part *parts = calloc(count ? count : 1, sizeof(*parts));

        if (!parts) {
                result->error = -ENOMEM;
                return;
        }
        if (order->action.kind == POLICY_ACTION_preempt)
                preempt(o, choice, parts);
        else
                set_slices(o, order, choice, parts);
        sum_up(parts, count, choice->beyond, result);
}

/* ---- setting back ---- */

static int set_back(const struct driver_actuator_options *o, const struct undo_entry *e)
{
        const struct tsg_target target = target_of(e);
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        uint64_t now_us;
        int r = tsg_open_any(o->tsg, &target, &t);

        return r < 0 ? r : tsg_set_timeslice(t, e->values[2], &now_us);
}

int driver_actuator_undo(const struct driver_actuator_options *o, const struct undo_entry *e)
{
        int r = set_back(o, e);

        r = means_gone(r) ? -ESRCH : r;
        if (r == 0 || r == -ESRCH)
                (void)undo_journal_done(o->journal, e->id);
        return r;
}

/* The GPU of a group in the journal. 0 or -errno. */
static int find_gpu(const struct driver_actuator_options *o, const struct undo_entry *e,
                    uint8_t ret_gpu[UVM_UUID_BYTES])
{
        const struct tsg_target target = target_of(e);
        _cleanup_(tsg_closep) struct tsg *t = NULL;
        int r;

        memcpy(ret_gpu, e->uuid, UVM_UUID_BYTES);
        if (group_actuator_is_known(e->uuid))
                return 0;
        r = tsg_open_any(o->tsg, &target, &t);
        return r < 0 ? r : tsg_get_gpu(t, ret_gpu);
}

/* gpu NULL: whatever it is on. 0 also where it is on another; -errno: it stays noted. */
static int undo_on(const struct driver_actuator_options *o, const struct undo_entry *e,
                   const uint8_t *gpu)
{
        uint8_t found[UVM_UUID_BYTES];
        int r = gpu ? find_gpu(o, e, found) : 0;

        if (gpu && r == 0 && memcmp(gpu, found, sizeof(found)) != 0)
                return 0;
        if (r == 0 || means_gone(r))
                r = driver_actuator_undo(o, e);
        return r == -ESRCH ? 0 : r;
}

int group_actuator_undo(const struct driver_actuator_options *o, pid_t pid, uint64_t start_ticks,
                        const uint8_t *gpu)
{
        _cleanup_free_ struct undo_entry *entries = NULL;
        size_t n;
        int r;

        if (o->notes)
                write_notes(o); /* of orders that were refused */
        entries = list_journal(o, &n);
        r = entries ? 0 : -EIO;
        for (size_t i = 0; i < n; i++)
                if (entries[i].kind == UNDO_TIME_SLICE && entries[i].pid == pid &&
                    entries[i].start_ticks == start_ticks && undo_on(o, &entries[i], gpu) < 0)
                        r = -EIO;
        return r;
}
