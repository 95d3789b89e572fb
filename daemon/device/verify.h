/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the kernel verifier's log says: about a refusal, and how much of its stack a program uses.
 */
#include <stddef.h>

/*
 * The verifier's last word before its statistics, into `message`, and the
 * instruction it was at. 0; -ENOENT when the log holds none.
 */
int verify_read_log(const char *log, char *message, size_t message_size, size_t *ret_insn);

/*
 * The most bytes of its stack that any function of the program uses, from the statistics; 0
 * when there are none.
 */
unsigned verify_read_depth(const char *log);
