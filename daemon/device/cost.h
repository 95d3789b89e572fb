/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The most a program can cost: for every kind of cost the dearest way through it.
 *
 * What is in a loop counts as often as the loop can go round. The kernel's verifier
 * walked the program to its end, every round of every loop, so no run executes more
 * of the program's instructions than the verifier did: an instruction whose shortest
 * way back to itself takes n instructions runs at most verified / n + 1 times. A
 * function is walked for itself, since the verifier looks at a global function only
 * once, whoever calls it.
 */
#include "device/flow.h"

/*
 * costs holds for each instruction what running it once costs; verified is the
 * number of instructions the kernel's verifier walked, 0 if not known. ret_worst is
 * the instruction that contributes most to the number of instructions. 0; -EOVERFLOW
 * there is a loop and verified is not known: ret_worst is in it; -ENOMEM.
 */
int cost_bound(const struct code *code, const struct flow *flow, const struct device_cost *costs,
               uint64_t verified, struct device_cost *ret_cost, size_t *ret_worst);
