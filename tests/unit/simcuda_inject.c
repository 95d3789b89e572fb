/* SPDX-License-Identifier: Apache-2.0 */

/* Injected by the simulated driver in its test; says how it was called. */
#include "simcuda/cuda.h"

int injected_calls;
int injected_version;
int injected_devices;

int InitializeInjection(void);

/* As an agent would, it uses the driver while the driver is being initialised. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
        injected_calls++;
        cuDriverGetVersion(&injected_version);
        if (cuInit(0) || cuDeviceGetCount(&injected_devices))
                injected_devices = -1;
        return 1;
}

int injected_result(void);

__attribute__((visibility("default"))) int injected_result(void)
{
        return injected_calls == 1 && injected_version == 13000 && injected_devices == 1;
}
