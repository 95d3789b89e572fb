/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sim/trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "policy/targets.h"

/* ---- building ---- */

struct uvm_trace *uvm_trace_new(const char *pattern, uint64_t seed)
{
        struct uvm_trace *t = calloc(1, sizeof(*t));

        if (!t)
                return NULL;
        memcpy(t->head.magic, UVM_TRACE_MAGIC, sizeof(t->head.magic));
        t->head.version = UVM_TRACE_VERSION;
        t->head.record_bytes = sizeof(struct uvm_trace_record);
        t->head.seed = seed;
        snprintf(t->head.pattern, sizeof(t->head.pattern), "%s", pattern);
        return t;
}

struct uvm_trace *uvm_trace_free(struct uvm_trace *t)
{
        if (t)
                free(t->records);
        free(t);
        return NULL;
}

int uvm_trace_add(struct uvm_trace *t, const struct uvm_trace_record *r)
{
        size_t room = t->room ? 2 * t->room : 1024;
        struct uvm_trace_record *grown;

        if (t->count == t->room) {
                grown = realloc(t->records, room * sizeof(*grown));
                if (!grown)
                        return -ENOMEM;
                t->records = grown;
                t->room = room;
        }
        t->records[t->count++] = *r;
        t->head.records = t->count;
        return 0;
}

uint32_t uvm_trace_gpus(const struct uvm_trace *t)
{
        uint32_t gpus = 1;

        for (size_t i = 0; i < t->count; i++)
                if (t->records[i].kind == UVM_TRACE_LAUNCH && t->records[i].gpu >= gpus)
                        gpus = t->records[i].gpu + 1u;
        return gpus;
}

/* ---- checking ---- */

struct check {
        struct targets processes; /* alive, with what they allocated */
        uint64_t bytes;           /* allocated, all together */
        bool launched;            /* a launch has gone before */
        uint16_t launcher;
};

static bool range_is_possible(const struct uvm_trace_record *r)
{
        return r->address >= 4096 && r->bytes > 0 && r->bytes <= UVM_TRACE_BYTES_MAX &&
               r->address < 1ull << 47 && r->address + r->bytes <= 1ull << 47;
}

/* Wholly inside one allocation. */
static bool is_inside(const struct target *t, const struct uvm_trace_record *r)
{
        uint64_t address, bytes;

        return range_is_possible(r) && target_clip(t, r->address, r->bytes, &address, &bytes) &&
               address == r->address && bytes == r->bytes;
}

static const char *check_alloc(struct check *c, struct target *t, const struct uvm_trace_record *r)
{
        uint64_t address, bytes;

        if (!range_is_possible(r) || (r->address | r->bytes) & 4095)
                return "is no range of whole pages";
        if (target_clip(t, r->address, r->bytes, &address, &bytes))
                return "overlaps another allocation";
        c->bytes += r->bytes;
        if (c->bytes > UVM_TRACE_BYTES_MAX)
                return "allocates more than a trace may";
        return target_add_range(t, r->address, r->bytes) < 0 ? "is one allocation too many" : NULL;
}

static const char *check_free(struct check *c, struct target *t, const struct uvm_trace_record *r)
{
        uint64_t bytes = target_remove_range(t, r->address);

        c->bytes -= bytes;
        return bytes ? NULL : "frees what is not allocated";
}

static const char *check_process(struct check *c, const struct uvm_trace_record *r)
{
        if (r->process >= UVM_TRACE_PROCESSES)
                return "has a process number that is too large";
        if (targets_find(&c->processes, r->process))
                return "begins a process that has begun";
        return targets_add(&c->processes, r->process) ? NULL : "does not fit into memory";
}

static const char *check_exit(struct check *c, struct target *t)
{
        for (size_t i = 0; i < t->range_count; i++)
                c->bytes -= t->ranges[i].end - t->ranges[i].start;
        c->launched = c->launched && c->launcher != t->key;
        targets_remove(&c->processes, t);
        return NULL;
}

static const char *check_access(const struct check *c, const struct target *t,
                                const struct uvm_trace_record *r)
{
        if (r->kind != UVM_TRACE_HOST && (!c->launched || c->launcher != r->process))
                return "does not follow a launch of its process";
        if (!is_inside(t, r))
                return "is not inside an allocation";
        return r->kind != UVM_TRACE_RANGE && r->bytes > UVM_TRACE_TOUCH_MAX ? "touches too much"
                                                                            : NULL;
}

/* NULL, or what is wrong with it. */
static const char *check_record(struct check *c, const struct uvm_trace_record *r)
{
        struct target *t = targets_find(&c->processes, r->process);

        if (r->write >= (r->kind == UVM_TRACE_LAUNCH ? UVM_TRACE_GPUS : 2) ||
            r->ns > UVM_TRACE_RECORD_NS)
                return "has a value out of bounds";
        if (r->kind == UVM_TRACE_PROCESS)
                return check_process(c, r);
        if (r->kind == UVM_TRACE_IDLE)
                return NULL;
        if (!t)
                return "is of a process that is not there";
        switch (r->kind) {
        case UVM_TRACE_EXIT:
                return check_exit(c, t);
        case UVM_TRACE_ALLOC:
                return check_alloc(c, t, r);
        case UVM_TRACE_FREE:
                return check_free(c, t, r);
        case UVM_TRACE_LAUNCH:
                c->launched = true;
                c->launcher = r->process;
                return NULL;
        case UVM_TRACE_RANGE:
        case UVM_TRACE_TOUCH:
        case UVM_TRACE_HOST:
                return check_access(c, t, r);
        default:
                return "is of an unknown kind";
        }
}

static int check_records(const struct uvm_trace *t, char *error, size_t error_size)
{
        struct check c = {0};
        const char *wrong = NULL;

        for (size_t i = 0; i < t->count && !wrong; i++) {
                wrong = check_record(&c, &t->records[i]);
                if (wrong)
                        snprintf(error, error_size, "record %zu %s", i, wrong);
        }
        targets_done(&c.processes);
        return wrong ? -EBADMSG : 0;
}

/* ---- reading ---- */

static const char *check_head(const struct uvm_trace_head *h, size_t size)
{
        if (memcmp(h->magic, UVM_TRACE_MAGIC, sizeof(h->magic)) != 0)
                return "this is not a trace of managed memory";
        if (h->version != UVM_TRACE_VERSION || h->record_bytes != sizeof(struct uvm_trace_record))
                return "the trace is of another version";
        if (h->records > UVM_TRACE_RECORDS_MAX ||
            (size - sizeof(*h)) / sizeof(struct uvm_trace_record) < h->records)
                return "the trace is cut short";
        if (!memchr(h->pattern, '\0', sizeof(h->pattern)))
                return "the pattern's name does not end";
        return NULL;
}

int uvm_trace_parse(const void *bytes, size_t size, char *error, size_t error_size,
                    struct uvm_trace **ret_trace)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = calloc(1, sizeof(*t));
        const char *wrong = "this is not a trace of managed memory";
        int r;

        if (!t)
                return -ENOMEM;
        if (size >= sizeof(t->head)) {
                memcpy(&t->head, bytes, sizeof(t->head));
                wrong = check_head(&t->head, size);
        }
        if (wrong) {
                snprintf(error, error_size, "%s", wrong);
                return -EBADMSG;
        }
        t->count = t->room = (size_t)t->head.records;
        t->records = malloc(t->count * sizeof(*t->records) + 1);
        if (!t->records)
                return -ENOMEM;
        memcpy(t->records, (const char *)bytes + sizeof(t->head), t->count * sizeof(*t->records));
        r = check_records(t, error, error_size);
        if (r < 0)
                return r;
        *ret_trace = TAKE_PTR(t);
        return 0;
}

int uvm_trace_load(const char *path, char *error, size_t error_size, struct uvm_trace **ret_trace)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        _cleanup_free_ char *bytes = NULL;
        struct stat st;
        size_t size;

        if (!f || fstat(fileno(f), &st) < 0) {
                snprintf(error, error_size, "%s", strerror(errno));
                return -errno;
        }
        if (!S_ISREG(st.st_mode) ||
            (uint64_t)st.st_size >
                    sizeof(struct uvm_trace_head) +
                            (uint64_t)UVM_TRACE_RECORDS_MAX * sizeof(struct uvm_trace_record)) {
                snprintf(error, error_size, "%s: not a file of a size a trace can have", path);
                return -EBADMSG;
        }
        size = (size_t)st.st_size;
        bytes = malloc(size + 1);
        if (!bytes)
                return -ENOMEM;
        if (fread(bytes, 1, size, f) != size) {
                snprintf(error, error_size, "%s: it cannot be read", path);
                return -EIO;
        }
        return uvm_trace_parse(bytes, size, error, error_size, ret_trace);
}

int uvm_trace_save(const struct uvm_trace *t, const char *path)
{
        _cleanup_fclose_ FILE *f = fopen(path, "we");

        if (!f)
                return -errno;
        if (fwrite(&t->head, sizeof(t->head), 1, f) != 1 ||
            fwrite(t->records, sizeof(*t->records), t->count, f) != t->count || fflush(f) != 0)
                return -EIO;
        return 0;
}
