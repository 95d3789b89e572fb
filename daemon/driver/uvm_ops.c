/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/uvm_target.h"
#include "util/macro.h"

#define BYTES_PER_CALL_DEFAULT (1ULL << 30)
#define RESERVE_DEFAULT        (256ULL << 20)

/* The driver moves memory in blocks of this size; half a block would split its mapping. */
#define BLOCK_BYTES (2ULL << 20)

struct uvm_ops {
        const struct uvm_system *system;
        struct undo_journal *journal;
        struct uvm_ops_options options;
        uint64_t page_bytes;
};

static const struct {
        int number;
        const char *text;
} errors[UVM_OP_ERROR_COUNT] = {
#define X(name, number, text) [UVM_OP_##name] = {number, text},
        UVM_OP_ERRORS(X)
#undef X
};

int uvm_op_error_number(enum uvm_op_error error)
{
        return errors[error].number;
}

const char *uvm_op_error_text(enum uvm_op_error error)
{
        return errors[error].text;
}

int uvm_ops_new(const struct uvm_system *system, struct undo_journal *journal,
                const struct uvm_ops_options *options, struct uvm_ops **ret_ops)
{
        struct uvm_ops *o = calloc(1, sizeof(*o));

        if (!o)
                return -ENOMEM;
        o->system = system;
        o->journal = journal;
        o->options = *options;
        if (!o->options.bytes_per_call)
                o->options.bytes_per_call = BYTES_PER_CALL_DEFAULT;
        if (!o->options.reserve_bytes)
                o->options.reserve_bytes = RESERVE_DEFAULT;
        o->page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
        *ret_ops = o;
        return 0;
}

struct uvm_ops *uvm_ops_free(struct uvm_ops *o)
{
        free(o);
        return NULL;
}

/* ---- planning ---- */

/* What an op does that has to be undone; UNDO_NONE: nothing. */
static enum undo_kind gives(enum uvm_op op)
{
        switch (op) {
        case UVM_OP_PREFER:
                return UNDO_UVM_PREFERRED;
        case UVM_OP_ACCESSED_BY:
                return UNDO_UVM_ACCESSED_BY;
        case UVM_OP_DUPLICATE:
                return UNDO_UVM_READ_DUPLICATION;
        default:
                return UNDO_NONE;
        }
}

/* ... and what an op takes back. */
static enum undo_kind takes_back(enum uvm_op op)
{
        switch (op) {
        case UVM_OP_UNPREFER:
                return UNDO_UVM_PREFERRED;
        case UVM_OP_NOT_ACCESSED_BY:
                return UNDO_UVM_ACCESSED_BY;
        case UVM_OP_NOT_DUPLICATE:
                return UNDO_UVM_READ_DUPLICATION;
        default:
                return UNDO_NONE;
        }
}

static bool concerns_advice(enum uvm_op op)
{
        return gives(op) != UNDO_NONE || takes_back(op) != UNDO_NONE;
}

static bool has_processor(enum uvm_op op)
{
        return op == UVM_OP_MIGRATE || op == UVM_OP_PREFER || op == UVM_OP_ACCESSED_BY ||
               op == UVM_OP_NOT_ACCESSED_BY;
}

/* The whole pages that an allocation has in the range; 0 bytes when it has none. */
static struct uvm_piece clip(const struct uvm_ops *o, const struct uvm_allocation *a,
                             uint64_t address, uint64_t end)
{
        uint64_t page = o->page_bytes, first = a->address > address ? a->address : address;
        uint64_t last = a->address + a->bytes < end ? a->address + a->bytes : end;

        if (first > UINT64_MAX - (page - 1))
                return (struct uvm_piece){0};
        first = (first + page - 1) / page * page;
        last = last / page * page;
        return (struct uvm_piece){first, last > first ? last - first : 0};
}

/* Add a piece within the limit. */
static void add_piece(const struct uvm_ops *o, struct uvm_plan *plan, struct uvm_piece piece)
{
        uint64_t left = (o->options.bytes_per_call - plan->bytes) / o->page_bytes * o->page_bytes;

        if (piece.bytes > left)
                piece.bytes = left;
        if (piece.bytes == 0 || plan->count == UVM_PIECES_MAX)
                return;
        plan->pieces[plan->count++] = piece;
        plan->bytes += piece.bytes;
}

enum uvm_op_error uvm_ops_plan(const struct uvm_ops *o, const struct uvm_allocations *allocations,
                               const struct uvm_request *request, struct uvm_plan *ret_plan)
{
        struct uvm_plan plan = {.request = *request};
        uint64_t at = request->address, end;
        const struct uvm_allocation *a;
        bool any = false;

        plan.request.owner[UNDO_OWNER_BYTES - 1] = '\0';
        if (request->op >= UVM_OP_COUNT || request->pid <= 0 || request->bytes == 0 ||
            request->bytes > UINT64_MAX - at)
                return UVM_OP_INVALID;
        end = at + request->bytes;
        for (; (a = uvm_allocations_from(allocations, at)) && a->address < end;
             at = a->address + a->bytes) {
                any = true;
                if (a->advised && concerns_advice(request->op))
                        return UVM_OP_ADVISED;
                add_piece(o, &plan, clip(o, a, request->address, end));
        }
        if (!any)
                return UVM_OP_NO_ALLOCATION;
        if (plan.count == 0)
                return UVM_OP_TOO_SMALL;
        plan.clipped = plan.bytes < request->bytes;
        *ret_plan = plan;
        return UVM_OP_OK;
}

/* ---- what a call of the driver came to ---- */

static enum uvm_op_error from_errno(int r)
{
        switch (r) {
        case 0:
                return UVM_OP_OK;
        case -ESRCH:
                return UVM_OP_PROCESS_GONE;
        case -ENODEV:
                return UVM_OP_NO_UVM;
        case -EFAULT:
                return UVM_OP_NO_ALLOCATION;
        case -EPERM:
        case -EACCES:
                return UVM_OP_NOT_PERMITTED;
        case -ENOTSUP:
        case -ENOTTY:
                return UVM_OP_NOT_SUPPORTED;
        case -ENOMEM:
                return UVM_OP_NO_ROOM;
        default:
                return UVM_OP_DRIVER;
        }
}

static enum uvm_op_error from_call(int r, uint32_t status)
{
        /* The ioctl itself says so of a number it does not know; there is no status then. */
        if (r == -EINVAL && status == 0)
                return UVM_OP_NOT_SUPPORTED;
        /* The file was there, so this is about the processor. */
        return r == -ENODEV ? UVM_OP_UNKNOWN_GPU : from_errno(r);
}

/* ---- the calls ---- */

static int call_range(struct uvm_target *t, unsigned long request, const struct uvm_piece *p,
                      uint32_t *ret_status)
{
        union uvm_argument a = {.range = {.address = p->address, .bytes = p->bytes}};

        return uvm_call(t->system, t->uvm_fd, request, &a, &a.range.status, ret_status);
}

static int call_preferred(struct uvm_target *t, const uint8_t *processor, const struct uvm_piece *p,
                          uint32_t *ret_status)
{
        union uvm_argument a = {
                .preferred = {.address = p->address, .bytes = p->bytes, .numa_node = -1}};

        memcpy(a.preferred.processor, processor, UVM_UUID_BYTES);
        return uvm_call(t->system, t->uvm_fd, UVM_SET_PREFERRED_LOCATION, &a, &a.preferred.status,
                        ret_status);
}

static int call_accessed(struct uvm_target *t, unsigned long request, const uint8_t *processor,
                         const struct uvm_piece *p, uint32_t *ret_status)
{
        union uvm_argument a = {.accessed = {.address = p->address, .bytes = p->bytes}};

        memcpy(a.accessed.processor, processor, UVM_UUID_BYTES);
        return uvm_call(t->system, t->uvm_fd, request, &a, &a.accessed.status, ret_status);
}

static int call_migrate(struct uvm_target *t, const uint8_t *processor, bool async,
                        const struct uvm_piece *p, uint32_t *ret_status)
{
        union uvm_argument a = {.migrate = {.address = p->address,
                                            .bytes = p->bytes,
                                            .flags = async ? UVM_MIGRATE_ASYNC : 0,
                                            .numa_node = -1}};

        memcpy(a.migrate.processor, processor, UVM_UUID_BYTES);
        return uvm_call(t->system, t->uvm_fd, UVM_MIGRATE, &a, &a.migrate.status, ret_status);
}

static int call_discard(struct uvm_target *t, const struct uvm_piece *p, uint32_t *ret_status)
{
        union uvm_argument a = {
                .discard = {.address = p->address, .bytes = p->bytes, .flags = UVM_DISCARD_UNMAP}};

        return uvm_call(t->system, t->uvm_fd, UVM_DISCARD, &a, &a.discard.status, ret_status);
}

static int call(struct uvm_target *t, enum uvm_op op, const uint8_t *processor, bool async,
                const struct uvm_piece *p, uint32_t *ret_status)
{
        switch (op) {
        case UVM_OP_MIGRATE:
                return call_migrate(t, processor, async, p, ret_status);
        case UVM_OP_PREFER:
                return call_preferred(t, processor, p, ret_status);
        case UVM_OP_UNPREFER:
                return call_range(t, UVM_UNSET_PREFERRED_LOCATION, p, ret_status);
        case UVM_OP_ACCESSED_BY:
                return call_accessed(t, UVM_SET_ACCESSED_BY, processor, p, ret_status);
        case UVM_OP_NOT_ACCESSED_BY:
                return call_accessed(t, UVM_UNSET_ACCESSED_BY, processor, p, ret_status);
        case UVM_OP_DUPLICATE:
                return call_range(t, UVM_ENABLE_READ_DUPLICATION, p, ret_status);
        case UVM_OP_NOT_DUPLICATE:
                return call_range(t, UVM_DISABLE_READ_DUPLICATION, p, ret_status);
        case UVM_OP_DISCARD:
                return call_discard(t, p, ret_status);
        default:
                return -EINVAL;
        }
}

/* ---- the journal ---- */

static bool overlaps(const struct undo_entry *e, uint64_t address, uint64_t bytes)
{
        return e->values[0] < address + bytes && address < e->values[0] + e->values[1];
}

bool uvm_ops_is_advice(const struct undo_entry *e)
{
        return e->kind == UNDO_UVM_PREFERRED || e->kind == UNDO_UVM_ACCESSED_BY ||
               e->kind == UNDO_UVM_READ_DUPLICATION;
}

/* All entries in force, to be freed; NULL on no memory. */
static struct undo_entry *list_entries(struct uvm_ops *o, size_t *ret_count)
{
        struct undo_entry *list = calloc(UNDO_ENTRIES_MAX, sizeof(*list));

        *ret_count = list ? undo_journal_list(o->journal, list, UNDO_ENTRIES_MAX) : 0;
        return list;
}

static bool is_of(const struct undo_entry *e, pid_t pid, uint64_t start_ticks)
{
        return uvm_ops_is_advice(e) && e->pid == pid && e->start_ticks == start_ticks;
}

/* Whether undoing the entry takes back what is about to be done as well. */
static bool serves(const struct undo_entry *e, const struct uvm_request *q,
                   const uint8_t *processor, const struct uvm_piece *p)
{
        if (e->values[0] > p->address || e->values[0] + e->values[1] < p->address + p->bytes)
                return false;
        return e->kind != UNDO_UVM_ACCESSED_BY || memcmp(e->uuid, processor, UVM_UUID_BYTES) == 0;
}

/*
 * Whether advice of the same kind on this memory is somebody else's; and whether such of its own is
 * noted already, as what is said again and again needs no more than one entry.
 */
static enum uvm_op_error check_entries(struct uvm_ops *o, const struct uvm_request *q,
                                       const uint8_t *processor, const struct uvm_piece *p,
                                       bool *ret_noted)
{
        enum undo_kind kind = gives(q->op) != UNDO_NONE ? gives(q->op) : takes_back(q->op);
        size_t count;
        _cleanup_free_ struct undo_entry *list = list_entries(o, &count);

        if (!list)
                return UVM_OP_JOURNAL;
        for (size_t i = 0; i < count; i++) {
                if (list[i].kind != kind || !is_of(&list[i], q->pid, q->start_ticks) ||
                    !overlaps(&list[i], p->address, p->bytes))
                        continue;
                if (strcmp(list[i].owner, q->owner) != 0)
                        return UVM_OP_HELD;
                *ret_noted = *ret_noted || serves(&list[i], q, processor, p);
        }
        return UVM_OP_OK;
}

static enum uvm_op_error note(struct uvm_ops *o, const struct uvm_request *q,
                              const uint8_t *processor, const struct uvm_piece *p, uint64_t *ret_id)
{
        struct undo_entry e = {.kind = gives(q->op),
                               .pid = q->pid,
                               .start_ticks = q->start_ticks,
                               .values = {p->address, p->bytes}};

        memcpy(e.owner, q->owner, sizeof(e.owner));
        if (has_processor(q->op))
                memcpy(e.uuid, processor, UVM_UUID_BYTES);
        return undo_journal_add(o->journal, &e, ret_id) < 0 ? UVM_OP_JOURNAL : UVM_OP_OK;
}

/* Entries that lie within what was just taken back are no longer in force. */
static void settle_entries(struct uvm_ops *o, const struct uvm_request *q, const uint8_t *processor,
                           const struct uvm_piece *p)
{
        size_t count;
        _cleanup_free_ struct undo_entry *list = list_entries(o, &count);

        for (size_t i = 0; i < count; i++) {
                const struct undo_entry *e = &list[i];

                if (e->kind != takes_back(q->op) || !is_of(e, q->pid, q->start_ticks) ||
                    e->values[0] < p->address ||
                    e->values[0] + e->values[1] > p->address + p->bytes)
                        continue;
                if (has_processor(q->op) && memcmp(e->uuid, processor, UVM_UUID_BYTES) != 0)
                        continue;
                (void)undo_journal_done(o->journal, e->id);
        }
}

/* ---- running ---- */

static const uint8_t *find_processor(const struct uvm_target *t, const struct uvm_request *q)
{
        if (q->to_cpu)
                return t->processors[UVM_CPU];
        for (size_t i = 1; i < UVM_PROCESSORS_MAX; i++)
                if (memcmp(t->processors[i], q->gpu, UVM_UUID_BYTES) == 0)
                        return t->processors[i];
        return NULL;
}

static bool brings_to_gpu(const struct uvm_request *q)
{
        return (q->op == UVM_OP_MIGRATE || q->op == UVM_OP_PREFER) && !q->to_cpu;
}

/* How much may still go to the GPU; read anew before each piece, as others allocate too. */
static enum uvm_op_error room(struct uvm_ops *o, const struct uvm_request *q, uint64_t *ret_bytes)
{
        uint64_t unused;

        *ret_bytes = UINT64_MAX;
        if (!brings_to_gpu(q))
                return UVM_OP_OK;
        if (!o->options.free_bytes || o->options.free_bytes(o->options.data, q->gpu, &unused) < 0)
                return UVM_OP_NO_FREE_BYTES;
        *ret_bytes = unused > o->options.reserve_bytes ? unused - o->options.reserve_bytes : 0;
        return UVM_OP_OK;
}

/* A migration may be cut short, advice holds for the whole piece or not at all. */
static enum uvm_op_error fit(struct uvm_ops *o, const struct uvm_request *q, struct uvm_piece *p,
                             bool *ret_cut)
{
        uint64_t bytes;
        enum uvm_op_error error = room(o, q, &bytes);

        *ret_cut = false;
        if (error != UVM_OP_OK || p->bytes <= bytes)
                return error;
        bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
        if (bytes == 0 || q->op != UVM_OP_MIGRATE)
                return UVM_OP_NO_ROOM;
        p->bytes = bytes;
        *ret_cut = true;
        return UVM_OP_OK;
}

/* Whether the driver may have come to part of the range before it failed; else it refused at once.
 */
static bool may_hold(int r, uint32_t status)
{
        return r < 0 && status && r != -EINVAL &&
               (from_errno(r) == UVM_OP_NO_ROOM || from_errno(r) == UVM_OP_DRIVER);
}

static enum uvm_op_error run_piece(struct uvm_ops *o, struct uvm_target *t,
                                   const struct uvm_request *q, const uint8_t *processor,
                                   const struct uvm_piece *p, struct uvm_outcome *out)
{
        enum uvm_op_error error = UVM_OP_OK;
        bool noted = false;
        uint64_t id = 0;
        int r;

        if (concerns_advice(q->op))
                error = check_entries(o, q, processor, p, &noted);
        if (error == UVM_OP_OK && gives(q->op) != UNDO_NONE && !noted)
                error = note(o, q, processor, p, &id);
        if (error != UVM_OP_OK)
                return error;
        r = call(t, q->op, processor, q->async, p, &out->status);
        out->in_part = gives(q->op) != UNDO_NONE && may_hold(r, out->status);
        if (r < 0 && id && !out->in_part)
                (void)undo_journal_done(o->journal, id);
        if (r == 0 && takes_back(q->op) != UNDO_NONE)
                settle_entries(o, q, processor, p);
        return from_call(r, out->status);
}

static enum uvm_op_error run_pieces(struct uvm_ops *o, const struct uvm_plan *plan,
                                    struct uvm_target *t, struct uvm_outcome *out)
{
        const struct uvm_request *q = &plan->request;
        const uint8_t *processor = has_processor(q->op) ? find_processor(t, q) : NULL;
        enum uvm_op_error error = UVM_OP_OK;
        bool cut = false;

        if (has_processor(q->op) && !processor)
                return UVM_OP_UNKNOWN_GPU;
        for (size_t i = 0; i < plan->count && !cut; i++) {
                struct uvm_piece p = plan->pieces[i];

                error = fit(o, q, &p, &cut);
                /* What went before has taken the room: that is a limit, not a failure. */
                if (error == UVM_OP_NO_ROOM && out->pieces > 0 && q->op == UVM_OP_MIGRATE) {
                        out->clipped = true;
                        return UVM_OP_OK;
                }
                if (error == UVM_OP_OK)
                        error = run_piece(o, t, q, processor, &p, out);
                if (error != UVM_OP_OK)
                        return error;
                out->pieces++;
                out->bytes += p.bytes;
                out->clipped = out->clipped || cut;
        }
        return error;
}

void uvm_ops_run(struct uvm_ops *o, const struct uvm_plan *plan, struct uvm_outcome *ret_outcome)
{
        struct uvm_outcome out = {.clipped = plan->clipped};
        uint64_t begun_ns = o->system->monotonic_ns();
        struct uvm_target t;
        int r;

        r = uvm_target_open(o->system, plan->request.pid, plan->request.start_ticks, &t);
        if (r == 0) {
                out.error = run_pieces(o, plan, &t, &out);
                out.in_part = out.in_part || (out.error != UVM_OP_OK && out.pieces > 0 &&
                                              gives(plan->request.op) != UNDO_NONE);
                uvm_target_close(&t);
        } else {
                out.error = from_errno(r);
        }
        out.duration_ns = o->system->monotonic_ns() - begun_ns;
        *ret_outcome = out;
}

/* ---- undoing ---- */

static int undo_call(struct uvm_target *t, const struct undo_entry *e)
{
        struct uvm_piece p = {e->values[0], e->values[1]};
        uint32_t status;

        switch (e->kind) {
        case UNDO_UVM_PREFERRED:
                return call_range(t, UVM_UNSET_PREFERRED_LOCATION, &p, &status);
        case UNDO_UVM_ACCESSED_BY:
                return call_accessed(t, UVM_UNSET_ACCESSED_BY, e->uuid, &p, &status);
        case UNDO_UVM_READ_DUPLICATION:
                return call_range(t, UVM_DISABLE_READ_DUPLICATION, &p, &status);
        default:
                return -EINVAL;
        }
}

int uvm_ops_undo(struct uvm_ops *o, const struct undo_entry *e)
{
        struct uvm_target t;
        int r = uvm_target_open(o->system, e->pid, e->start_ticks, &t);

        if (r == 0) {
                r = undo_call(&t, e);
                uvm_target_close(&t);
        }
        if (r == -ENODEV || r == -EFAULT)
                r = -ESRCH;
        if (r == 0 || r == -ESRCH)
                (void)undo_journal_done(o->journal, e->id);
        return r;
}

void uvm_ops_forget(struct uvm_ops *o, pid_t pid, uint64_t start_ticks, uint64_t address,
                    uint64_t bytes)
{
        size_t count;
        _cleanup_free_ struct undo_entry *list = list_entries(o, &count);

        for (size_t i = 0; i < count; i++)
                if (is_of(&list[i], pid, start_ticks) &&
                    (bytes == 0 || overlaps(&list[i], address, bytes)))
                        (void)undo_journal_done(o->journal, list[i].id);
}
