/* SPDX-License-Identifier: Apache-2.0 */
#include "leftovers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "driver/undo_journal.h"
#include "driver/uvm_ops.h"
#include "policy/driver_actuator.h"
#include "util/config.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define KILLED "left by a daemon that was killed"

/* gpuobsd --undo, which may have the journal when the daemon starts, takes milliseconds. */
#define WAIT_NS (2 * NSEC_PER_SEC)
#define STEP_NS (20 * NSEC_PER_MSEC)

DEFINE_CLEANUP(struct undo_journal *, undo_journal_free)
DEFINE_CLEANUP(struct uvm_ops *, uvm_ops_free)

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

        return r < 0 ? r : undo_journal_open(&undo_io_default, path, boot, ret_journal);
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

size_t leftovers_take_advice_back(struct uvm_ops *ops, const char *whose)
{
        struct uvm_undone u;

        uvm_ops_undo(ops, NULL, &u);
        if (u.undone + u.gone + u.failed)
                log_notice("advice on managed memory, %s: %zu taken back, %zu gone with their "
                           "processes, %zu failed",
                           whose, u.undone, u.gone, u.failed);
        return u.failed;
}

size_t leftovers_set_slices_back(const struct driver_actuator_options *options)
{
        struct actuator_undone u;

        driver_actuator_undo_slices(options, &u);
        if (u.undone + u.gone + u.failed)
                log_notice("time slices " KILLED ": %zu set back, %zu gone with their processes, "
                           "%zu failed",
                           u.undone, u.gone, u.failed);
        return u.failed;
}

static int undo_all(struct undo_journal *journal, size_t *ret_failed)
{
        const struct driver_actuator_options slices = {.journal = journal,
                                                       .tsg = &tsg_system_default};
        _cleanup_(uvm_ops_freep) struct uvm_ops *ops = NULL;
        int r = uvm_ops_new(&uvm_system_default, journal, &(struct uvm_ops_options){0}, &ops);

        if (r < 0)
                return r;
        *ret_failed = leftovers_take_advice_back(ops, KILLED);
        *ret_failed += leftovers_set_slices_back(&slices);
        return 0;
}

int leftovers_undo(const struct config *c, char *error, size_t error_size)
{
        _cleanup_(undo_journal_freep) struct undo_journal *journal = NULL;
        _cleanup_free_ char *path = journal_path(c);
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
