/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Makes a process call functions, and changes its code, through ptrace.
 *
 * A call is made on one of its threads, at a moment when that thread holds nothing that
 * loading a library needs: it waits in a system call that goes on by itself, or it is in
 * code that is neither the C library's nor the dynamic linker's, the driver's or an
 * allocator's, and no signal handler has interrupted anything. All registers, the signal
 * mask and what the thread was waiting for are put back. Other threads run on.
 *
 * The call ends in a return from a signal that was never there. Who waits for it catches
 * that and restores the thread exactly; if he has given up or is gone, the kernel does,
 * and the thread goes on all the same.
 */
#include "target.h"

#define BORROW_TEXT_BYTES 512

struct borrow_call {
        const char *library;  /* to be loaded */
        const char *function; /* of it, to be called: int f(int) */
        int argument;
        int result;                    /* what it returned */
        char error[BORROW_TEXT_BYTES]; /* of the dynamic linker */
};

/* 0; -errno with a sentence in t->reason. */
int borrow_and_call(struct target *t, struct borrow_call *call);

struct borrow_patch {
        uint64_t address;
        const uint8_t *from, *to;
        uint8_t size;
        uint8_t avoid; /* bytes from address on that no thread may be inside of */
};

/*
 * Change code while every thread stands still, none of them in the middle of it or about
 * to come back there. All or nothing. 0; -errno with a sentence in t->reason.
 */
int borrow_patch(struct target *t, const struct borrow_patch *patches, size_t count);
