/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "simcuda/cuda.h"

/* Launches one kernel of six threads, each of which adds what to sum[0]. 0 or a CUresult. */
__attribute__((visibility("default"))) int plugin_work(CUdeviceptr sum, unsigned what);
