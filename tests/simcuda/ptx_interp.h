/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A PTX interpreter: parses a module, decodes every kernel to a compact form
 * once, and runs kernels on the CPU. Used by the simulated CUDA driver and by
 * tests that execute what the device compiler and the PTX injector produce.
 *
 * What it models: warps of 32 threads that run in lockstep and reconverge at the
 * lowest program counter, blocks with shared memory and barriers, blocks of a
 * grid one after another (all at once when launched as cooperative). Addresses
 * of global, const and generic memory are host addresses. What it does not know
 * makes the load fail with the line and a reason; nothing is skipped silently.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ptx_module;
struct ptx_entry;
struct ptx_machine;

/* What a kernel run ended with. */
enum ptx_fault {
        PTX_FAULT_NONE = 0,
        PTX_FAULT_ADDRESS,    /* access outside known memory */
        PTX_FAULT_MISALIGNED, /* address not a multiple of the access size */
        PTX_FAULT_TRAP,       /* trap instruction, or a branch table index out of range */
        PTX_FAULT_DEADLOCK,   /* every thread waits for one that never comes */
        PTX_FAULT_LIMIT,      /* more warp instructions than ptx_env.max_instructions */
        PTX_FAULT_MEMORY,     /* no memory for registers, shared or local memory */
};

/* A piece of memory that kernels may access. */
struct ptx_region {
        uint64_t start;
        uint64_t end;   /* exclusive */
        bool read_only; /* stores fault */
        bool watched;   /* stores are first offered to ptx_env.drop_store */
};

/*
 * The world around a run. Any pointer may be NULL: no find_region means that
 * every address may be accessed; no globaltimer means CLOCK_MONOTONIC.
 * Callbacks run on the thread that runs the kernel.
 */
struct ptx_env {
        void *userdata;
        /* The region that contains the address; false: none. */
        bool (*find_region)(void *userdata, uint64_t address, struct ptx_region *ret_region);
        /*
         * Changes whenever a region that find_region returned may no longer be valid;
         * NULL: they stay valid during a run, and are forgotten between runs.
         */
        const uint64_t *region_generation;
        uint64_t (*globaltimer)(void *userdata); /* ns */
        /* True: the store to a watched region is lost. */
        bool (*drop_store)(void *userdata, uint64_t address, unsigned bytes);
        /* Called with the number of warp instructions executed since the last call. */
        void (*charge)(void *userdata, uint64_t instructions);
        /* How many instructions a warp's next turn has, at least 1; NULL: thousands. */
        unsigned (*turn)(void *userdata);
        uint64_t max_instructions; /* warp instructions of one run; 0: no limit */
        unsigned sm_count;         /* blocks go to multiprocessors in turn; 0 means 1 */
};

/*
 * Constant bank 0 as sm_90 has it: what the driver tells a grid, then the
 * parameters. Of the driver's words those are modelled that %gridid and
 * device_abi.h name; the others are 0. A kernel reads them as %envregN (word
 * 0x40 + 4 * N), and with ld.param at negative offsets from its first parameter.
 */
#define PTX_BANK_GRIDID  0x30
#define PTX_BANK_QUEUE   0x38
#define PTX_BANK_ENVREGS 0x40
#define PTX_BANK_CONTEXT 0x58
#define PTX_BANK_PARAMS  0x210

struct ptx_launch {
        uint32_t grid[3];      /* blocks, each at least 1 */
        uint32_t block[3];     /* threads, at least 1, product at most 1024 */
        uint32_t shared_bytes; /* dynamic shared memory */
        uint64_t gridid;       /* what %gridid reads */
        uint64_t queue;        /* address of the launch's descriptor: word 0x38 of the bank */
        uint32_t context;      /* number of the context: word 0x58 of the bank */
        unsigned first_sm;     /* multiprocessor of block 0 */
        bool cooperative;      /* all blocks are resident and take turns */
};

struct ptx_param_info {
        uint32_t offset; /* in the parameter buffer, bytes */
        uint32_t bytes;
};

struct ptx_entry_info {
        const char *name; /* lives as long as the module */
        const struct ptx_param_info *params;
        unsigned param_count;
        uint32_t param_bytes;
        uint32_t shared_bytes; /* static */
        uint32_t local_bytes;  /* per thread */
        uint32_t registers;    /* 32-bit, rough */
        uint32_t max_threads;  /* per block, from .maxntid or .reqntid; else 1024 */
        uint32_t instructions; /* decoded */
        uint32_t required[3];  /* .reqntid; 0 when absent */
};

/*
 * Parse and decode a PTX text of `bytes` bytes (a trailing NUL is allowed, none
 * is needed). log receives a NUL-terminated message "line N: reason" on failure;
 * it may be NULL. max_sm refuses modules whose .target is newer (0: accept all).
 * Returns 0, -EINVAL (not acceptable PTX) or -ENOMEM. Any thread.
 */
int ptx_module_load(const char *text, size_t bytes, unsigned max_sm, char *log, size_t log_bytes,
                    struct ptx_module **ret_module);

/* Free a module with its globals. No run of its kernels may be in progress. Returns NULL. */
struct ptx_module *ptx_module_free(struct ptx_module *module);

/* The kernels of a module, in the order of the text. */
size_t ptx_module_entry_count(const struct ptx_module *module);
const struct ptx_entry *ptx_module_entry(const struct ptx_module *module, size_t index);
const struct ptx_entry *ptx_module_find_entry(const struct ptx_module *module, const char *name);

/* Address and size of a .global or .const variable. 0 or -ENOENT. */
int ptx_module_find_global(const struct ptx_module *module, const char *name, void **ret_address,
                           size_t *ret_bytes);

/* The storage of all globals and constants of a module, for a memory registry; NULL when none. */
void *ptx_module_data(const struct ptx_module *module, size_t *ret_bytes);

/* Sizes and parameters of a kernel. The result lives as long as the module. */
const struct ptx_entry_info *ptx_entry_info(const struct ptx_entry *entry);

/*
 * Registers, shared and local memory for runs; reused from run to run so that
 * small kernels cost no allocation. One thread at a time. NULL: no memory.
 */
struct ptx_machine *ptx_machine_new(void);
struct ptx_machine *ptx_machine_free(struct ptx_machine *machine);

/*
 * Run a grid to its end or first fault. params is the parameter buffer laid out
 * as ptx_entry_info says. Returns 0 or -EINVAL for an impossible launch;
 * ret_fault tells how the kernel ended.
 */
int ptx_run(struct ptx_machine *machine, const struct ptx_entry *entry,
            const struct ptx_launch *launch, const void *params, const struct ptx_env *env,
            enum ptx_fault *ret_fault);

/* The address whose access faulted, and the source line, of the machine's last run. */
uint64_t ptx_machine_fault_address(const struct ptx_machine *machine);
uint32_t ptx_machine_fault_line(const struct ptx_machine *machine);

/* A fault in words. */
const char *ptx_fault_name(enum ptx_fault fault);
