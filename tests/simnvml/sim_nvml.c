/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A management library of two GPUs that do not exist. The second is an old one
 * that knows little. SIM_NVML=broken: it does not start. SIM_NVML_XID=N: the
 * first GPU has an error event N, once. SIM_NVML_HANG=FILE: while there is such a file
 * no call returns that asks the driver. Signatures as NVIDIA documents them.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

#define SUCCESS       0
#define NOT_FOUND     6
#define NOT_SUPPORTED 3
#define UNINITIALIZED 1
#define TIMEOUT       10
#define DRIVER_GONE   9

struct device {
        unsigned minor;
        int old;
};
static struct device devices[2] = {{4, 0}, {7, 1}};
static int started, told;

struct utilization {
        unsigned gpu, memory;
};
struct memory {
        unsigned long long total, free, used;
};
struct event {
        struct device *device;
        unsigned long long type, data;
        unsigned gpu_instance, compute_instance;
};

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetCount_v2(unsigned *count);
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device);
API int nvmlDeviceGetMinorNumber(struct device *d, unsigned *minor);
API int nvmlDeviceGetUUID(struct device *d, char *uuid, unsigned size);
API int nvmlDeviceGetName(struct device *d, char *name, unsigned size);
API int nvmlDeviceGetUtilizationRates(struct device *d, struct utilization *u);
API int nvmlDeviceGetMemoryInfo(struct device *d, struct memory *m);
API int nvmlDeviceGetClockInfo(struct device *d, int clock, unsigned *mhz);
API int nvmlDeviceGetPowerUsage(struct device *d, unsigned *mw);
API int nvmlDeviceGetEnforcedPowerLimit(struct device *d, unsigned *mw);
API int nvmlDeviceGetTemperature(struct device *d, int sensor, unsigned *celsius);
API int nvmlDeviceGetTotalEccErrors(struct device *d, int type, int counter,
                                    unsigned long long *count);
API int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, unsigned long long *reasons);
API int nvmlEventSetCreate(void **set);
API int nvmlEventSetFree(void *set);
API int nvmlDeviceRegisterEvents(struct device *d, unsigned long long types, void *set);
API int nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms);

/* The driver has a lock of its own held. */
static void ask_driver(void)
{
        const char *file = getenv("SIM_NVML_HANG");

        while (file && access(file, F_OK) == 0)
                usleep(1000);
}

int nvmlInit_v2(void)
{
        const char *how = getenv("SIM_NVML");

        ask_driver();
        if (how && strcmp(how, "broken") == 0)
                return DRIVER_GONE;
        started++;
        return SUCCESS;
}

int nvmlShutdown(void)
{
        ask_driver();
        return started-- > 0 ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
        *count = 2;
        return started ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
        if (index >= 2)
                return NOT_FOUND;
        *device = &devices[index];
        return SUCCESS;
}

int nvmlDeviceGetMinorNumber(struct device *d, unsigned *minor)
{
        *minor = d->minor;
        return SUCCESS;
}

int nvmlDeviceGetUUID(struct device *d, char *uuid, unsigned size)
{
        strncpy(uuid, d->old ? "GPU-old" : "GPU-new", size);
        return SUCCESS;
}

int nvmlDeviceGetName(struct device *d, char *name, unsigned size)
{
        strncpy(name, d->old ? "Simulated Old" : "Simulated New", size);
        return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(struct device *d, struct utilization *u)
{
        ask_driver();
        *u = (struct utilization){97, 41};
        return d->old ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetMemoryInfo(struct device *d, struct memory *m)
{
        ask_driver();
        *m = (struct memory){80ULL << 30, 20ULL << 30, 60ULL << 30};
        return SUCCESS;
}

int nvmlDeviceGetClockInfo(struct device *d, int clock, unsigned *mhz)
{
        *mhz = clock == 1 ? 1980 : 3201;
        return d->old ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(struct device *d, unsigned *mw)
{
        *mw = 612345;
        return d->old ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(struct device *d, unsigned *mw)
{
        *mw = 700000;
        return d->old ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetTemperature(struct device *d, int sensor, unsigned *celsius)
{
        *celsius = 64;
        return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(struct device *d, int type, int counter, unsigned long long *count)
{
        *count = type == 0 ? 12 : 1;
        return d->old ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct device *d, unsigned long long *reasons)
{
        *reasons = 0x4 | 0x40;
        return d->old ? NOT_SUPPORTED : SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
        *set = &told;
        return SUCCESS;
}

int nvmlEventSetFree(void *set)
{
        return set == &told ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceRegisterEvents(struct device *d, unsigned long long types, void *set)
{
        return d->old || types != 8 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms)
{
        const char *xid = getenv("SIM_NVML_XID");
        struct timespec t = {.tv_nsec = 20000000};

        ask_driver();
        if (xid && !told) {
                told = 1;
                *e = (struct event){
                        .device = &devices[0], .type = 8, .data = strtoul(xid, NULL, 10)};
                return SUCCESS;
        }
        nanosleep(&t, NULL);
        return TIMEOUT;
}
