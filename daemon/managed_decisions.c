/* SPDX-License-Identifier: Apache-2.0 */
#include "managed_decisions.h"

#include <errno.h>
#include <string.h>

#include "api/backend.h"
#include "daemon.h"
#include "driver/uvm_tier.h"
#include "probe/uvm_probes.h"
#include "probe/uvm_trace.h"
#include "util/log.h"

#define RING_BYTES (1u << 20)

_Static_assert((int)UVM_FORM_KPROBE == (int)GPUOBS_UVM_FORM_KPROBE, "forms");
_Static_assert((int)UVM_FORM_FENTRY == (int)GPUOBS_UVM_FORM_FENTRY, "forms");

struct managed_decisions {
        struct gpuobsd *daemon;
        struct uvm_tier *tier;
        struct uvm_probes *probes; /* NULL: see reason */
        uint64_t module;           /* that was last tried; 0: none is loaded */
        uint64_t lost;             /* already in the ledger */
        char reason[160];
        char struct_ops[256];
        char points[UVM_POINT_COUNT][96]; /* why a point is not probed, or not as it was to be */
};

/* ---- events ---- */

/* 0: not known. */
static uint64_t process_key_of(struct gpuobsd *d, const struct uvm_probe_event *e)
{
        const struct observed *o =
                e->has & UVM_PROBE_HAS_TGID ? flow_process_named(d, e->tgid) : NULL;

        return o ? o->info.process_key : 0;
}

static void on_event(void *data, const struct uvm_probe_event *e)
{
        struct managed_decisions *m = data;
        const struct uvm_symbols *symbols = uvm_probes_symbols(m->probes);
        const struct uvm_tier_event kept = {
                .probe = *e,
                .process_key = process_key_of(m->daemon, e),
                .cause = (uint8_t)uvm_symbols_cause(symbols, e),
                .state = (uint8_t)uvm_symbols_state(symbols, e),
        };

        uvm_tier_add(m->tier, &kept);
}

size_t managed_decisions_turn(struct managed_decisions *m, size_t max, bool *more)
{
        int n = m->probes ? uvm_probes_poll(m->probes, max, on_event, m) : 0;

        if (n <= 0)
                return 0;
        *more = *more || (size_t)n >= max;
        return (size_t)n;
}

static void count_losses(struct managed_decisions *m)
{
        uint64_t lost;

        if (!m->probes || uvm_probes_losses(m->probes, &lost) < 0)
                return;
        m->daemon->observed.forgotten.lost[LOSS_uvm_decision] += lost - m->lost;
        m->lost = lost;
}

/* ---- the module comes and goes ---- */

static const char *reason_of(int error)
{
        switch (error) {
        case -ENODEV:
                return "the module nvidia_uvm is not loaded";
        case -EOPNOTSUPP:
                return "this kernel has no kprobes (CONFIG_KPROBES), and fentry needs BTF of "
                       "nvidia_uvm, and its functions as they were written";
        case -ENOENT:
                return "nvidia_uvm has none of the functions that are known";
        case -EPERM:
        case -EACCES:
                return uvm_probes_kprobes() ? "the kernel does not permit probes on its functions"
                                            : "this kernel has no kprobes (CONFIG_KPROBES), and "
                                              "does not permit fentry";
        case -UVM_TRACE_ENOTSUPP:
                return "this kernel has neither kprobes nor fentry on functions of modules";
        default:
                return strerror(-error);
        }
}

/* By point: why it is not probed, or by a kprobe though fentry was asked for. */
static void explain_points(struct managed_decisions *m)
{
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++) {
                const struct uvm_probe_point p = uvm_probes_point(m->probes, i);

                m->points[i][0] = '\0';
                if (p.error && p.error != p.trace_error)
                        snprintf(m->points[i], sizeof(m->points[i]), "%s",
                                 p.error == -ENOENT ? "the module has none of the functions known"
                                                    : strerror(-p.error));
                else if (p.trace_error)
                        uvm_trace_explain(p.symbol, p.trace_error, m->points[i],
                                          sizeof(m->points[i]));
        }
}

static void detach(struct managed_decisions *m)
{
        count_losses(m);
        m->probes = uvm_probes_free(m->probes);
        m->lost = 0;
}

static void attach(struct managed_decisions *m)
{
        struct uvm_btf btf;
        int r;

        m->module = uvm_probes_module();
        uvm_btf_read(&btf);
        (void)uvm_probes_struct_ops(&btf, m->struct_ops, sizeof(m->struct_ops));
        r = uvm_probes_new(&btf, m->daemon->config->managed_decisions == CONFIG_DECISIONS_FENTRY,
                           RING_BYTES, &m->probes);
        uvm_btf_done(&btf);
        snprintf(m->reason, sizeof(m->reason), "%s", r < 0 ? reason_of(r) : "");
        if (r == 0) {
                explain_points(m);
                log_info("decisions of the managed-memory driver are probed");
        } else if (r != -ENODEV && r != -EOPNOTSUPP) {
                log_notice("decisions of the managed-memory driver are not probed: %s", m->reason);
        }
}

/* Kprobes of a module that goes away die with it; fentry probes do not let it go. */
static void follow_module(struct managed_decisions *m)
{
        bool more = false;

        if (!m->daemon->config->managed_decisions || uvm_probes_module() == m->module)
                return;
        (void)managed_decisions_turn(m, SIZE_MAX, &more);
        detach(m);
        attach(m);
}

void managed_decisions_second(struct managed_decisions *m)
{
        count_losses(m);
        follow_module(m);
}

/* ---- life ---- */

struct managed_decisions *managed_decisions_new(struct gpuobsd *d)
{
        struct managed_decisions *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->daemon = d;
        m->tier = uvm_tier_new();
        if (!m->tier)
                return managed_decisions_free(m);
        if (d->config->managed_decisions)
                attach(m);
        else
                snprintf(m->reason, sizeof(m->reason), "the setting managed_decisions is no");
        return m;
}

struct managed_decisions *managed_decisions_free(struct managed_decisions *m)
{
        if (!m)
                return NULL;
        uvm_probes_free(m->probes);
        uvm_tier_free(m->tier);
        free(m);
        return NULL;
}

/* ---- for the API ---- */

static struct api_point describe_point(const struct managed_decisions *m, unsigned point)
{
        struct uvm_probe_point p;

        if (!m->probes)
                return (struct api_point){0};
        p = uvm_probes_point(m->probes, point);
        return (struct api_point){
                .function = p.symbol->name[0] ? p.symbol->name : NULL,
                .probed = p.error == 0,
                .form = (enum gpuobs_uvm_form)p.form,
                .arguments = p.symbol->has_arguments,
                .reason = m->points[point][0] ? m->points[point] : NULL,
        };
}

void managed_decisions_describe(const struct managed_decisions *m,
                                struct api_decisions *ret_decisions)
{
        *ret_decisions = (struct api_decisions){
                .tier = m->tier,
                .probed = m->probes,
                .reason = m->reason[0] ? m->reason : NULL,
                .struct_ops = m->struct_ops[0] ? m->struct_ops : NULL,
                .lost = m->daemon->observed.forgotten.lost[LOSS_uvm_decision],
        };
        for (unsigned i = 0; i < UVM_POINT_COUNT; i++)
                ret_decisions->points[i] = describe_point(m, i);
}
