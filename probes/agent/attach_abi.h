/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Between gpuobsctl attach and the agent it brings into a running process: one block in
 * the agent's memory, which gpuobsctl finds by its symbol and reads and writes from
 * outside. The agent never changes code here: where hooks are to go is told, and
 * gpuobsctl writes them while every thread stands still outside of them.
 *
 * attach:  gpuobsctl has the library loaded, writes `socket`, has gpuobs_attach(ATTACH_BEGIN)
 *          called; the agent's thread goes STARTING -> PLANNED (or FAILED with a reason);
 *          gpuobsctl writes the patches, sets PATCHED; the agent goes on to READY or FAILED.
 * detach:  gpuobs_attach(ATTACH_END); LEAVING -> UNHOOK (nothing of the hooks' is wanted any
 *          more); gpuobsctl takes the patches out, sets DETACHED.
 */
#include <stdint.h>

#define ATTACH_ABI_VERSION 1
#define ATTACH_FUNCTION    "gpuobs_attach"
#define ATTACH_BLOCK       "gpuobs_attach_block"
#define ATTACH_PATCHES     96
#define ATTACH_PATCH_BYTES 5

enum attach_what {
        ATTACH_BEGIN = 1,
        ATTACH_END,
};

enum attach_state {
        ATTACH_NONE = 0, /* the library is there; nothing has been asked */
        ATTACH_STARTING,
        ATTACH_PLANNED,
        ATTACH_PATCHED,
        ATTACH_READY,
        ATTACH_FAILED,
        ATTACH_LEAVING,
        ATTACH_UNHOOK,
        ATTACH_DETACHED,
        ATTACH_INJECTED, /* the driver loaded the agent when the process started */
};

/* Five bytes of code, in the middle of a function of the driver's. */
struct attach_patch {
        uint64_t address;
        uint8_t original[ATTACH_PATCH_BYTES];
        uint8_t jump[ATTACH_PATCH_BYTES];
        uint8_t moved; /* bytes from address on that a thread must not be inside of */
        uint8_t pad[5];
};
_Static_assert(sizeof(struct attach_patch) == 24, "attach patch");

struct attach_block {
        uint32_t version;
        uint32_t state; /* enum attach_state */
        uint32_t patch_count;
        uint32_t initialised; /* READY: the process had initialised the driver */
        char socket[112];     /* of the daemon, for agents */
        char reason[240];     /* FAILED: why */
        struct attach_patch patches[ATTACH_PATCHES];
};
_Static_assert(sizeof(struct attach_block) == 368 + 24 * ATTACH_PATCHES, "attach block");
