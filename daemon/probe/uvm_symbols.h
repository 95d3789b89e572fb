/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which functions of the managed-memory driver to probe, and which of their
 * arguments is what. Both differ between releases and builds: for each point there
 * is a list of functions, of which the first that the kernel has is taken; its
 * arguments are looked up by type in the module's BTF. A function that the compiler
 * has changed (its symbol has a suffix) has other arguments than its BTF says:
 * it is probed for counts and times alone.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "driver/uvm_probe_abi.h"

#define UVM_MODULE     "nvidia_uvm"
#define UVM_SYMBOL_MAX 96

struct btf;

#define UVM_ENUM_MAX 16 /* larger numbers are not known */

/* One point. */
struct uvm_symbol {
        char name[UVM_SYMBOL_MAX]; /* as the kernel lists it; "" the kernel has none */
        bool exact;                /* false: changed by the compiler */
        bool has_arguments;        /* at least one is known */
        bool unique;               /* nothing else in the kernel has its name */
        bool has_prototype;        /* BTF tells its parameters, and they are in their places */
        uint8_t parameters;        /* how many, by BTF */
        uint8_t arguments[UVM_ROLE_COUNT];
        uint8_t gpu_type; /* enum uvm_gpu_type */
};

struct uvm_symbols {
        struct uvm_symbol points[UVM_POINT_COUNT];
        uint8_t causes[UVM_ENUM_MAX]; /* enum uvm_cause, by the driver's number */
        uint8_t askers[UVM_ENUM_MAX];
        uint8_t chunk_states[UVM_ENUM_MAX]; /* enum uvm_chunk_state */
};

/*
 * Find them. kallsyms: text in the form of /proc/kallsyms; btf: of the module, NULL
 * when there is none. A point that is not found has an empty name.
 */
void uvm_symbols_find(FILE *kallsyms, const struct btf *btf, struct uvm_symbols *ret_symbols);

/* The driver's number as ours; 0 not known. */
enum uvm_cause uvm_symbols_cause(const struct uvm_symbols *s, const struct uvm_probe_event *e);
enum uvm_chunk_state uvm_symbols_state(const struct uvm_symbols *s,
                                       const struct uvm_probe_event *e);

/*
 * Types of struct_ops that a module offers, policies being part of the driver
 * itself there: separated by ", ", cut to size; "" none. Their number.
 */
unsigned uvm_symbols_struct_ops(const struct btf *btf, char *buffer, size_t size);
