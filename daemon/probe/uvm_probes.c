/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/uvm_probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "probe/losses.h"
#include "probe/uvm_trace.h"
#include "util/macro.h"
#include "uvm.skel.h"

#define MODULE_DIRECTORY "/sys/module/" UVM_MODULE
#define MODULE_BTF       "/sys/kernel/btf/" UVM_MODULE
#define KPROBE_TYPE      "/sys/bus/event_source/devices/kprobe/type"

struct uvm_probes {
        struct uvm_bpf *bpf;
        struct ring_buffer *ring;
        struct uvm_symbols symbols;
        bool kprobes;                               /* the kernel has them */
        bool traced[UVM_POINT_COUNT];               /* has fentry, or is to have */
        struct bpf_link *links[UVM_POINT_COUNT][2]; /* return, entry */
        int errors[UVM_POINT_COUNT];
        int trace_errors[UVM_POINT_COUNT];

        void (*event)(void *data, const struct uvm_probe_event *e);
        void *data;
        size_t taken, max; /* during a poll */
};

DEFINE_CLEANUP(struct uvm_probes *, uvm_probes_free)

/* ---- what there is ---- */

bool uvm_probes_kprobes(void)
{
        return access(KPROBE_TYPE, F_OK) == 0;
}

uint64_t uvm_probes_module(void)
{
        struct stat st;

        return stat(MODULE_DIRECTORY, &st) == 0 ? st.st_ino : 0;
}

void uvm_btf_read(struct uvm_btf *ret_btf)
{
        *ret_btf = (struct uvm_btf){0};
        if (access(MODULE_BTF, R_OK) < 0)
                return;
        ret_btf->kernel = btf__load_vmlinux_btf();
        if (ret_btf->kernel)
                ret_btf->module = btf__load_module_btf(UVM_MODULE, ret_btf->kernel);
}

void uvm_btf_done(struct uvm_btf *btf)
{
        /* In reverse: the module's lies over the kernel's. */
        btf__free(btf->module);
        btf__free(btf->kernel);
        *btf = (struct uvm_btf){0};
}

unsigned uvm_probes_struct_ops(const struct uvm_btf *btf, char *buffer, size_t size)
{
        buffer[0] = '\0';
        return btf->module ? uvm_symbols_struct_ops(btf->module, buffer, size) : 0;
}

int uvm_probes_find_symbols(const struct uvm_btf *btf, struct uvm_symbols *ret_symbols)
{
        _cleanup_fclose_ FILE *kallsyms = fopen("/proc/kallsyms", "re");

        if (!kallsyms)
                return -errno;
        uvm_symbols_find(kallsyms, btf->module, ret_symbols);
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++)
                if (ret_symbols->points[i].name[0])
                        return 0;
        return -ENOENT;
}

/* ---- loading ---- */

struct programs {
        struct bpf_program *enter, *leave;               /* kprobe */
        struct bpf_program *enter_traced, *leave_traced; /* fentry */
};

static struct programs programs_of(const struct uvm_bpf *bpf, unsigned point)
{
#define PROGRAMS(name)                                                                             \
        {                                                                                          \
                bpf->progs.name##_enter, bpf->progs.name##_leave, bpf->progs.name##_enter_traced,  \
                        bpf->progs.name##_leave_traced                                             \
        }
        const struct programs all[UVM_POINT_COUNT] = {
                [UVM_POINT_BATCH] = PROGRAMS(batch), [UVM_POINT_PREFETCH] = PROGRAMS(prefetch),
                [UVM_POINT_PICK] = PROGRAMS(pick),   [UVM_POINT_EVICT] = PROGRAMS(evict),
                [UVM_POINT_MOVE] = PROGRAMS(move),
        };
#undef PROGRAMS

        return all[point];
}

/* Which programs of a point the kernel is to be given. */
static int select_programs(const struct uvm_bpf *bpf, unsigned point, const char *symbol,
                           bool kprobe, bool fentry)
{
        const struct programs p = programs_of(bpf, point);
        int r = 0;

        (void)bpf_program__set_autoload(p.enter, kprobe);
        (void)bpf_program__set_autoload(p.leave, kprobe);
        (void)bpf_program__set_autoload(p.enter_traced, fentry);
        (void)bpf_program__set_autoload(p.leave_traced, fentry);
        if (fentry)
                r = bpf_program__set_attach_target(p.enter_traced, 0, symbol);
        if (fentry && r == 0)
                r = bpf_program__set_attach_target(p.leave_traced, 0, symbol);
        return r;
}

static struct uvm_bpf *open_object(const struct uvm_probes *p)
{
        struct uvm_bpf *bpf = uvm_bpf__open();

        for (unsigned i = 0; bpf && i < UVM_POINT_COUNT; i++) {
                const struct uvm_symbol *s = &p->symbols.points[i];

                memcpy((void *)bpf->rodata->arguments[i], s->arguments, sizeof(s->arguments));
                ((uint8_t *)bpf->rodata->gpu_type)[i] = s->gpu_type;
        }
        return bpf;
}

/* Whether the kernel takes the fentry programs of this point, by themselves. 0 or -errno. */
static int try_traced(const struct uvm_probes *p, unsigned point)
{
        struct uvm_bpf *bpf = open_object(p);
        int r = bpf ? 0 : -errno;

        for (unsigned i = 0; r == 0 && i < UVM_POINT_COUNT; i++)
                r = select_programs(bpf, i, p->symbols.points[i].name, false, i == point);
        if (r == 0)
                r = uvm_bpf__load(bpf);
        uvm_bpf__destroy(bpf);
        return r;
}

static int load(struct uvm_probes *p, uint32_t ring_bytes)
{
        int r = 0;

        p->bpf = open_object(p);
        if (!p->bpf)
                return -errno;
        for (unsigned i = 0; r == 0 && i < UVM_POINT_COUNT; i++)
                r = select_programs(p->bpf, i, p->symbols.points[i].name, p->kprobes, p->traced[i]);
        if (r == 0)
                r = bpf_map__set_max_entries(p->bpf->maps.events, ring_bytes);
        if (r == 0)
                r = uvm_bpf__load(p->bpf);
        return r;
}

/* ---- forms ---- */

static void choose_forms(struct uvm_probes *p, bool prefer_fentry)
{
        p->kprobes = uvm_probes_kprobes();
        for (unsigned i = 0; (prefer_fentry || !p->kprobes) && i < UVM_POINT_COUNT; i++) {
                p->trace_errors[i] = uvm_trace_check(&p->symbols.points[i]);
                p->traced[i] = p->trace_errors[i] == 0;
        }
}

static bool has_traced(const struct uvm_probes *p)
{
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++)
                if (p->traced[i])
                        return true;
        return false;
}

static void give_up_traced(struct uvm_probes *p, unsigned point, int error)
{
        p->traced[point] = false;
        p->trace_errors[point] = error;
}

/*
 * A program that the kernel refuses takes all others with it: find out which it was. Where
 * it does not permit the kind, it permits none.
 */
static int drop_refused(struct uvm_probes *p, int error)
{
        bool none = error == -EPERM;

        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                int r = !p->traced[i] ? 0 : none ? error : try_traced(p, i);

                if (r == 0)
                        continue;
                give_up_traced(p, i, r);
                error = r;
        }
        return error;
}

/* ---- attaching ---- */

static int attach_kprobe(struct bpf_program *program, bool at_return, const char *symbol,
                         struct bpf_link **ret_link)
{
        char qualified[UVM_SYMBOL_MAX + sizeof(UVM_MODULE ":")];

        *ret_link = bpf_program__attach_kprobe(program, at_return, symbol);
        if (!*ret_link && (errno == EADDRNOTAVAIL || errno == ENOENT)) {
                /* There are others of this name. */
                snprintf(qualified, sizeof(qualified), UVM_MODULE ":%s", symbol);
                *ret_link = bpf_program__attach_kprobe(program, at_return, qualified);
        }
        return *ret_link ? 0 : -errno;
}

static int attach_traced(struct bpf_program *program, struct bpf_link **ret_link)
{
        *ret_link = bpf_program__attach_trace(program);
        return *ret_link ? 0 : -errno;
}

/* The return first: an entry without it would leave a frame. */
static int attach_pair(struct uvm_probes *p, unsigned point)
{
        const struct programs programs = programs_of(p->bpf, point);
        const char *symbol = p->symbols.points[point].name;
        struct bpf_link **links = p->links[point];
        bool traced = p->traced[point];
        int r;

        r = traced ? attach_traced(programs.leave_traced, &links[0])
                   : attach_kprobe(programs.leave, true, symbol, &links[0]);
        if (r == 0)
                r = traced ? attach_traced(programs.enter_traced, &links[1])
                           : attach_kprobe(programs.enter, false, symbol, &links[1]);
        if (r < 0) {
                bpf_link__destroy(links[0]);
                links[0] = NULL;
        }
        return r;
}

static int attach_point(struct uvm_probes *p, unsigned point)
{
        int r;

        if (!p->symbols.points[point].name[0])
                return -ENOENT;
        if (p->traced[point]) {
                r = attach_pair(p, point);
                if (r == 0)
                        return 0;
                give_up_traced(p, point, r);
        }
        return p->kprobes ? attach_pair(p, point) : p->trace_errors[point];
}

/* 0 when at least one point is probed; else why the last that exists was not. */
static int attach(struct uvm_probes *p)
{
        bool any = false;
        int error = -ENOENT;

        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                p->errors[i] = attach_point(p, i);
                any = any || p->errors[i] == 0;
                if (p->errors[i] != -ENOENT)
                        error = p->errors[i];
        }
        return any ? 0 : error;
}

static void stop(struct uvm_probes *p)
{
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++)
                for (int k = 1; k >= 0; k--) {
                        bpf_link__destroy(p->links[i][k]);
                        p->links[i][k] = NULL;
                }
        ring_buffer__free(p->ring);
        p->ring = NULL;
        uvm_bpf__destroy(p->bpf);
        p->bpf = NULL;
}

static int take_event(void *data, void *event, size_t size)
{
        struct uvm_probes *p = data;

        if (size == sizeof(struct uvm_probe_event))
                p->event(p->data, event);
        return ++p->taken < p->max ? 0 : -ECANCELED;
}

static int load_and_attach(struct uvm_probes *p, uint32_t ring_bytes)
{
        int r = load(p, ring_bytes);

        if (r < 0 && has_traced(p)) {
                stop(p);
                r = drop_refused(p, r);
                if (p->kprobes || has_traced(p))
                        r = load(p, ring_bytes);
        }
        if (r < 0)
                return r;
        p->ring = ring_buffer__new(bpf_map__fd(p->bpf->maps.events), take_event, p, NULL);
        if (!p->ring)
                return -errno;
        return attach(p);
}

static int start(struct uvm_probes *p, uint32_t ring_bytes)
{
        bool quiet = has_traced(p);
        libbpf_print_fn_t print = NULL;
        int r;

        if (quiet)
                print = libbpf_set_print(NULL); /* what kernels refuse is told by point */
        r = load_and_attach(p, ring_bytes);
        if (quiet)
                libbpf_set_print(print);
        return r;
}

int uvm_probes_new(const struct uvm_btf *btf, bool prefer_fentry, uint32_t ring_bytes,
                   struct uvm_probes **ret_probes)
{
        _cleanup_(uvm_probes_freep) struct uvm_probes *p = NULL;
        bool tried;
        int r;

        if (!uvm_probes_module())
                return -ENODEV;
        p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        r = uvm_probes_find_symbols(btf, &p->symbols);
        if (r < 0)
                return r;
        choose_forms(p, prefer_fentry);
        tried = has_traced(p);
        if (!p->kprobes && !tried)
                return -EOPNOTSUPP;
        r = start(p, ring_bytes);
        if (r == 0 && tried && !has_traced(p)) {
                /* Programs that are loaded but not attached may hold the module as well. */
                stop(p);
                r = start(p, ring_bytes);
        }
        if (r < 0)
                return r;
        *ret_probes = TAKE_PTR(p);
        return 0;
}

struct uvm_probes *uvm_probes_free(struct uvm_probes *p)
{
        if (!p)
                return NULL;
        stop(p);
        free(p);
        return NULL;
}

struct uvm_probe_point uvm_probes_point(const struct uvm_probes *p, unsigned point)
{
        return (struct uvm_probe_point){
                .symbol = &p->symbols.points[point],
                .form = p->traced[point] ? UVM_FORM_FENTRY : UVM_FORM_KPROBE,
                .error = p->errors[point],
                .trace_error = p->trace_errors[point],
        };
}

const struct uvm_symbols *uvm_probes_symbols(const struct uvm_probes *p)
{
        return &p->symbols;
}

/* ---- events ---- */

int uvm_probes_poll(struct uvm_probes *p, size_t max,
                    void (*event)(void *data, const struct uvm_probe_event *e), void *data)
{
        int r;

        p->event = event;
        p->data = data;
        p->taken = 0;
        p->max = max;
        r = max ? ring_buffer__consume(p->ring) : 0;
        return r < 0 && r != -ECANCELED ? r : (int)p->taken;
}

/* Programs that the kernel left out since they were running on that CPU already; 0 if not told. */
static uint64_t missed(const struct uvm_probes *p)
{
        struct bpf_program *program;
        uint64_t sum = 0;

        bpf_object__for_each_program(program, p->bpf->obj)
        {
                struct bpf_prog_info info = {0};
                uint32_t size = sizeof(info);
                int fd = bpf_program__fd(program);

                if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0)
                        sum += info.recursion_misses;
        }
        return sum;
}

int uvm_probes_losses(const struct uvm_probes *p, uint64_t *ret_lost)
{
        uint64_t losses[UVM_PROBE_LOSS_COUNT], lost = missed(p);
        int r = losses_read(bpf_map__fd(p->bpf->maps.losses), UVM_PROBE_LOSS_COUNT, losses);

        if (r < 0)
                return r;
        for (unsigned i = 0; i < UVM_PROBE_LOSS_COUNT; i++)
                lost += losses[i];
        *ret_lost = lost;
        return 0;
}
