/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/cpu_probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "cpu/cpu_abi.h"
#include "cpu/cpu_state_abi.h"
#include "cuda.skel.h"
#include "probe/foreign_probes.h"
#include "probe/inner_maps.h"
#include "probe/libraries.h"
#include "probe/losses.h"
#include "probe/tracepoint.h"
#include "probe/uprobe.h"
#include "util/macro.h"
#include "util/pid_namespace.h"
#include "util/time.h"

/* A mapping is announced before it is made: how long it may take, and how many at a time. */
#define PENDING_PATIENCE_NS NSEC_PER_SEC
#define PENDING_MAX         64

/* Device records that one call of the depth program looks at: more than a poll's worth. */
#define DEPTH_RECORDS_MAX 8192

struct pending {
        uint64_t since_ns;
        uint64_t device, inode;
        pid_t pid;
};

struct known_context {
        uint64_t handle;
        uint32_t tgid;
};

struct cpu_probes {
        struct cuda_bpf *bpf;
        struct inner_maps *inner_maps;
        struct ring_buffer *ring;
        struct bpf_link *mappings; /* NULL: new mappings are not seen */
        struct libraries *libraries;
        const struct cpu_probes_ops *ops;
        void *data;
        bool only_listed;

        size_t taken, max; /* during a poll */
        bool put_back;     /* the event that is being handed out */
        size_t again_size; /* of the event that was put back; 0 none */
        uint64_t again[(sizeof(struct cpu_handle_event) + CPU_NAME_MAX) / sizeof(uint64_t)];
        struct pending pending[PENDING_MAX];
        size_t pending_count;
        bool rescan; /* more was pending than there was room for */

        struct known_context contexts[CPU_CONTEXT_MAX]; /* as the events told */
};

/* ---- contexts ---- */

static int context_release(struct cpu_probes *p, uint32_t index)
{
        static const struct cpu_context none;
        int r;

        p->contexts[index] = (struct known_context){0};
        r = bpf_map_update_elem(bpf_map__fd(p->bpf->maps.contexts), &index, &none, BPF_ANY);
        if (r < 0)
                return r;
        return bpf_map_update_elem(bpf_map__fd(p->bpf->maps.free_contexts), NULL, &index, BPF_ANY);
}

static int fill_free_contexts(struct cpu_probes *p)
{
        int fd = bpf_map__fd(p->bpf->maps.free_contexts), r;
        uint32_t index;

        for (index = 1; index < CPU_CONTEXT_MAX; index++) {
                r = bpf_map_update_elem(fd, NULL, &index, BPF_ANY);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void context_event(struct cpu_probes *p, const struct cpu_handle_event *e)
{
        if (e->context == 0 || e->context >= CPU_CONTEXT_MAX)
                return;
        if (e->destroyed)
                context_release(p, e->context);
        else
                p->contexts[e->context] = (struct known_context){e->handle, e->tgid};
}

/*
 * Release the contexts of a process that are not of this generation; any_tgid:
 * of all processes that are not known any more.
 */
static void release_contexts(struct cpu_probes *p,
                             bool (*is_over)(struct cpu_probes *p,
                                             const struct cpu_context_key *key, uint32_t tgid),
                             uint32_t tgid)
{
        int fd = bpf_map__fd(p->bpf->maps.context_index);
        struct cpu_context_key key, next;
        uint32_t index;
        int r;

        r = bpf_map_get_next_key(fd, NULL, &next);
        while (r == 0) {
                key = next;
                /* Before it is deleted, or the walk would start over. */
                r = bpf_map_get_next_key(fd, &key, &next);
                if (!is_over(p, &key, tgid) || bpf_map_lookup_elem(fd, &key, &index) < 0)
                        continue;
                bpf_map_delete_elem(fd, &key);
                if (index > 0 && index < CPU_CONTEXT_MAX)
                        context_release(p, index);
        }
}

static int process_lookup(const struct cpu_probes *p, uint32_t tgid, struct cpu_process *ret_state)
{
        return bpf_map_lookup_elem(bpf_map__fd(p->bpf->maps.processes), &tgid, ret_state);
}

static bool is_over_of(struct cpu_probes *p, const struct cpu_context_key *key, uint32_t tgid)
{
        struct cpu_process state;

        if (key->tgid != tgid)
                return false;
        return process_lookup(p, tgid, &state) < 0 || state.generation != key->generation;
}

static bool is_over_any(struct cpu_probes *p, const struct cpu_context_key *key, uint32_t tgid)
{
        return is_over_of(p, key, key->tgid);
}

/* ---- events ---- */

static void note_pending(struct cpu_probes *p, const struct cpu_process_event *e)
{
        if (p->only_listed || libraries_know(p->libraries, e->device, e->inode, e->ts_ns))
                return;
        if (p->pending_count == PENDING_MAX) {
                p->rescan = true;
                return;
        }
        p->pending[p->pending_count++] = (struct pending){
                .since_ns = e->ts_ns,
                .device = e->device,
                .inode = e->inode,
                .pid = (pid_t)e->tgid,
        };
}

static void process_event(struct cpu_probes *p, const struct cpu_process_event *e)
{
        if (e->what == CPU_PROCESS_LIBRARY)
                note_pending(p, e);
        if (p->ops->process)
                p->ops->process(p->data, e);
}

static void handle_event(struct cpu_probes *p, const struct cpu_handle_event *e)
{
        /* A destroyed context keeps its index until its last event is out. */
        if (p->ops->handle)
                p->ops->handle(p->data, e);
        if (e->kind == CPU_HANDLE_CONTEXT && !p->put_back)
                context_event(p, e);
}

static void hand_out(struct cpu_probes *p, const void *bytes)
{
        switch (((const uint8_t *)bytes)[CPU_EVENT_TYPE_OFFSET]) {
        case CPU_EVENT_LAUNCH:
        case CPU_EVENT_GRAPH_LAUNCH:
                if (p->ops->launch)
                        p->ops->launch(p->data, bytes);
                break;
        case CPU_EVENT_OPERATION:
                if (p->ops->operation)
                        p->ops->operation(p->data, bytes);
                break;
        case CPU_EVENT_HANDLE:
                handle_event(p, bytes);
                break;
        case CPU_EVENT_PROCESS:
                process_event(p, bytes);
                break;
        }
}

static int take_event(void *context, void *bytes, size_t size)
{
        struct cpu_probes *p = context;

        if (size < sizeof(struct cpu_launch_event))
                return 0;
        hand_out(p, bytes);
        p->taken++;
        if (p->put_back) {
                p->put_back = false;
                p->again_size = size < sizeof(p->again) ? size : sizeof(p->again);
                memmove(p->again, bytes, p->again_size);
                return -ECANCELED;
        }
        /* A negative result ends the consuming, this event included. */
        return p->taken < p->max ? 0 : -ECANCELED;
}

/* The event that was put back comes before all others. */
static int take_again(struct cpu_probes *p)
{
        size_t size = p->again_size;

        p->again_size = 0;
        return size ? take_event(p, p->again, size) : 0;
}

static bool is_settled(struct cpu_probes *p, const struct pending *pending, uint64_t now)
{
        int found = libraries_attach_process(p->libraries, pending->pid, pending->since_ns);

        if (found > 0)
                libraries_learn(p->libraries, pending->pid, pending->device, pending->inode);
        return found != 0 || now - pending->since_ns > PENDING_PATIENCE_NS;
}

static void attach_pending(struct cpu_probes *p)
{
        uint64_t now = now_ns();
        size_t i, kept = 0;

        for (i = 0; i < p->pending_count; i++)
                if (!is_settled(p, &p->pending[i], now))
                        p->pending[kept++] = p->pending[i];
        p->pending_count = kept;
        if (p->rescan || (!p->only_listed && libraries_can_go_on(p->libraries))) {
                p->rescan = false;
                libraries_scan(p->libraries, now);
        }
}

int cpu_probes_poll(struct cpu_probes *p, size_t max)
{
        int r;

        p->taken = 0;
        p->max = max;
        if (max > 0 && take_again(p) == 0) {
                r = ring_buffer__consume(p->ring);
                if (r < 0 && r != -ECANCELED)
                        return r;
        }
        attach_pending(p);
        return (int)p->taken;
}

void cpu_probes_stop_poll(struct cpu_probes *p)
{
        p->max = 0;
}

void cpu_probes_put_back(struct cpu_probes *p)
{
        p->put_back = true;
}

int cpu_probes_fd(const struct cpu_probes *p)
{
        return ring_buffer__epoll_fd(p->ring);
}

/* ---- processes ---- */

/* An end that the kernel side could not report, or did not see. */
static void report_exit(struct cpu_probes *p, uint32_t tgid, struct cpu_process *state)
{
        struct cpu_process_event e = {
                .ts_ns = now_ns(),
                .tgid = tgid,
                .tid = tgid,
                .what = CPU_PROCESS_EXIT,
                .launches_lost = state->launches_lost,
                .type = CPU_EVENT_PROCESS,
        };

        state->ended = 1;
        bpf_map_update_elem(bpf_map__fd(p->bpf->maps.processes), &tgid, state, BPF_EXIST);
        if (p->ops->process)
                p->ops->process(p->data, &e);
}

static bool is_alive(uint32_t tgid)
{
        return kill((pid_t)tgid, 0) == 0 || errno != ESRCH;
}

static void report_missed_exits(struct cpu_probes *p)
{
        int fd = bpf_map__fd(p->bpf->maps.processes);
        struct cpu_process state;
        uint32_t tgid, next;
        int r;

        r = bpf_map_get_next_key(fd, NULL, &next);
        while (r == 0) {
                tgid = next;
                r = bpf_map_get_next_key(fd, &tgid, &next);
                if (process_lookup(p, tgid, &state) < 0)
                        continue;
                if (state.ended == CPU_PROCESS_END_UNREPORTED || (!state.ended && !is_alive(tgid)))
                        report_exit(p, tgid, &state);
        }
}

int cpu_probes_scan(struct cpu_probes *p)
{
        report_missed_exits(p);
        release_contexts(p, is_over_any, 0);
        return p->only_listed ? 0 : libraries_scan(p->libraries, now_ns());
}

void cpu_probes_process_gone(struct cpu_probes *p, uint32_t tgid)
{
        struct cpu_process state;
        bool known = process_lookup(p, tgid, &state) == 0;

        /* After an exec the new program may have an entry already, and perhaps a ring: keep them.
         */
        if (!known || state.ended || !is_alive(tgid)) {
                bpf_map_delete_elem(bpf_map__fd(p->bpf->maps.processes), &tgid);
                if (!is_alive(tgid) || (known && state.ended))
                        cpu_probes_remove_agent_ring(p, tgid);
        }
        release_contexts(p, is_over_of, tgid);
        libraries_process_gone(p->libraries, (pid_t)tgid);
}

int cpu_probes_process_lost(const struct cpu_probes *p, uint32_t tgid, uint64_t *ret_launches)
{
        struct cpu_process state;
        int r = process_lookup(p, tgid, &state);

        if (r < 0)
                return r;
        *ret_launches = state.launches_lost;
        return 0;
}

int cpu_probes_context(const struct cpu_probes *p, uint32_t index, uint64_t *ret_handle,
                       uint32_t *ret_tgid)
{
        struct cpu_context c;

        if (index == 0 || index >= CPU_CONTEXT_MAX)
                return -ENOENT;
        if (p->contexts[index].tgid) {
                *ret_handle = p->contexts[index].handle;
                *ret_tgid = p->contexts[index].tgid;
                return 0;
        }
        /* Its event was lost, or is not out yet. */
        if (bpf_map_lookup_elem(bpf_map__fd(p->bpf->maps.contexts), &index, &c) < 0 || !c.tgid)
                return -ENOENT;
        *ret_handle = c.handle;
        *ret_tgid = c.tgid;
        return 0;
}

/* ---- the shared start/end maps ---- */

int cpu_probes_set_agent_ring(struct cpu_probes *p, uint32_t tgid, int map_fd)
{
        return inner_maps_set(p->inner_maps, bpf_map__fd(p->bpf->maps.agent_maps), tgid, map_fd);
}

void cpu_probes_remove_agent_ring(struct cpu_probes *p, uint32_t tgid)
{
        (void)inner_maps_remove(p->inner_maps, bpf_map__fd(p->bpf->maps.agent_maps), tgid);
        if (inner_maps_remove(p->inner_maps, bpf_map__fd(p->bpf->maps.launch_maps), tgid) == 0)
                __atomic_sub_fetch(&p->bpf->bss->launch_map_count, 1, __ATOMIC_RELAXED);
}

int cpu_probes_set_launch_ring(struct cpu_probes *p, uint32_t tgid, int map_fd)
{
        int fd = bpf_map__fd(p->bpf->maps.launch_maps);
        uint32_t id;
        bool known = bpf_map_lookup_elem(fd, &tgid, &id) == 0;
        int r = inner_maps_set(p->inner_maps, fd, tgid, map_fd);

        if (r == 0 && !known)
                __atomic_add_fetch(&p->bpf->bss->launch_map_count, 1, __ATOMIC_RELAXED);
        return r;
}

int cpu_probes_find_context(struct cpu_probes *p, uint32_t tgid, uint64_t handle,
                            uint32_t *ret_index, uint32_t *ret_before)
{
        struct cpu_context c;

        /* A program that has not seen the process's launch map may be counting yet. */
        inner_maps_settle(p->inner_maps, tgid);
        for (uint32_t i = 1; handle && i < CPU_CONTEXT_MAX; i++) {
                if (p->contexts[i].tgid != tgid || p->contexts[i].handle != handle)
                        continue;
                /* When its number has been given to another already, it had counted nothing. */
                if (bpf_map_lookup_elem(bpf_map__fd(p->bpf->maps.contexts), &i, &c) < 0 ||
                    c.tgid != tgid || c.handle != handle)
                        c.seq = 0;
                *ret_index = i;
                *ret_before = c.seq;
                return 0;
        }
        return -ENOENT;
}

/* ---- probes of others ---- */

int cpu_probes_shared(const struct cpu_probes *p, const char **ret_what)
{
        struct bpf_program *program;
        struct foreign_probes f = {.places = libraries_launch_places, .data = p->libraries};
        struct bpf_prog_info info;
        uint32_t size;

        bpf_object__for_each_program(program, p->bpf->obj)
        {
                size = sizeof(info);
                memset(&info, 0, sizeof(info));
                if (f.own_count < ARRAY_SIZE(f.own) &&
                    bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) == 0)
                        f.own[f.own_count++] = info.id;
        }
        return foreign_probes_find(&f, ret_what);
}

int cpu_probes_depth(const struct cpu_probes *p, uint32_t tgid, struct cpu_probes_depth *ret_depth)
{
        struct cpu_depth d = {.tgid = tgid, .max = DEPTH_RECORDS_MAX};
        LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &d, .ctx_size_in = sizeof(d));
        int r = bpf_prog_test_run_opts(bpf_program__fd(p->bpf->progs.depth_update), &opts);

        if (r < 0)
                return r;
        if (d.error)
                return -(int)d.error;
        *ret_depth = (struct cpu_probes_depth){
                .contexts = d.contexts,
                .launched = d.launched,
                .started = d.started,
                .depth = d.depth,
                .records = d.records,
                .lost = d.lost,
                .position = d.position,
                .shared = d.shared,
        };
        return 0;
}

/* ---- state ---- */

int cpu_probes_losses(const struct cpu_probes *p, uint64_t ret_losses[])
{
        return losses_read(bpf_map__fd(p->bpf->maps.cpu_losses), CPU_LOSS_COUNT, ret_losses);
}

size_t cpu_probes_library_count(const struct cpu_probes *p)
{
        return libraries_count(p->libraries);
}

const struct cpu_probes_library *cpu_probes_library(const struct cpu_probes *p, size_t i)
{
        return libraries_get(p->libraries, i);
}

bool cpu_probes_have_multi(void)
{
        return uprobe_multi_supported();
}

bool cpu_probes_sees_mappings(const struct cpu_probes *p)
{
        return p->mappings != NULL;
}

int cpu_probes_map_fd(const struct cpu_probes *p, const char *name)
{
        return bpf_object__find_map_fd_by_name(p->bpf->obj, name);
}

/* ---- life ---- */

/* In a container of its own the daemon knows processes by the container's ids. */
static void set_pid_namespace(struct cuda_bpf *bpf)
{
        const struct pid_namespace other = pid_namespace_other();

        bpf->rodata->pid_ns_device = other.device;
        bpf->rodata->pid_ns_inode = other.inode;
}

static int load_programs(struct cpu_probes *p, size_t ring_bytes, bool multi)
{
        struct bpf_program *program;
        int r;

        p->bpf = cuda_bpf__open();
        if (!p->bpf)
                return -errno;
        bpf_object__for_each_program(program, p->bpf->obj)
        {
                /* uprobes and uretprobes; tracepoints and syscall programs are of other types */
                if (bpf_program__type(program) == BPF_PROG_TYPE_KPROBE)
                        uprobe_prepare(program, multi);
        }
        r = bpf_map__set_max_entries(p->bpf->maps.events, (uint32_t)ring_bytes);
        if (r < 0)
                return r;
        p->bpf->rodata->wakeup_bytes = ring_bytes / 8;
        set_pid_namespace(p->bpf);
        return cuda_bpf__load(p->bpf);
}

static int attach_process_life(struct cpu_probes *p)
{
        p->bpf->links.process_exit = bpf_program__attach(p->bpf->progs.process_exit);
        if (!p->bpf->links.process_exit)
                return -errno;
        p->bpf->links.process_exec = bpf_program__attach(p->bpf->progs.process_exec);
        if (!p->bpf->links.process_exec)
                return -errno;
        p->bpf->links.process_fork = bpf_program__attach(p->bpf->progs.process_fork);
        return p->bpf->links.process_fork ? 0 : -errno;
}

static int make_libraries(struct cpu_probes *p, bool multi, bool operations)
{
        const struct bpf_program *launch_return = p->bpf->progs.launch_return;
        struct libraries_config config = {
                .entry =
                        {
                                [CUDA_PROGRAM_LAUNCH_KERNEL] = p->bpf->progs.launch_kernel,
                                [CUDA_PROGRAM_LAUNCH_KERNEL_EX] = p->bpf->progs.launch_kernel_ex,
                                [CUDA_PROGRAM_LAUNCH_GRAPH] = p->bpf->progs.launch_graph,
                                [CUDA_PROGRAM_CALL] = p->bpf->progs.call_entry,
                        },
                .at_return =
                        {
                                [CUDA_PROGRAM_LAUNCH_KERNEL] = launch_return,
                                [CUDA_PROGRAM_LAUNCH_KERNEL_EX] = launch_return,
                                [CUDA_PROGRAM_LAUNCH_GRAPH] = launch_return,
                                [CUDA_PROGRAM_CALL] = p->bpf->progs.call_return,
                        },
                .multi = multi,
                .operations = operations,
                .ops = p->ops,
                .data = p->data,
        };

        p->libraries = libraries_new(&config);
        return p->libraries ? 0 : -ENOMEM;
}

static void attach_at_start(struct cpu_probes *p, const struct cpu_probes_options *options)
{
        const char *const *path;

        for (path = options->libraries; path && *path; path++)
                libraries_attach_path(p->libraries, *path);
        if (options->only_listed)
                return;
        /* First the tracepoint, then the scan: what is mapped meanwhile is seen twice, not missed.
         */
        if (tracepoint_attach(p->bpf->progs.library_mapped, "syscalls", "sys_enter_mmap",
                              &p->mappings) < 0)
                p->mappings = NULL;
        libraries_attach_known(p->libraries);
        libraries_scan(p->libraries, 0);
}

DEFINE_CLEANUP(struct cpu_probes *, cpu_probes_free)

int cpu_probes_new(const struct cpu_probes_options *options, const struct cpu_probes_ops *ops,
                   void *data, struct cpu_probes **ret_probes)
{
        _cleanup_(cpu_probes_freep) struct cpu_probes *p = calloc(1, sizeof(*p));
        size_t ring_bytes =
                options->ring_bytes ? options->ring_bytes : CPU_PROBES_RING_BYTES_DEFAULT;
        bool multi = options->how != CPU_PROBES_PERF_EVENTS && uprobe_multi_supported();
        int r;

        if (options->how == CPU_PROBES_MULTI && !multi)
                return -ENOTSUP;
        if (!p)
                return -ENOMEM;
        p->ops = ops;
        p->data = data;
        p->only_listed = options->only_listed;
        r = inner_maps_new(&p->inner_maps);
        if (r < 0)
                return r;
        r = load_programs(p, ring_bytes, multi);
        if (r < 0)
                return r;
        p->ring = ring_buffer__new(bpf_map__fd(p->bpf->maps.events), take_event, p, NULL);
        if (!p->ring)
                return -errno;
        r = fill_free_contexts(p);
        if (r < 0)
                return r;
        r = attach_process_life(p);
        if (r < 0)
                return r;
        r = make_libraries(p, multi, !options->no_operations);
        if (r < 0)
                return r;
        attach_at_start(p, options);
        *ret_probes = TAKE_PTR(p);
        return 0;
}

struct cpu_probes *cpu_probes_free(struct cpu_probes *p)
{
        if (!p)
                return NULL;
        libraries_free(p->libraries);
        bpf_link__destroy(p->mappings);
        ring_buffer__free(p->ring);
        inner_maps_free(p->inner_maps);
        cuda_bpf__destroy(p->bpf);
        free(p);
        return NULL;
}
