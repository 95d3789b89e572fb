/* SPDX-License-Identifier: Apache-2.0 */
#include "leftovers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver/undo_journal.h"
#include "driver/uvm_ops.h"
#include "policy/driver_actuator.h"
#include "policy/worker.h"
#include "util/config.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define KILLED "left by a daemon that was killed"

/* gpuobsd --undo, which may have the journal when the daemon starts, takes milliseconds. */
#define WAIT_NS (2 * NSEC_PER_SEC)
#define STEP_NS (20 * NSEC_PER_MSEC)

/* NULL on no memory. */
static char *journal_path(const struct config *c)
{
        char *path;

        return asprintf(&path, "%s.undo", c->database) < 0 ? NULL : path;
}

static int open_journal(const char *path, struct undo_journal **ret_journal)
{
        uint8_t boot[16];
        int r = undo_boot_id(boot);

        if (r == 0)
                r = undo_journal_open(&undo_io_default, path, boot, ret_journal);
        if (r == 0 && undo_journal_damaged(*ret_journal))
                log_warning(
                        "%s: %" PRIu64 " notes cannot be read: what they are about is not set "
                        "back, unless they were being written as the daemon was killed, when it "
                        "was not set either; end these processes if in doubt",
                        path, undo_journal_damaged(*ret_journal));
        return r;
}

/* Why it cannot be opened. */
static const char *reason(int error)
{
        switch (error) {
        case -EBUSY:
                return "another gpuobsd has it";
        case -EMEDIUMTYPE:
                return "this is no journal of gpuobsd: move it away";
        case -EACCES:
                return "permission denied: this is for root";
        default:
                return strerror(-error);
        }
}

int leftovers_open_journal(const struct config *c, struct undo_journal **ret_journal)
{
        _cleanup_free_ char *path = journal_path(c);
        uint64_t until_ns = now_ns() + WAIT_NS;
        int r = path ? open_journal(path, ret_journal) : -ENOMEM;

        while (r == -EBUSY && now_ns() < until_ns) {
                (void)nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
                r = open_journal(path, ret_journal);
        }
        if (r < 0 && path)
                log_warning("%s: %s; policies can neither advise on managed memory nor set time "
                            "slices until the daemon is started again",
                            path, reason(r));
        return r;
}

/* ---- setting back, in a thread, as the driver may not return ---- */

struct setting_back {
        struct uvm_ops *ops;                   /* NULL: of time slices */
        struct driver_actuator_options slices; /* else */
        const struct undo_entry *next;         /* what the order now being given is about */
        size_t undone, gone, failed, stuck;    /* stuck: of those that failed */
};

static int plan(void *data, const struct policy_order *order, void *ret_plan)
{
        const struct setting_back *s = data;

        memcpy(ret_plan, s->next, sizeof(*s->next));
        return 0;
}

static void perform(void *data, const struct policy_order *order, const void *planned,
                    struct policy_result *result)
{
        const struct setting_back *s = data;
        const struct undo_entry *e = planned;

        result->error = s->ops ? uvm_ops_undo(s->ops, e) : driver_actuator_undo(&s->slices, e);
}

static const struct policy_worker_ops setting_back_ops = {.plan = plan, .perform = perform};

static void count(void *data, const struct policy_result *result)
{
        struct setting_back *s = data;

        if (result->late)
                return; /* counted as failed, though it may have come to a good end */
        s->undone += result->error == 0;
        s->gone += result->error == -ESRCH;
        s->failed += result->error < 0 && result->error != -ESRCH;
        s->stuck += result->error == -EINPROGRESS;
}

static void order(struct setting_back *s, struct policy_worker *w, const struct undo_entry *e)
{
        const struct policy_order o = {
                .id = e->id, .pid = (uint32_t)e->pid, .start_ticks = e->start_ticks, .undo = true};

        s->next = e;
        while (!policy_worker_submit(w, &o))
                policy_worker_flush(w, count, s);
}

static void set_back_with(struct setting_back *s, struct policy_worker *w,
                          struct undo_journal *journal, struct undo_entry *entries)
{
        size_t n = undo_journal_list(journal, entries, UNDO_ENTRIES_MAX);

        policy_worker_hurry(w);
        for (size_t i = 0; i < n; i++)
                if (uvm_ops_is_advice(&entries[i]) == !!s->ops)
                        order(s, w, &entries[i]);
        policy_worker_flush(w, count, s);
}

/* How much failed. */
static size_t set_back(struct setting_back *s, struct undo_journal *journal, const char *what,
                       const char *done)
{
        struct undo_entry *entries = calloc(UNDO_ENTRIES_MAX, sizeof(*entries));
        struct policy_worker *w = NULL;

        if (!entries || policy_worker_new(&setting_back_ops, s, WORKER_LIMIT_NS, &w) < 0)
                s->failed = 1;
        else
                set_back_with(s, w, journal, entries);
        policy_worker_free(w);
        free(entries);
        if (s->undone + s->gone + s->failed)
                log_notice("%s: %zu %s, %zu gone with their processes, %zu failed", what, s->undone,
                           done, s->gone, s->failed);
        if (s->stuck)
                log_warning("%zu of these failed as the driver does not return from a call for "
                            "their process; ending the process may free it",
                            s->stuck);
        return s->failed;
}

/* What a thread in a call that does not return may still look at is not freed. */
static struct setting_back *setting_back_free(struct setting_back *s)
{
        if (!policy_worker_abandoned())
                free(s);
        return NULL;
}
DEFINE_CLEANUP(struct setting_back *, setting_back_free)

size_t leftovers_take_advice_back(struct uvm_ops *ops, struct undo_journal *journal,
                                  const char *whose)
{
        _cleanup_(setting_back_freep) struct setting_back *s = calloc(1, sizeof(*s));
        char what[100];

        if (!s)
                return 1;
        s->ops = ops;
        snprintf(what, sizeof(what), "advice on managed memory, %s", whose);
        return set_back(s, journal, what, "taken back");
}

size_t leftovers_set_slices_back(const struct driver_actuator_options *options, const char *whose)
{
        _cleanup_(setting_back_freep) struct setting_back *s = calloc(1, sizeof(*s));
        char what[100];

        if (!s)
                return 1;
        s->slices = *options;
        snprintf(what, sizeof(what), "time slices %s", whose);
        return set_back(s, options->journal, what, "set back");
}

/* ---- by itself ---- */

/* The same of what they use; the file is let go. */
static void free_tools(struct uvm_ops *ops, struct undo_journal *journal)
{
        if (policy_worker_abandoned()) {
                undo_journal_shut(journal);
                return;
        }
        uvm_ops_free(ops);
        undo_journal_free(journal);
}

/* Takes the journal over. */
static int undo_all(struct undo_journal *journal, size_t *ret_failed)
{
        const struct driver_actuator_options slices = {.journal = journal,
                                                       .tsg = &tsg_system_default};
        struct uvm_ops *ops = NULL;
        int r = uvm_ops_new(&uvm_system_default, journal, &(struct uvm_ops_options){0}, &ops);

        if (r == 0) {
                *ret_failed = leftovers_take_advice_back(ops, journal, KILLED);
                *ret_failed += leftovers_set_slices_back(&slices, KILLED);
        }
        free_tools(ops, journal);
        return r;
}

int leftovers_undo(const struct config *c, char *error, size_t error_size)
{
        _cleanup_free_ char *path = journal_path(c);
        struct undo_journal *journal = NULL;
        size_t failed = 0;
        int r;

        if (path && access(path, F_OK) < 0 && errno == ENOENT)
                return 0; /* no daemon ever was here */
        r = path ? open_journal(path, &journal) : -ENOMEM;
        if (r == 0)
                r = undo_all(journal, &failed);
        if (r == -EBUSY)
                snprintf(error, error_size,
                         "a daemon with the database %s runs; it sets back what it has set when it "
                         "stops",
                         c->database);
        else if (r < 0)
                snprintf(error, error_size, "%s: %s", path ? path : c->database, reason(r));
        if (failed)
                snprintf(error, error_size,
                         "%zu settings could not be set back; the daemon tries again when it "
                         "starts",
                         failed);
        return failed ? -EAGAIN : r;
}
