/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_rings.bpf.c and its test. */
#include "gpuobs_types.h"

struct rings_event {
        __u64 time_ns;
        __u32 block, thread;
        __u16 lane;
        __u8 kind;
        __u8 pad;
        __u32 odd; /* 8-byte words are not full at the end */
};

#define RINGS_BYTES 16384
#define RINGS_WIDE  100 /* bytes of a record of the other ring */
