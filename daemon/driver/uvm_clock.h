/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * UVM events carry CLOCK_MONOTONIC_RAW; everything here is CLOCK_MONOTONIC, which
 * runs beside it at a rate that NTP sets (500 ppm apart at most). Both are read
 * at intervals. A time between the latest two readings, as that of most events
 * is, lies between them in both clocks in the same proportion; older ones are
 * found by the rate of the last tenths of a second.
 */
#include <stdint.h>

#include "driver/uvm_system.h"

struct uvm_clock_pair {
        uint64_t raw_ns, monotonic_ns;
};

struct uvm_clock {
        struct uvm_clock_pair before, last;  /* the latest two */
        struct uvm_clock_pair first, middle; /* first to last: long enough for a rate */
        uint32_t error_ns;                   /* half the bracket of the last reading */
};

/* Read both clocks; call when events are about to be read. */
void uvm_clock_read(struct uvm_clock *c, const struct uvm_system *system);

/* CLOCK_MONOTONIC ns of a raw time; 0 for 0 (not known). At least one reading must have been. */
uint64_t uvm_clock_convert(const struct uvm_clock *c, uint64_t raw_ns);
