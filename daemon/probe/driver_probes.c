/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/driver_probes.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "ioctl.skel.h"
#include "probe/losses.h"
#include "probe/proc_devices.h"
#include "probe/tracepoint.h"
#include "util/macro.h"
#include "util/pid_namespace.h"

#define RING_BYTES_DEFAULT (1u << 20)

struct driver_probes {
        struct ioctl_bpf *bpf;
        struct ring_buffer *ring;
        struct bpf_link *links[2];
        const char *devices; /* where the kernel lists them; NULL: the ranges were given */
        uint32_t uvm_major;  /* 0: not there */

        void (*call)(void *data, const struct driver_call_event *e);
        void *data;
        size_t taken, max; /* during a poll */
};

DEFINE_CLEANUP(struct driver_probes *, driver_probes_free)

/* ---- which files ---- */

int driver_probes_find_devices(struct driver_probes *p)
{
        struct driver_device_range *ranges = p->bpf->bss->ranges;
        uint32_t major;

        if (!p->devices)
                return 0;
        major = proc_devices_find(p->devices, "nvidia-uvm");
        if (major != p->uvm_major) {
                ranges[1] = (struct driver_device_range){
                        major, 0, 0, major ? DRIVER_DEVICE_UVM : DRIVER_DEVICE_NONE};
                ranges[2] = (struct driver_device_range){
                        major, 1, 1, major ? DRIVER_DEVICE_UVM_TOOLS : DRIVER_DEVICE_NONE};
                p->uvm_major = major;
        }
        return major ? 0 : -ENOENT;
}

static void set_ranges(struct driver_probes *p, const struct driver_probes_options *o)
{
        static const struct driver_device_range rm = {DRIVER_RM_MAJOR, 0, DRIVER_RM_CONTROL_MINOR,
                                                      DRIVER_DEVICE_RM};
        struct driver_device_range *ranges = p->bpf->bss->ranges;

        if (!o->ranges) {
                ranges[0] = rm;
                p->devices = o->devices ? o->devices : "/proc/devices";
                (void)driver_probes_find_devices(p); /* the module may come later */
                return;
        }
        for (size_t i = 0; i < DRIVER_DEVICE_RANGES && o->ranges[i].device; i++)
                ranges[i] = o->ranges[i];
}

/* ---- life ---- */

/* Processes are named by the ids that /proc shows us. */
static void set_pid_namespace(struct ioctl_bpf *bpf)
{
        const struct pid_namespace other = pid_namespace_other();

        bpf->rodata->pid_ns_device = other.device;
        bpf->rodata->pid_ns_inode = other.inode;
}

static int load(struct driver_probes *p, const struct driver_probes_options *o)
{
        const uint32_t ring_bytes = o->ring_bytes ? o->ring_bytes : RING_BYTES_DEFAULT;
        int r;

        p->bpf = ioctl_bpf__open();
        if (!p->bpf)
                return -errno;
        set_pid_namespace(p->bpf);
        p->bpf->rodata->own_tgid = o->but_own ? (uint32_t)getpid() : 0;
        r = bpf_map__set_max_entries(p->bpf->maps.events, ring_bytes);
        if (r == 0)
                r = ioctl_bpf__load(p->bpf);
        return r;
}

static int attach(struct driver_probes *p)
{
        /* The return first: an entry without it would leave a call under way for good. */
        int r = tracepoint_attach(p->bpf->progs.ioctl_exit, "syscalls", "sys_exit_ioctl",
                                  &p->links[0]);

        return r < 0 ? r
                     : tracepoint_attach(p->bpf->progs.ioctl_enter, "syscalls", "sys_enter_ioctl",
                                         &p->links[1]);
}

static int take_event(void *data, void *event, size_t size)
{
        struct driver_probes *p = data;

        if (size == sizeof(struct driver_call_event))
                p->call(p->data, event);
        return ++p->taken < p->max ? 0 : -ECANCELED;
}

int driver_probes_new(const struct driver_probes_options *options,
                      struct driver_probes **ret_probes)
{
        _cleanup_(driver_probes_freep) struct driver_probes *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        r = load(p, options);
        if (r < 0)
                return r;
        set_ranges(p, options);
        p->ring = ring_buffer__new(bpf_map__fd(p->bpf->maps.events), take_event, p, NULL);
        if (!p->ring)
                return -errno;
        r = attach(p);
        if (r < 0)
                return r;
        *ret_probes = TAKE_PTR(p);
        return 0;
}

struct driver_probes *driver_probes_free(struct driver_probes *p)
{
        if (!p)
                return NULL;
        bpf_link__destroy(p->links[1]);
        bpf_link__destroy(p->links[0]);
        ring_buffer__free(p->ring);
        ioctl_bpf__destroy(p->bpf);
        free(p);
        return NULL;
}

/* ---- events ---- */

int driver_probes_poll(struct driver_probes *p, size_t max,
                       void (*call)(void *data, const struct driver_call_event *e), void *data)
{
        int r;

        p->call = call;
        p->data = data;
        p->taken = 0;
        p->max = max;
        r = max ? ring_buffer__consume(p->ring) : 0;
        return r < 0 && r != -ECANCELED ? r : (int)p->taken;
}

int driver_probes_losses(const struct driver_probes *p, uint64_t ret_losses[DRIVER_LOSS_COUNT])
{
        return losses_read(bpf_map__fd(p->bpf->maps.losses), DRIVER_LOSS_COUNT, ret_losses);
}
