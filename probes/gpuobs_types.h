/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * Fixed-width types for headers that eBPF programs, the daemon and the agent
 * share. In eBPF they come from bpf/gpuobs_core.h (the CO-RE type header), on
 * the host from <linux/types.h>.
 */
#ifdef __bpf__
#include "bpf/gpuobs_core.h"
#else
#include <linux/types.h>
#endif
