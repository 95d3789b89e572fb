/* SPDX-License-Identifier: Apache-2.0 */

/* What there is of GPUs, the NVIDIA driver and its libraries. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

#define OK      GPUOBS_CHECK_STATE_OK
#define OFF     GPUOBS_CHECK_STATE_OFF
#define LIMITED GPUOBS_CHECK_STATE_LIMITED
#define BROKEN  GPUOBS_CHECK_STATE_BROKEN

#define VENDOR_NVIDIA     "0x10de"
#define CLASS_DISPLAY     "0x03"
#define OLDEST_DRIVER     535 /* release that numbers and structs were checked with */
#define GPU_INFORMATION   "/proc/driver/nvidia/gpus/*/information"
#define MIG_GPU_INSTANCES "/proc/driver/nvidia/capabilities/gpu*/mig/gi*/access"

/* ---- GPUs ---- */

static bool count_gpu(const struct doctor *d, const char *path, void *data)
{
        char vendor[16], class_path[PATH_MAX], class[16];

        doctor_read(d, path, vendor, sizeof(vendor));
        snprintf(class_path, sizeof(class_path), "%.*s/class",
                 (int)(strlen(path) - strlen("/vendor")), path);
        doctor_read(d, class_path, class, sizeof(class));
        if (!strcmp(vendor, VENDOR_NVIDIA) && !strncmp(class, CLASS_DISPLAY, strlen(CLASS_DISPLAY)))
                ++*(size_t *)data;
        return true;
}

static size_t count_gpus(struct doctor *d)
{
        size_t n = 0;

        doctor_glob(d, "/sys/bus/pci/devices/*/vendor", count_gpu, &n);
        if (n)
                doctor_add(d, "gpus", OK, NULL, "%zu of NVIDIA on the PCI bus", n);
        else
                doctor_add(d, "gpus", OFF, NULL, "none of NVIDIA on the PCI bus");
        return n;
}

/* ---- the kernel modules ---- */

/* The first word that begins as a version does: "580.159.04". */
static const char *version_in(char *text)
{
        char *word, *rest = text;

        while ((word = strsep(&rest, " \t\n")))
                if (isdigit((unsigned char)word[0]) && strchr(word, '.'))
                        return word;
        return NULL;
}

static bool check_version(struct doctor *d, size_t gpus)
{
        char text[256];
        const char *version;
        bool open;

        if (doctor_read(d, "/proc/driver/nvidia/version", text, sizeof(text)) < 0) {
                doctor_add(d, "driver", gpus ? BROKEN : OFF,
                           gpus ? "Install NVIDIA's driver and load it: modprobe nvidia" : NULL,
                           gpus ? "the kernel module nvidia is not loaded"
                                : "not loaded: only a simulated GPU can be observed here");
                return false;
        }
        open = strstr(text, "Open Kernel Module");
        version = version_in(text);
        if (!version)
                doctor_add(d, "driver", LIMITED, NULL, "loaded, its version is not known");
        else if (atoi(version) < OLDEST_DRIVER)
                doctor_add(d, "driver", LIMITED, "Install a driver of release 535 or later.",
                           "release %s is older than what gpuobsd was tried with", version);
        else
                doctor_add(d, "driver", OK, NULL, "release %s, %s kernel modules", version,
                           open ? "open" : "proprietary");
        return true;
}

struct device_files {
        size_t count;
        size_t missing, closed;
};

static void look_at(const struct doctor *d, const char *path, struct device_files *f)
{
        f->count++;
        if (!doctor_exists(d, path))
                f->missing++;
        else if (!doctor_may_use(d, path))
                f->closed++;
}

static bool look_at_gpu(const struct doctor *d, const char *path, void *data)
{
        char text[2048], device[32];
        const char *minor;

        doctor_read(d, path, text, sizeof(text));
        minor = strstr(text, "Device Minor:");
        if (minor) {
                snprintf(device, sizeof(device), "/dev/nvidia%d",
                         atoi(minor + strlen("Device Minor:")));
                look_at(d, device, data);
        }
        return true;
}

static void check_device_files(struct doctor *d)
{
        struct device_files f = {0};

        look_at(d, "/dev/nvidiactl", &f);
        doctor_glob(d, GPU_INFORMATION, look_at_gpu, &f);
        if (f.missing)
                doctor_add(d, "device_files", BROKEN, "nvidia-modprobe -c 0 makes them.",
                           "%zu of %zu files of the driver in /dev are missing", f.missing,
                           f.count);
        else if (f.closed)
                doctor_add(d, "device_files", OK, NULL,
                           "%zu are there; you may not use %zu of them, which root may", f.count,
                           f.closed);
        else
                doctor_add(d, "device_files", OK, NULL, "%zu are there and can be used", f.count);
}

static void check_managed_memory(struct doctor *d)
{
        if (!doctor_exists(d, "/sys/module/nvidia_uvm"))
                doctor_add(d, "managed_memory_module", OFF,
                           "nvidia-modprobe -u -c 0 loads it; so does the first CUDA program.",
                           "nvidia_uvm is not loaded");
        else if (!doctor_exists(d, "/dev/nvidia-uvm") || !doctor_exists(d, "/dev/nvidia-uvm-tools"))
                doctor_add(d, "managed_memory_module", LIMITED,
                           "nvidia-modprobe -u -c 0 makes them.",
                           "nvidia_uvm is loaded, but /dev/nvidia-uvm or /dev/nvidia-uvm-tools is "
                           "missing: no events of managed memory");
        else
                doctor_add(d, "managed_memory_module", OK, NULL, "nvidia_uvm is loaded, %s BTF",
                           doctor_exists(d, "/sys/kernel/btf/nvidia_uvm") ? "with" : "without");
}

static void check_mig(struct doctor *d)
{
        size_t n = doctor_glob(d, MIG_GPU_INSTANCES, NULL, NULL);

        if (n)
                doctor_add(d, "mig", OK, NULL,
                           "%zu GPU instances; each compute instance has shares of its own", n);
        else
                doctor_add(d, "mig", OFF, NULL, "no GPU is divided");
}

static void check_profiling(struct doctor *d)
{
        char text[4096];

        if (doctor_read(d, "/proc/driver/nvidia/params", text, sizeof(text)) < 0)
                return;
        doctor_add(d, "profiling", OK, NULL,
                   strstr(text, "RmProfilingAdminOnly: 1")
                           ? "for root only: the daemon traces context switches as root"
                           : "for everybody");
}

/* ---- libraries ---- */

static void check_libraries(struct doctor *d, bool has_driver)
{
        char path[PATH_MAX];

        if (doctor_find_library(d, "libcuda.so.1", path, sizeof(path)))
                doctor_add(d, "libcuda", OK, NULL, "%s", path);
        else
                doctor_add(d, "libcuda", has_driver ? LIMITED : OFF,
                           has_driver
                                   ? "Nothing, if all CUDA programs run in containers that bring "
                                     "it; else install the driver's libraries."
                                   : NULL,
                           "there is no libcuda.so.1 where the dynamic linker looks");
        if (doctor_find_library(d, "libnvidia-ml.so.1", path, sizeof(path)))
                doctor_add(d, "libnvidia_ml", OK, NULL, "%s", path);
        else
                doctor_add(d, "libnvidia_ml", has_driver ? LIMITED : OFF,
                           has_driver ? "Install the driver's libraries." : NULL,
                           "there is no libnvidia-ml.so.1: gpuobsctl gpus shows nothing");
}

void doctor_check_driver(struct doctor *d)
{
        bool loaded = check_version(d, count_gpus(d));

        if (loaded) {
                check_device_files(d);
                check_managed_memory(d);
                check_mig(d);
                check_profiling(d);
        }
        check_libraries(d, loaded);
}
