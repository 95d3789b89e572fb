/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The CPU layer: uprobes on the CUDA driver library, system-wide.
 *
 * Each probed function has a program at its entry and one at its return. The
 * entry keeps the arguments in the thread's storage, the return writes one event
 * into the ring buffer. The programs are few: the launches have theirs, all
 * other functions share one pair and are told apart by the attach cookie
 * (cpu_state_abi.h).
 *
 * A function of the library that calls another exported one counts once: the
 * entry remembers the stack pointer, and a call no higher in the stack while that
 * frame is open is passed over. The return of the open frame is known by the
 * stack pointer too, so nothing has to be counted, and a thread that leaves a
 * call by longjmp or an exception is seen again afterwards.
 *
 * Order among the launches of a context is taken at entry, by an atomic add in
 * the context's entry of the array `contexts`.
 */
#include "state.bpf.h"
#include "launch.bpf.h"
#include "call.bpf.h"
#include "process.bpf.h"
#include "depth.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
