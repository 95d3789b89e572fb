/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The eBPF programs inside the managed-memory driver (probes/driver/uvm.bpf.c): a
 * tier that is there when the module is loaded and the kernel has kprobes, or fentry
 * probes on functions of modules. These cost less a call, but the kernel does not let
 * the module go while one is on: so kprobes come first unless the caller prefers. One thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "probe/uvm_symbols.h"

struct btf;
struct uvm_probes;

/* What the kernel says of the types in nvidia_uvm; both NULL when it does not. */
struct uvm_btf {
        struct btf *kernel; /* the kernel's own */
        struct btf *module; /* over it */
};

enum uvm_form {
        UVM_FORM_KPROBE, /* and kretprobe */
        UVM_FORM_FENTRY, /* and fexit */
};

/* What has become of one point. */
struct uvm_probe_point {
        const struct uvm_symbol *symbol;
        enum uvm_form form; /* when attached */
        int error;          /* 0 attached; -ENOENT: the module has no such function; -errno */
        int trace_error;    /* why it has no fentry (uvm_trace.h); 0: it has, or was not to have */
};

/* Of the module as it is now loaded. Megabytes are read: once for each load of it is enough. */
void uvm_btf_read(struct uvm_btf *ret_btf);
void uvm_btf_done(struct uvm_btf *btf);

/*
 * Load and attach to the module as it is now loaded. prefer_fentry: where functions
 * allow, even if the kernel has kprobes. -ENODEV: it is not; -ENOENT: none of its
 * functions is known; -EOPNOTSUPP: the kernel has no kprobes, and none of the functions
 * may have fentry; -EPERM; other -errno. A point that cannot be probed is left out.
 */
int uvm_probes_new(const struct uvm_btf *btf, bool prefer_fentry, uint32_t ring_bytes,
                   struct uvm_probes **ret_probes);
struct uvm_probes *uvm_probes_free(struct uvm_probes *p);

/* Whether the kernel has kprobes. */
bool uvm_probes_kprobes(void);

/* Which load of the module is there: changes when it is loaded again; 0 none. */
uint64_t uvm_probes_module(void);

/*
 * What there would be to probe in the loaded module; needs no probes. 0; -ENOENT: none
 * of its functions is known; -errno.
 */
int uvm_probes_find_symbols(const struct uvm_btf *btf, struct uvm_symbols *ret_symbols);

/* Struct_ops of the loaded module, as uvm_symbols_struct_ops(); needs no probes. */
unsigned uvm_probes_struct_ops(const struct uvm_btf *btf, char *buffer, size_t size);

struct uvm_probe_point uvm_probes_point(const struct uvm_probes *p, unsigned point);
const struct uvm_symbols *uvm_probes_symbols(const struct uvm_probes *p);

/* Hand out up to max events. The number, or -errno. */
int uvm_probes_poll(struct uvm_probes *p, size_t max,
                    void (*event)(void *data, const struct uvm_probe_event *e), void *data);

/* Events not written since the start, or whose programs were not run. 0 or -errno. */
int uvm_probes_losses(const struct uvm_probes *p, uint64_t *ret_lost);
