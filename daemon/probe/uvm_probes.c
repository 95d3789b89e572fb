/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/uvm_probes.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "probe/losses.h"
#include "util/macro.h"
#include "uvm.skel.h"

#define MODULE_DIRECTORY "/sys/module/" UVM_MODULE
#define MODULE_BTF       "/sys/kernel/btf/" UVM_MODULE
#define KPROBE_TYPE      "/sys/bus/event_source/devices/kprobe/type"

struct uvm_probes {
        struct uvm_bpf *bpf;
        struct ring_buffer *ring;
        struct uvm_symbols symbols;
        struct bpf_link *links[UVM_POINT_COUNT][2]; /* return, entry */
        int errors[UVM_POINT_COUNT];

        void (*event)(void *data, const struct uvm_probe_event *e);
        void *data;
        size_t taken, max; /* during a poll */
};

DEFINE_CLEANUP(struct uvm_probes *, uvm_probes_free)

/* ---- what there is ---- */

bool uvm_probes_supported(void)
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

static int load(struct uvm_probes *p, uint32_t ring_bytes)
{
        int r;

        p->bpf = uvm_bpf__open();
        if (!p->bpf)
                return -errno;
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                const struct uvm_symbol *s = &p->symbols.points[i];

                memcpy((void *)p->bpf->rodata->arguments[i], s->arguments, sizeof(s->arguments));
                ((uint8_t *)p->bpf->rodata->gpu_type)[i] = s->gpu_type;
        }
        r = bpf_map__set_max_entries(p->bpf->maps.events, ring_bytes);
        return r < 0 ? r : uvm_bpf__load(p->bpf);
}

static int attach_program(struct bpf_program *program, bool at_return, const char *symbol,
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

static int attach_point(struct uvm_probes *p, unsigned point)
{
        const struct bpf_programs_of_point {
                struct bpf_program *enter, *leave;
        } programs[UVM_POINT_COUNT] = {
                [UVM_POINT_BATCH] = {p->bpf->progs.batch_enter, p->bpf->progs.batch_leave},
                [UVM_POINT_PREFETCH] = {p->bpf->progs.prefetch_enter, p->bpf->progs.prefetch_leave},
                [UVM_POINT_PICK] = {p->bpf->progs.pick_enter, p->bpf->progs.pick_leave},
                [UVM_POINT_EVICT] = {p->bpf->progs.evict_enter, p->bpf->progs.evict_leave},
                [UVM_POINT_MOVE] = {p->bpf->progs.move_enter, p->bpf->progs.move_leave},
        };
        const char *symbol = p->symbols.points[point].name;
        int r;

        if (!symbol[0])
                return -ENOENT;
        /* The return first: an entry without it would leave a frame. */
        r = attach_program(programs[point].leave, true, symbol, &p->links[point][0]);
        if (r == 0)
                r = attach_program(programs[point].enter, false, symbol, &p->links[point][1]);
        if (r < 0) {
                bpf_link__destroy(p->links[point][0]);
                p->links[point][0] = NULL;
        }
        return r;
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

static int take_event(void *data, void *event, size_t size)
{
        struct uvm_probes *p = data;

        if (size == sizeof(struct uvm_probe_event))
                p->event(p->data, event);
        return ++p->taken < p->max ? 0 : -ECANCELED;
}

int uvm_probes_new(const struct uvm_btf *btf, uint32_t ring_bytes, struct uvm_probes **ret_probes)
{
        _cleanup_(uvm_probes_freep) struct uvm_probes *p = NULL;
        int r;

        if (!uvm_probes_module())
                return -ENODEV;
        if (!uvm_probes_supported())
                return -EOPNOTSUPP;
        p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        r = uvm_probes_find_symbols(btf, &p->symbols);
        if (r == 0)
                r = load(p, ring_bytes);
        if (r < 0)
                return r;
        p->ring = ring_buffer__new(bpf_map__fd(p->bpf->maps.events), take_event, p, NULL);
        if (!p->ring)
                return -errno;
        r = attach(p);
        if (r < 0)
                return r;
        *ret_probes = TAKE_PTR(p);
        return 0;
}

struct uvm_probes *uvm_probes_free(struct uvm_probes *p)
{
        if (!p)
                return NULL;
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                bpf_link__destroy(p->links[i][1]);
                bpf_link__destroy(p->links[i][0]);
        }
        ring_buffer__free(p->ring);
        uvm_bpf__destroy(p->bpf);
        free(p);
        return NULL;
}

struct uvm_probe_point uvm_probes_point(const struct uvm_probes *p, unsigned point)
{
        return (struct uvm_probe_point){&p->symbols.points[point], p->errors[point]};
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

int uvm_probes_losses(const struct uvm_probes *p, uint64_t *ret_lost)
{
        uint64_t losses[UVM_PROBE_LOSS_COUNT], lost = 0;
        int r = losses_read(bpf_map__fd(p->bpf->maps.losses), UVM_PROBE_LOSS_COUNT, losses);

        if (r < 0)
                return r;
        for (unsigned i = 0; i < UVM_PROBE_LOSS_COUNT; i++)
                lost += losses[i];
        *ret_lost = lost;
        return 0;
}
