/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The API, said once. Everything else comes from these lists: the C structs and
 * calls of the installed header (gen_header.c), the tables the encoder, the
 * decoder and the JSON output walk (schema_tables.c), the daemon's typed
 * handlers (daemon/api/handlers.h), the client's calls (calls.c), the answer of
 * `describe`, and docs/api.md (gen_docs.c).
 *
 * A field is F(IN, KIND, PRESENCE, NAME, OF, UNIT, DOC), IN being its struct:
 *   KIND      u64, u32, i64   integers; flag: true or false; text: UTF-8
 *             bytes           any bytes, with their number beside
 *             dim3            three u32: x, y, z
 *             choice          one of enum OF, a text on the wire
 *             object, list    struct OF, and any number of them
 *   PRESENCE  must: always there; may: absent when not known or not given.
 *             Absent means absent on the wire, never zero.
 *
 * To add a field: add a `may` line here; old clients ignore it, old daemons do
 * not send it. A `must` line, or another value of an enum, changes API_VERSION.
 */
#define GPUOBS_API_VERSION 1

/* ---- limits of the wire ---- */
#define GPUOBS_FRAME_MAX  (1u << 20) /* bytes of a frame after its length */
#define GPUOBS_DEPTH_MAX  16         /* nested maps and arrays */
#define GPUOBS_MEMBER_MAX 64         /* members of one map */
#define GPUOBS_ROWS_MAX   10000      /* rows of one answer */
#define GPUOBS_GLOB_MAX   256        /* bytes of a kernel glob */

/* clang-format off */

/* ---- enums: E(NAME, DOC), values V(NAME, DOC) from 0 ---- */
#define GPUOBS_ENUMS(E)                                                                            \
        E(match, "How a launch was joined with its device records.")                               \
        E(end, "Where the end time of a launch comes from.")                                       \
        E(agent, "The GPU agent in a process.")                                                    \
        E(how, "How a kernel is probed.")                                                          \
        E(clock, "How the daemon reads a GPU's clock.")                                            \
        E(uvm_kind, "What happened to managed memory.")                                            \
        E(uvm_access, "How memory was accessed.")                                                  \
        E(uvm_cause, "Why memory was migrated, or mapped where it is not.")                        \
        E(uvm_watch, "Whether the events of a process's managed memory are read.")                 \
        E(uvm_point, "Where in the managed-memory driver.")                                        \
        E(uvm_form, "A kind of probe inside the managed-memory driver.")                           \
        E(uvm_reason, "Why the managed-memory driver did it.")                                     \
        E(uvm_chunk, "What is in a piece of GPU memory.")                                          \
        E(check_state, "How well something works.")                                                \
        E(policy_state, "What becomes of a policy.")                                               \
        E(probe_event, "Where a device program runs.")                                              \
        E(probe_scope, "Who runs a device program.")                                                \
        E(attached, "Device programs in a process.")                                                \
        E(map_kind, "A kind of map of device programs.")                                            \
        E(map_place, "Where a map lives.")                                                          \
        E(map_spread, "How often the elements of a map are there.")                                 \
        E(allocation_kind, "How memory was allocated.")                                             \
        E(privilege, "Who may call a method.")

#define GPUOBS_VALUES_match(V)                                                                     \
        V(none, "no device record, or none that could be this launch's")                           \
        V(inferred, "by order alone, after a loss or without an identity to check")                \
        V(ordered, "grid id and kernel agree, but concurrent launches could be swapped")           \
        V(exact, "grid id and kernel agree and nothing else fits")

#define GPUOBS_VALUES_end(V)                                                                       \
        V(none, "the end is not known")                                                            \
        V(inferred, "from later work or a synchronise: an upper bound")                            \
        V(measured, "written by the GPU when the last block ended")

#define GPUOBS_VALUES_agent(V)                                                                     \
        V(none, "the process has no agent: launches are seen from the CPU only")                   \
        V(active, "the agent is connected")                                                        \
        V(refused, "an agent asked and was refused")                                               \
        V(gone, "the agent's connection has ended")

#define GPUOBS_VALUES_how(V)                                                                       \
        V(none, "not probed")                                                                      \
        V(sass, "machine code was spliced")                                                        \
        V(ptx, "PTX was rewritten")

#define GPUOBS_VALUES_clock(V)                                                                     \
        V(none, "not read: no GPU times")                                                          \
        V(ptimer, "PTIMER register through the driver, no CUDA context")                           \
        V(agent, "timestamp kernels of the agents")

#define GPUOBS_VALUES_uvm_kind(V)                                                                  \
        V(none, "not an event")                                                                    \
        V(cpu_fault, "the CPU touched memory that was not there")                                  \
        V(migration, "memory was moved")                                                           \
        V(gpu_fault, "a GPU touched memory that was not there")                                    \
        V(replay, "the GPU was told to try again what had faulted")                                \
        V(fault_buffer_overflow, "the GPU had more faults than it could note")                     \
        V(fatal_fault, "an access that nothing can be done about")                                 \
        V(read_duplicate, "memory got copies at several processors")                               \
        V(read_duplicate_end, "... and lost all but one, by a write")                              \
        V(page_size, "a page size changed")                                                        \
        V(thrashing, "processors fight for memory")                                                \
        V(throttle_begin, "a processor is held up because of that")                                \
        V(throttle_end, "... and goes on")                                                         \
        V(map_remote, "memory was mapped where it is, not moved")                                  \
        V(eviction, "memory had to make room")

#define GPUOBS_VALUES_uvm_access(V)                                                                \
        V(unknown, "not known")                                                                    \
        V(read, "a read")                                                                          \
        V(write, "a write")                                                                        \
        V(atomic, "an atomic")                                                                     \
        V(prefetch, "a prefetch instruction")

#define GPUOBS_VALUES_uvm_cause(V)                                                                 \
        V(unknown, "not known")                                                                    \
        V(user, "it was asked for: prefetch, or from outside the process")                         \
        V(coherence, "an access needed it")                                                        \
        V(prefetch, "the driver guessed that an access would need it")                             \
        V(eviction, "to make room, or because it had been evicted")                                \
        V(access_counters, "the GPU accessed it often from afar")                                  \
        V(thrashing, "it was pinned because processors fought for it")                             \
        V(policy, "its preferred location or accessed-by says so")                                 \
        V(out_of_memory, "there was no room for it")

#define GPUOBS_VALUES_uvm_watch(V)                                                                 \
        V(off, "only allocations are known")                                                       \
        V(on, "events are read")                                                                   \
        V(refused, "events cannot be read; reason says why")                                       \
        V(ended, "the process has ended")

#define GPUOBS_VALUES_uvm_point(V)                                                                 \
        V(batch, "a batch of GPU faults was dealt with")                                           \
        V(prefetch, "it was decided what to bring along with what faulted")                        \
        V(pick, "a piece of GPU memory was chosen to be emptied")                                  \
        V(evict, "a block was moved out of GPU memory")                                            \
        V(move, "pages of a block were made resident somewhere")

#define GPUOBS_VALUES_uvm_form(V)                                                                  \
        V(kprobe, "kprobe and kretprobe")                                                          \
        V(fentry, "fentry and fexit: cheaper, but the module cannot be unloaded meanwhile")

#define GPUOBS_VALUES_uvm_reason(V)                                                                \
        V(unknown, "not known")                                                                    \
        V(fault, "a GPU or the CPU faulted")                                                       \
        V(fatal_fault, "a fault of the kind that is not replayed")                                 \
        V(access_counter, "a GPU accessed it often from afar")                                     \
        V(prefetch, "decided by the driver: it was brought along")                                 \
        V(eviction, "it had to make room")                                                         \
        V(tools, "asked for through the tools interface")                                          \
        V(migrate, "asked for: cuMemPrefetchAsync, or a policy")                                   \
        V(range_group, "a range group was changed")                                                \
        V(hint, "advice was given: cuMemAdvise")                                                   \
        V(allocation, "the managed-memory driver wants memory")                                    \
        V(physical_allocation, "others want GPU memory: cuMemAlloc")

#define GPUOBS_VALUES_uvm_chunk(V)                                                                 \
        V(unknown, "not known")                                                                    \
        V(free, "nothing: it was free")                                                            \
        V(split, "pieces smaller than 2 MiB")                                                      \
        V(pinned, "pinned for a moment")                                                           \
        V(allocated, "pages of one block")

#define GPUOBS_VALUES_check_state(V)                                                               \
        V(ok, "it works")                                                                          \
        V(off, "it is not there or switched off, and need not be")                                 \
        V(limited, "it works less well than it could")                                             \
        V(broken, "it does not work, and much depends on it")

#define GPUOBS_VALUES_policy_state(V)                                                              \
        V(active, "it is run on events")                                                           \
        V(disabled, "it is loaded and not run; what it set has been set back")                     \
        V(ejected, "it was stopped for the reason given; what it set has been set back")

#define GPUOBS_VALUES_probe_event(V)                                                                \
        V(entry, "before the first instruction of a kernel")                                        \
        V(exit, "before a thread ends")                                                             \
        V(mem, "before an access of memory")

#define GPUOBS_VALUES_probe_scope(V)                                                                \
        V(grid, "the first thread of the first block")                                              \
        V(block, "the first thread of each block")                                                  \
        V(warp, "the lowest active lane of each warp")                                              \
        V(thread, "every thread")

#define GPUOBS_VALUES_attached(V)                                                                   \
        V(asked, "the agent has not answered yet")                                                  \
        V(active, "in the kernels that the agent loads from now on, and in those it can replace")   \
        V(refused, "the reason says why")                                                           \
        V(leaving, "the agent was asked to take them off")                                          \
        V(left, "taken off, but memory stays; the reason says why")

#define GPUOBS_VALUES_map_kind(V)                                                                   \
        V(array, "elements by number")                                                              \
        V(hash, "elements by key")                                                                  \
        V(ring, "records")

#define GPUOBS_VALUES_map_place(V)                                                                  \
        V(host, "a map of the kernel, mapped into the process")                                     \
        V(device, "memory of the GPU; of a map that is there twice, that of the replicas")

#define GPUOBS_VALUES_map_spread(V)                                                                 \
        V(shared, "once")                                                                           \
        V(per_sm, "for each multiprocessor")                                                        \
        V(per_warp, "for each warp that can run at the same time")                                  \
        V(per_thread, "for each thread that can run at the same time")

#define GPUOBS_VALUES_allocation_kind(V)                                                            \
        V(device, "memory of the GPU: cuMemAlloc")                                                  \
        V(managed, "managed memory: cuMemAllocManaged")                                             \
        V(host, "host memory that the GPU reaches: cuMemHostAlloc")                                 \
        V(pool, "of a pool, in stream order: cuMemAllocAsync")                                      \
        V(mapped, "virtual memory: cuMemMap")

#define GPUOBS_VALUES_privilege(V)                                                                 \
        V(any, "anybody, the same answer for all")                                                 \
        V(own, "anybody; root and group gpuobs see all processes, others only their own")          \
        V(admin, "root and group gpuobs only")

/* ---- structs: S(NAME, DOC), in order of use ---- */
#define GPUOBS_STRUCTS(S)                                                                          \
        S(loss, "One cause of loss and its count. Causes with count 0 are left out, but for the total of losses.get.") \
        S(losses, "The loss ledger: produced = stored + lost + what is still on its way.")         \
        S(launch, "One kernel launch. All times are CLOCK_MONOTONIC.")                             \
        S(process, "One observed process.")                                                        \
        S(spread, "The distribution of a duration.")                                               \
        S(kernel, "Statistics of one kernel.")                                                     \
        S(image, "One image of GPU code that a process loaded.")                                   \
        S(covered, "One kernel of a loaded image, and how it is probed.")                          \
        S(process_losses, "The loss ledger of one process.")                                       \
        S(gpu, "One GPU the daemon knows.")                                                        \
        S(store, "The database.")                                                                  \
        S(field_info, "One field of a struct.")                                                    \
        S(struct_info, "One struct of the API.")                                                   \
        S(value_info, "One value of an enum.")                                                     \
        S(enum_info, "One enum of the API.")                                                       \
        S(method_info, "One method.")                                                              \
        S(error_info, "One error.")                                                                \
        S(describe_params, "Nothing.")                                                             \
        S(description, "The API.")                                                                 \
        S(status_params, "Nothing.")                                                               \
        S(status, "The daemon's state.")                                                           \
        S(processes_params, "Which processes.")                                                    \
        S(processes, "A page of processes.")                                                       \
        S(launches_params, "Which launches. Without bounds: from the oldest stored.")              \
        S(launches, "A page of launches, by ascending launch_id.")                                 \
        S(subscribe_params, "Which launches. A filter not given lets everything through.")         \
        S(launch_batch, "Launches in the order they were finished.")                               \
        S(kernels_params, "Which launches to count.")                                              \
        S(kernels, "Kernels by descending total execution time.")                                  \
        S(coverage_params, "Which images and kernels.")                                            \
        S(coverage, "A page of images, each before its kernels.")                                  \
        S(losses_params, "Whose losses.")                                                          \
        S(losses_report, "A page of ledgers.")                                                     \
        S(driver_call, "One kind of call of the NVIDIA driver by one process: ioctls on its device files.") \
        S(driver_calls_params, "Whose calls.")                                                     \
        S(driver_calls, "A page of calls, by process, in the order they were first made.")         \
        S(channel_group, "A channel group (TSG) of a process: what the GPU schedules.")            \
        S(channel_groups_params, "Whose channel groups.")                                          \
        S(channel_groups, "A page of channel groups, by process, in the order they were made.")    \
        S(share, "One context on one GPU over a time: the share of the GPU that it had.")          \
        S(gpu_time, "Where the time of a GPU, or a MIG instance of it, went: active + switch + idle + unknown = span.") \
        S(shares_params, "Which time, whose. Without bounds: all that is stored of this boot.")    \
        S(shares, "Shares of the GPUs, added up from seconds.")                                    \
        S(slice, "A piece of a time slice: a context that was on a GPU. Slices are cut at full seconds and where the daemon reads the trace.") \
        S(slices_params, "Which slices. Only the latest are kept, in memory: 16384 of each GPU, with MIG of each compute instance.") \
        S(slices, "A page of slices, in the order they were found; of one GPU that is the order of time.") \
        S(slices_subscribe_params, "Which slices. A filter not given lets everything through.")    \
        S(slice_batch, "Slices, of each GPU in the order of time.")                                \
        S(gpu_state, "What NVIDIA's management library says of a GPU. What it does not say is absent.") \
        S(gpus_params, "Nothing.")                                                                 \
        S(gpu_states, "The GPUs.")                                                                 \
        S(uvm_counts, "What happened to managed memory.")                                          \
        S(uvm_allocation, "One managed allocation.")                                               \
        S(uvm_hot, "One of the most active pieces of managed memory. Lists of these are kept in bounded space: counts may be too high by `error`.")\
        S(uvm_kernel, "Faults and migrations while a kernel ran.")                                 \
        S(uvm_process, "The managed memory of one process.")                                       \
        S(uvm_params, "Which processes, how much of each.")                                        \
        S(uvm_processes, "A page of processes that have or had managed memory.")                   \
        S(uvm_event, "One event of managed memory. All times are CLOCK_MONOTONIC.")                \
        S(uvm_subscribe_params, "Which events. A filter not given lets everything through.")       \
        S(uvm_batch, "Events, of each process in the order the driver put them out.")              \
        S(uvm_watch_params, "Which process, and whether its events are to be read.")               \
        S(uvm_watched, "What became of it.")                                                       \
        S(uvm_history_params, "Which time, whose, in steps of how long. Without bounds: all that is stored of this boot.")\
        S(uvm_past, "What happened to the managed memory of one process in one step of time.")     \
        S(uvm_history, "A page of steps in which something happened, oldest first.")               \
        S(uvm_reason_count, "How often for which reason.")                                         \
        S(uvm_chunk_count, "How often with what in it.")                                           \
        S(uvm_point_info, "One place inside the managed-memory driver.")                           \
        S(uvm_driver_gpu, "Faults of one GPU as the driver dealt with them.")                      \
        S(uvm_driver_process, "Decisions about the managed memory of one process.")                \
        S(uvm_driver_params, "Whose decisions.")                                                   \
        S(uvm_driver, "What the probes inside the managed-memory driver saw since the daemon started.")\
        S(uvm_decision, "One event of the probes inside the managed-memory driver. What it does not say is absent.")\
        S(uvm_decisions_params, "Which events. Only the latest 4096 are kept, in memory.")         \
        S(uvm_decisions, "A page of events, in the order the calls returned.")                     \
        S(policy_refusal, "Why actions of a policy were not done. Reasons with count 0 are left out.") \
        S(policy, "One loaded policy. asked = done + refused + waiting.")                          \
        S(policy_variable, "One global variable of a policy.")                                     \
        S(policy_setting, "A variable and its value.")                                             \
        S(policies_params, "Nothing.")                                                             \
        S(policies, "The loaded policies.")                                                        \
        S(policy_load_params, "An eBPF object, and how it is to be run.")                          \
        S(policy_name_params, "Which policy.")                                                     \
        S(policy_change_params, "Which policy, and what is to be different.")                      \
        S(policy_loaded, "The policy.")                                                            \
        S(policy_changed, "The policy.")                                                           \
        S(policy_details, "A policy with its variables.")                                          \
        S(policy_unloaded, "Nothing.")                                                             \
        S(probe_program, "A program that runs on the GPU, in the kernels of processes that have an agent.") \
        S(probe_map, "A map of such programs.")                                                     \
        S(probe_attachment, "Programs of an object in one process.")                                \
        S(probe, "An object of device programs that was loaded, or the daemon's own.")              \
        S(probes_params, "Nothing.")                                                                \
        S(probes, "The objects.")                                                                   \
        S(probe_load_params, "An eBPF object, and the processes it is to be attached to, if any. kernels: see probes.attach.") \
        S(probe_loaded, "The object.")                                                              \
        S(probe_show_params, "Which object.")                                                       \
        S(probe_details, "The object.")                                                             \
        S(probe_attach_params, "Which object, to which processes, now and when they start: one of pid, process, all.") \
        S(probe_attached, "The object.")                                                            \
        S(probe_detach_params, "Which object, from which process.")                                 \
        S(probe_detached, "The object.")                                                            \
        S(probe_unload_params, "Which object.")                                                     \
        S(probe_unloaded, "Nothing.")                                                               \
        S(probe_log_params, "Whose messages, and which.")                                          \
        S(probe_message, "One message that a device program printed.")                              \
        S(probe_log, "Messages, by number.")                                                        \
        S(map_dump_params, "Which map.")                                                            \
        S(map_element, "One element of a map.")                                                     \
        S(map_dump, "Elements of a map, as they were when the agent read it.")                      \
        S(map_update_params, "Which element of which map, and its new value.")                      \
        S(map_updated, "Nothing.")                                                                  \
        S(map_delete_params, "Which element of which map.")                                         \
        S(map_deleted, "Nothing.")                                                                  \
        S(allocations_params, "Whose memory.")                                                      \
        S(allocation, "Memory that a process allocated and its GPUs can reach.")                    \
        S(allocations, "Live allocations of a process, by address.")                                \
        S(cancel_params, "Which stream.")                                                          \
        S(cancelled, "What became of it.")                                                         \
        S(check, "One thing that works, or does not.")                                             \
        S(doctor_params, "Nothing.")                                                               \
        S(doctor, "What works on this machine, as the daemon has found it.")                       \
        S(setting, "One setting of gpuobsd.conf.")                                                 \
        S(settings_params, "Nothing.")                                                             \
        S(settings, "All settings.")                                                               \
        S(set_params, "Which setting, and its new value.")                                         \
        S(set_result, "The setting as it is now.")                                                 \
        S(flush_params, "Nothing.")                                                                \
        S(flushed, "What is in the database now.")                                                 \
        S(prune_params, "What to delete.")                                                         \
        S(pruned, "What was deleted.")

#define GPUOBS_FIELDS_loss(F, IN)                                                                  \
        F(IN, text, must, cause, none, "", "stable name")                                          \
        F(IN, u64, must, count, none, "", "how many, since the process was first seen")            \
        F(IN, flag, must, launches, none, "", "true: launches, part of `lost`; false: something else") \
        F(IN, text, may, text, none, "", "what it means")

#define GPUOBS_FIELDS_losses(F, IN)                                                                \
        F(IN, u64, must, produced, none, "launches", "seen, or known to have been missed")         \
        F(IN, u64, must, stored, none, "launches", "committed to the database")                    \
        F(IN, u64, must, lost, none, "launches", "lost on the way")                                \
        F(IN, list, must, causes, loss, "", "where")

#define GPUOBS_FIELDS_launch(F, IN)                                                                \
        F(IN, u64, must, launch_id, none, "", "unique in the database, increasing")                \
        F(IN, u32, must, pid, none, "", "process, in the daemon's pid namespace")                  \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process; with pid it is unique") \
        F(IN, text, must, comm, none, "", "the process's short name")                              \
        F(IN, u32, must, tid, none, "", "thread that called")                                      \
        F(IN, text, may, cgroup, none, "", "control group (v2) path")                              \
        F(IN, u32, may, gpu, none, "", "minor number of its device file; the process's own ordinal where it has no agent, or the daemon knows no GPU") \
        F(IN, u64, may, context, none, "handle", "CUcontext")                                      \
        F(IN, u64, must, stream, none, "handle", "CUstream as passed: 0 default, 1 legacy, 2 per-thread") \
        F(IN, u64, may, graph_exec, none, "handle", "CUgraphExec, for a graph's node")             \
        F(IN, text, may, kernel, none, "", "kernel name as the module has it (mangled)")           \
        F(IN, dim3, may, grid, none, "blocks", "grid size")                                        \
        F(IN, dim3, may, block, none, "threads", "block size")                                     \
        F(IN, u32, may, shared_bytes, none, "bytes", "dynamic shared memory")                      \
        F(IN, u64, must, cpu_enter_ns, none, "ns", "the call was entered")                         \
        F(IN, u64, must, cpu_return_ns, none, "ns", "the call returned")                           \
        F(IN, u64, may, gpu_start_ns, none, "ns", "the first block began; may be before cpu_return_ns") \
        F(IN, u64, may, gpu_end_ns, none, "ns", "the last block ended; see `end`")                 \
        F(IN, u64, may, queue_others_ns, none, "ns", "of gpu_start_ns - cpu_return_ns, the time that other processes had the GPU; the rest is the process's own queue, and switching. Of launches.query only; absent where context switches are not traced, or did not tell") \
        F(IN, u32, may, smid, none, "", "multiprocessor of the first block")                       \
        F(IN, u64, may, gridid, none, "", "grid id on the device")                                 \
        F(IN, u32, must, result, none, "CUresult", "of the call; 0 is success")                    \
        F(IN, choice, must, match, match, "", "how the device records were found")                 \
        F(IN, choice, must, end, end, "", "where gpu_end_ns comes from")                           \
        F(IN, u32, may, clock_error_ns, none, "ns", "bound of the error of the GPU times against CLOCK_MONOTONIC")

#define GPUOBS_FIELDS_process(F, IN)                                                               \
        F(IN, u32, must, pid, none, "", "in the daemon's pid namespace")                           \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, u32, must, uid, none, "", "owner")                                                   \
        F(IN, text, must, comm, none, "", "short name")                                            \
        F(IN, text, may, exe, none, "", "program file")                                            \
        F(IN, text, may, cgroup, none, "", "control group (v2) path")                              \
        F(IN, u64, must, first_seen_ns, none, "ns, CLOCK_REALTIME", "when the daemon met it")      \
        F(IN, flag, must, alive, none, "", "false: it has ended")                                  \
        F(IN, choice, must, agent, agent, "", "the GPU agent in it")                               \
        F(IN, text, may, agent_reason, none, "", "why the agent was refused or ended")             \
        F(IN, u32, must, contexts, none, "", "CUDA contexts it has")                               \
        F(IN, u64, may, depth, none, "launches", "queue depth: launched and not yet started on the GPU") \
        F(IN, u64, must, pending, none, "launches", "waiting for their device records")            \
        F(IN, u32, must, images, none, "", "GPU images the agent saw")                             \
        F(IN, u32, must, kernels, none, "", "kernels in them")                                     \
        F(IN, u32, must, kernels_start, none, "", "of these, kernels whose start is probed")       \
        F(IN, u32, must, kernels_end, none, "", "of these, kernels whose end is probed")           \
        F(IN, u32, may, limit_waiting, none, "launches", "policies let so many wait at most")      \
        F(IN, u32, may, limit_rate, none, "launches a second", "policies let it launch so many")   \
        F(IN, u32, may, limit_priority, none, "", "priority policies give its new streams, 1 the greatest") \
        F(IN, flag, may, limits_heeded, none, "", "the agent says that a launch or a new stream went by the limits of now; absent: there are none") \
        F(IN, u64, may, held, none, "launches", "held back by these limits, ever")                 \
        F(IN, u64, may, held_ns, none, "ns", "they waited for that, in all")                       \
        F(IN, u64, may, held_late, none, "launches", "of these, those that waited as long as any may") \
        F(IN, u64, may, streams_changed, none, "", "streams made with another priority than asked for") \
        F(IN, object, must, losses, losses, "", "its ledger")

#define GPUOBS_FIELDS_spread(F, IN)                                                                \
        F(IN, u64, must, count, none, "launches", "launches for which the duration is known")      \
        F(IN, u64, must, total_ns, none, "ns", "sum")                                              \
        F(IN, u64, must, min_ns, none, "ns", "shortest")                                           \
        F(IN, u64, must, avg_ns, none, "ns", "mean")                                               \
        F(IN, u64, must, p50_ns, none, "ns", "median")                                             \
        F(IN, u64, must, p95_ns, none, "ns", "95th percentile")                                    \
        F(IN, u64, must, p99_ns, none, "ns", "99th percentile")                                    \
        F(IN, u64, must, max_ns, none, "ns", "longest")

#define GPUOBS_FIELDS_kernel(F, IN)                                                                \
        F(IN, text, may, kernel, none, "", "name; absent: launches whose kernel is not known")     \
        F(IN, u64, must, launches, none, "", "how many")                                           \
        F(IN, u64, may, summed, none, "launches", "of these, counted from sums per minute because their rows are deleted; the percentiles are within 1/16 then") \
        F(IN, object, may, queue, spread, "", "gpu_start_ns - cpu_return_ns, below zero counted as 0") \
        F(IN, object, may, execution, spread, "", "gpu_end_ns - gpu_start_ns")

#define GPUOBS_FIELDS_image(F, IN)                                                                 \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, text, must, comm, none, "", "its short name")                                        \
        F(IN, u32, must, image_id, none, "", "from 1, per process")                                \
        F(IN, flag, must, rewritten, none, "", "false: loaded as it came, see reason")             \
        F(IN, flag, must, ptx, none, "", "PTX was rewritten rather than machine code")             \
        F(IN, u64, must, handle, none, "handle", "CUmodule or CUlibrary")                          \
        F(IN, u64, must, bytes, none, "bytes", "size of the image the device uses")                \
        F(IN, u32, must, kernels, none, "", "kernels in it")                                       \
        F(IN, u32, must, rewrite_us, none, "us", "time spent on it")                               \
        F(IN, text, may, reason, none, "", "why it was left alone")

#define GPUOBS_FIELDS_covered(F, IN)                                                               \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, u32, must, image_id, none, "", "its image")                                          \
        F(IN, u32, must, kernel_id, none, "", "from 1, per process")                               \
        F(IN, text, must, kernel, none, "", "name")                                                \
        F(IN, choice, must, start, how, "", "how its start is probed")                             \
        F(IN, choice, must, end, how, "", "how its end is probed")                                 \
        F(IN, u32, may, accesses_probed, none, "", "instructions with device programs for accesses of memory") \
        F(IN, u32, may, accesses, none, "", "instructions that access memory; absent where no program asked for them") \
        F(IN, text, may, reason, none, "", "what is missing, and why")

#define GPUOBS_FIELDS_process_losses(F, IN)                                                        \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, text, must, comm, none, "", "its short name")                                        \
        F(IN, object, must, losses, losses, "", "its ledger")

#define GPUOBS_FIELDS_gpu(F, IN)                                                                   \
        F(IN, u32, must, gpu, none, "", "minor number of its device file")                         \
        F(IN, text, may, uuid, none, "", "GPU-xxxxxxxx-...")                                       \
        F(IN, choice, must, clock, clock, "", "how its clock is read")                             \
        F(IN, i64, may, drift_ppb, none, "parts per billion", "rate of its clock against CLOCK_MONOTONIC_RAW") \
        F(IN, u32, may, clock_error_ns, none, "ns", "bound of the clock model's error now")

#define GPUOBS_FIELDS_store(F, IN)                                                                 \
        F(IN, text, must, path, none, "", "database file")                                         \
        F(IN, u64, must, bytes, none, "bytes", "file and write-ahead log")                         \
        F(IN, u64, must, launches, none, "rows", "stored launches (an estimate)")                  \
        F(IN, u64, must, queued, none, "rows", "records waiting for the writer")                   \
        F(IN, flag, must, failing, none, "", "the last write failed")                              \
        F(IN, text, may, error, none, "", "why, and what to do")

#define GPUOBS_FIELDS_field_info(F, IN)                                                            \
        F(IN, text, must, name, none, "", "key on the wire")                                       \
        F(IN, text, must, kind, none, "", "u64, u32, i64, flag, text, bytes, dim3, choice, object or list") \
        F(IN, text, may, of, none, "", "the enum or struct it is made of")                         \
        F(IN, flag, must, optional, none, "", "may be absent")                                     \
        F(IN, text, may, unit, none, "", "unit")                                                   \
        F(IN, text, must, doc, none, "", "meaning")

#define GPUOBS_FIELDS_struct_info(F, IN)                                                           \
        F(IN, text, must, name, none, "", "name")                                                  \
        F(IN, text, must, doc, none, "", "meaning")                                                \
        F(IN, list, must, fields, field_info, "", "members")

#define GPUOBS_FIELDS_value_info(F, IN)                                                            \
        F(IN, text, must, name, none, "", "text on the wire")                                      \
        F(IN, text, must, doc, none, "", "meaning")

#define GPUOBS_FIELDS_enum_info(F, IN)                                                             \
        F(IN, text, must, name, none, "", "name")                                                  \
        F(IN, text, must, doc, none, "", "meaning")                                                \
        F(IN, list, must, values, value_info, "", "values")

#define GPUOBS_FIELDS_method_info(F, IN)                                                           \
        F(IN, text, must, name, none, "", "name on the wire")                                      \
        F(IN, text, must, params, none, "", "struct of its parameters")                            \
        F(IN, text, must, result, none, "", "struct of its result")                                \
        F(IN, choice, must, privilege, privilege, "", "who may call it")                           \
        F(IN, flag, must, stream, none, "", "true: many results, the last without `more`")         \
        F(IN, text, must, doc, none, "", "what it does")

#define GPUOBS_FIELDS_error_info(F, IN)                                                            \
        F(IN, text, must, code, none, "", "stable name")                                           \
        F(IN, u32, must, number, none, "", "stable number")                                        \
        F(IN, text, must, doc, none, "", "meaning")

#define GPUOBS_FIELDS_describe_params(F, IN)

#define GPUOBS_FIELDS_description(F, IN)                                                           \
        F(IN, u32, must, api_version, none, "", "version of the API")                              \
        F(IN, text, must, daemon_version, none, "", "version of gpuobsd")                          \
        F(IN, list, must, methods, method_info, "", "methods")                                     \
        F(IN, list, must, structs, struct_info, "", "structs")                                     \
        F(IN, list, must, enums, enum_info, "", "enums")                                           \
        F(IN, list, must, errors, error_info, "", "errors")

#define GPUOBS_FIELDS_status_params(F, IN)

#define GPUOBS_FIELDS_status(F, IN)                                                                \
        F(IN, text, must, version, none, "", "version of gpuobsd")                                 \
        F(IN, u32, must, pid, none, "", "the daemon's")                                            \
        F(IN, u64, must, uptime_ns, none, "ns", "since the daemon started")                        \
        F(IN, u64, must, now_ns, none, "ns", "CLOCK_MONOTONIC at the daemon")                      \
        F(IN, u64, must, rss_bytes, none, "bytes", "memory the daemon has resident")               \
        F(IN, u32, must, libraries, none, "", "CUDA driver libraries probed")                      \
        F(IN, u32, must, processes, none, "", "live processes observed")                           \
        F(IN, u32, must, agents, none, "", "GPU agents connected")                                 \
        F(IN, u32, must, connections, none, "", "API connections, this one included")              \
        F(IN, u32, must, subscriptions, none, "", "launch streams being served")                   \
        F(IN, list, must, gpus, gpu, "", "GPUs")                                                   \
        F(IN, object, must, store, store, "", "database")                                          \
        F(IN, flag, must, all_processes, none, "", "true: you see every process; false: only your own") \
        F(IN, list, must, problems, value_info, "", "what does not work, and what to do about it") \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_processes_params(F, IN)                                                      \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before")                        \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_processes(F, IN)                                                             \
        F(IN, list, must, processes, process, "", "in the order the daemon met them")              \
        F(IN, u64, may, next_cursor, none, "", "there is more: ask again with this cursor")        \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_launches_params(F, IN)                                                       \
        F(IN, u64, may, since_ns, none, "ns", "cpu_enter_ns at or after this")                     \
        F(IN, u64, may, until_ns, none, "ns", "cpu_enter_ns before this")                          \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, text, may, kernel, none, "", "glob on the kernel name: * ? [a-z], at most 256 bytes") \
        F(IN, u32, may, gpu, none, "", "only this GPU")                                            \
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before: launch_id after this")  \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")    \
        F(IN, flag, may, newest, none, "", "the last `limit` launches instead of the first")

#define GPUOBS_FIELDS_launches(F, IN)                                                              \
        F(IN, list, must, launches, launch, "", "by ascending launch_id")                          \
        F(IN, u64, may, next_cursor, none, "", "there may be more: ask again with this cursor, without newest") \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_subscribe_params(F, IN)                                                      \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, text, may, kernel, none, "", "glob on the kernel name: * ? [a-z], at most 256 bytes") \
        F(IN, u32, may, gpu, none, "", "only this GPU")

#define GPUOBS_FIELDS_launch_batch(F, IN)                                                          \
        F(IN, list, must, launches, launch, "", "in the order they were finished")                 \
        F(IN, u64, must, dropped, none, "launches", "not sent since the batch before: you read too slowly") \
        F(IN, object, may, losses, losses, "", "ledger of the processes you see; at most once a second")

#define GPUOBS_FIELDS_kernels_params(F, IN)                                                        \
        F(IN, u64, may, since_ns, none, "ns", "cpu_enter_ns at or after this")                     \
        F(IN, u64, may, until_ns, none, "ns", "cpu_enter_ns before this")                          \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, text, may, kernel, none, "", "glob on the kernel name: * ? [a-z], at most 256 bytes") \
        F(IN, u32, may, gpu, none, "", "only this GPU")                                            \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000")

#define GPUOBS_FIELDS_kernels(F, IN)                                                               \
        F(IN, list, must, kernels, kernel, "", "by descending total execution time")               \
        F(IN, flag, must, truncated, none, "", "there are more kernels than fit")                  \
        F(IN, u64, may, rows_from_ns, none, "ns", "launches before this were counted from sums per minute, by whole minutes: rows of theirs are deleted") \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_coverage_params(F, IN)                                                       \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, flag, may, kernels, none, "", "false: images only; default true")                    \
        F(IN, text, may, cursor, none, "", "next_cursor of the page before")                       \
        F(IN, u32, may, limit, none, "rows", "images and kernels, 1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_coverage(F, IN)                                                              \
        F(IN, list, must, images, image, "", "by process, then image_id")                          \
        F(IN, list, must, kernels, covered, "", "by process, image_id, kernel_id")                 \
        F(IN, text, may, next_cursor, none, "", "there is more: ask again with this cursor")       \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_losses_params(F, IN)                                                         \
        F(IN, u32, may, pid, none, "", "only this process in the list; the total stays")           \
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before")                        \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_losses_report(F, IN)                                                         \
        F(IN, list, must, processes, process_losses, "", "per process, in the order the daemon met them") \
        F(IN, u64, may, next_cursor, none, "", "there is more: ask again with this cursor")        \
        F(IN, object, must, losses, losses, "", "total of the processes you see, and of those forgotten; causes with their meaning")

#define GPUOBS_FIELDS_driver_call(F, IN)                                                           \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, text, must, comm, none, "", "its short name")                                        \
        F(IN, text, must, device, none, "", "rm, uvm, uvm-tools; other: kinds beyond the 511 that are kept apart") \
        F(IN, u32, must, request, none, "", "number of the ioctl")                                 \
        F(IN, text, may, request_name, none, "", "its name, when it is a known one")               \
        F(IN, u32, may, what, none, "", "class of an allocation, command of a control")            \
        F(IN, text, may, what_name, none, "", "its name, when it is a known one")                  \
        F(IN, u64, must, count, none, "calls", "how many")                                         \
        F(IN, u64, must, errors, none, "calls", "of these, failed: the system call or the driver's status") \
        F(IN, u64, must, total_ns, none, "ns", "time spent in them")                               \
        F(IN, u64, must, max_ns, none, "ns", "longest")                                            \
        F(IN, u32, may, last_status, none, "NV_STATUS", "of the last error, when the driver reported it") \
        F(IN, u32, may, last_errno, none, "errno", "of the last error, when the system call failed")

#define GPUOBS_FIELDS_driver_calls_params(F, IN)                                                   \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, text, may, cursor, none, "", "next_cursor of the page before")                       \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_driver_calls(F, IN)                                                          \
        F(IN, list, must, calls, driver_call, "", "kinds of calls")                                \
        F(IN, text, may, next_cursor, none, "", "there is more: ask again with this cursor")       \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_channel_group(F, IN)                                                         \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, text, must, comm, none, "", "its short name")                                        \
        F(IN, u32, must, fd, none, "", "descriptor of nvidiactl in the process, as last used")     \
        F(IN, u32, must, client, none, "handle", "its client of the resource manager")             \
        F(IN, u32, must, object, none, "handle", "the group")                                      \
        F(IN, u32, may, gpu, none, "", "minor number of the GPU's device file")                    \
        F(IN, u32, may, engine, none, "NV2080_ENGINE_TYPE", "1: graphics and compute; 9 and up: copies") \
        F(IN, u32, must, channels, none, "", "channels in it")                                     \
        F(IN, u64, may, time_slice_us, none, "us", "its time slice, as the driver says now")       \
        F(IN, u64, may, created_ns, none, "ns", "when it was made; absent: before the daemon")

#define GPUOBS_FIELDS_channel_groups_params(F, IN)                                                 \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, text, may, cursor, none, "", "next_cursor of the page before")                       \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_channel_groups(F, IN)                                                        \
        F(IN, list, must, groups, channel_group, "", "of live processes")                          \
        F(IN, text, may, next_cursor, none, "", "there is more: ask again with this cursor")       \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_share(F, IN)                                                                 \
        F(IN, u32, must, gpu, none, "", "minor number of its device file")                         \
        F(IN, u32, may, mig_gpu, none, "", "MIG GPU instance")                                     \
        F(IN, u32, may, mig_compute, none, "", "MIG compute instance")                             \
        F(IN, u32, may, pid, none, "", "process; absent: not known")                               \
        F(IN, u64, may, start_ticks, none, "clock ticks since boot", "start of the process")       \
        F(IN, text, may, comm, none, "", "its short name")                                         \
        F(IN, u32, may, group, none, "handle", "its channel group, the `object` of driver.groups") \
        F(IN, u32, may, context_id, none, "", "where the group is not known: the driver's number of the channel") \
        F(IN, u64, must, active_ns, none, "ns", "time it was on the GPU, also with nothing to run") \
        F(IN, u64, must, slices, none, "", "how often it came on")                                 \
        F(IN, u64, must, longest_ns, none, "ns", "longest slice that ended in this time; 0: none did")

#define GPUOBS_FIELDS_gpu_time(F, IN)                                                              \
        F(IN, u32, must, gpu, none, "", "minor number of its device file")                         \
        F(IN, u32, may, mig_gpu, none, "", "MIG GPU instance")                                     \
        F(IN, u32, may, mig_compute, none, "", "MIG compute instance")                             \
        F(IN, u64, must, since_ns, none, "ns", "first second")                                     \
        F(IN, u64, must, until_ns, none, "ns", "end of the last second")                           \
        F(IN, u64, must, span_ns, none, "ns", "time observed between them")                        \
        F(IN, u64, must, active_ns, none, "ns", "some context was on it")                          \
        F(IN, u64, must, switch_ns, none, "ns", "between two contexts, gaps of 1 ms at most")      \
        F(IN, u64, must, switches, none, "", "such gaps")                                          \
        F(IN, u64, must, idle_ns, none, "ns", "nobody was on it for longer")                       \
        F(IN, u64, must, unknown_ns, none, "ns", "before the first switch, and after losses")      \
        F(IN, u64, must, lost, none, "records", "switches that the driver dropped")

#define GPUOBS_FIELDS_shares_params(F, IN)                                                         \
        F(IN, u64, may, since_ns, none, "ns", "seconds that begin at or after this")               \
        F(IN, u64, may, until_ns, none, "ns", "seconds that begin before this")                    \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, u32, may, gpu, none, "", "only this GPU")                                            \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000")

#define GPUOBS_FIELDS_shares(F, IN)                                                                \
        F(IN, list, must, shares, share, "", "per GPU, by descending active time")                 \
        F(IN, list, must, gpus, gpu_time, "", "the GPUs themselves")                               \
        F(IN, flag, must, truncated, none, "", "there may be more rows than fit")                  \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_slice(F, IN)                                                                 \
        F(IN, u64, must, sequence, none, "", "increasing, for the life of the daemon")             \
        F(IN, u32, must, gpu, none, "", "minor number of its device file")                         \
        F(IN, u32, may, mig_gpu, none, "", "MIG GPU instance")                                     \
        F(IN, u32, may, mig_compute, none, "", "MIG compute instance")                             \
        F(IN, u32, may, pid, none, "", "process; absent: not known")                               \
        F(IN, u64, may, start_ticks, none, "clock ticks since boot", "start of the process")       \
        F(IN, text, may, comm, none, "", "its short name")                                         \
        F(IN, u32, may, context_id, none, "", "the driver's number of its channel")                \
        F(IN, u64, must, start_ns, none, "ns", "the piece began")                                  \
        F(IN, u64, must, end_ns, none, "ns", "the piece ended")                                    \
        F(IN, u64, must, since_ns, none, "ns", "the whole slice began")                            \
        F(IN, flag, must, begins, none, "", "the slice begins with this piece")                    \
        F(IN, flag, must, ends, none, "", "the slice ends with this piece")                        \
        F(IN, flag, must, unknown, none, "", "nobody knows who had the GPU")

#define GPUOBS_FIELDS_slices_params(F, IN)                                                         \
        F(IN, u64, may, since_ns, none, "ns", "that end after this")                               \
        F(IN, u64, may, until_ns, none, "ns", "that start before this")                            \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, u32, may, gpu, none, "", "only this GPU")                                            \
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before: sequence after this")   \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_slices(F, IN)                                                                \
        F(IN, list, must, slices, slice, "", "by ascending sequence")                              \
        F(IN, u64, may, next_cursor, none, "", "there is more: ask again with this cursor")        \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_slices_subscribe_params(F, IN)                                               \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, u32, may, gpu, none, "", "only this GPU")

#define GPUOBS_FIELDS_slice_batch(F, IN)                                                           \
        F(IN, list, must, slices, slice, "", "since the batch before")                             \
        F(IN, u64, must, dropped, none, "slices", "not sent since the batch before: you read too slowly") \
        F(IN, object, may, losses, losses, "", "ledger of the processes you see; at most once a second")

#define GPUOBS_FIELDS_gpu_state(F, IN)                                                             \
        F(IN, u32, may, gpu, none, "", "minor number of its device file")                          \
        F(IN, text, may, uuid, none, "", "GPU-xxxxxxxx-...")                                       \
        F(IN, text, may, name, none, "", "product")                                                \
        F(IN, u32, may, utilization, none, "percent", "of the last sample period, time in which a kernel ran") \
        F(IN, u32, may, memory_utilization, none, "percent", "of it, time in which memory was read or written") \
        F(IN, u64, may, memory_total, none, "bytes", "memory it has")                              \
        F(IN, u64, may, memory_used, none, "bytes", "of it in use")                                \
        F(IN, u32, may, sm_clock, none, "MHz", "clock of the multiprocessors")                     \
        F(IN, u32, may, memory_clock, none, "MHz", "clock of the memory")                          \
        F(IN, u32, may, power_mw, none, "mW", "power drawn")                                       \
        F(IN, u32, may, power_limit_mw, none, "mW", "power it may draw")                           \
        F(IN, u32, may, temperature, none, "degrees Celsius", "of the GPU")                        \
        F(IN, u64, may, ecc_corrected, none, "errors", "memory errors corrected since the driver was loaded") \
        F(IN, u64, may, ecc_uncorrected, none, "errors", "memory errors not corrected since the driver was loaded") \
        F(IN, u64, may, throttle_mask, none, "bits", "nvmlClocksEventReasons: why clocks are below their highest") \
        F(IN, text, may, throttle, none, "", "the same in words; absent: nothing, or not known")   \
        F(IN, u64, must, xids, none, "", "error events (Xid) since the daemon started")            \
        F(IN, u32, may, last_xid, none, "", "number of the last one")                              \
        F(IN, u64, may, last_xid_ns, none, "ns", "when it came")

#define GPUOBS_FIELDS_gpus_params(F, IN)

#define GPUOBS_FIELDS_gpu_states(F, IN)                                                            \
        F(IN, list, must, gpus, gpu_state, "", "in the library's order")                           \
        F(IN, text, may, reason, none, "", "why there are none, or little is told of them")
#define GPUOBS_FIELDS_uvm_counts(F, IN)                                                            \
        F(IN, u64, must, gpu_faults, none, "faults", "of GPUs")                                    \
        F(IN, u64, must, cpu_faults, none, "faults", "of the CPU")                                 \
        F(IN, u64, must, bytes_to_gpu, none, "bytes", "migrated from the CPU to a GPU")            \
        F(IN, u64, must, bytes_to_cpu, none, "bytes", "migrated from a GPU to the CPU")            \
        F(IN, u64, must, bytes_between_gpus, none, "bytes", "migrated from GPU to GPU")            \
        F(IN, u64, must, bytes_evicted, none, "bytes", "of these, to make room")                   \
        F(IN, u64, must, evictions, none, "", "times memory had to make room")                     \
        F(IN, u64, must, thrashing, none, "", "times the driver found processors fighting for memory") \
        F(IN, u64, must, throttled, none, "", "times a processor was held up because of that")     \
        F(IN, u64, must, read_duplications, none, "", "times memory got copies")                   \
        F(IN, u64, must, remote_maps, none, "", "times memory was mapped where it is, not moved")  \
        F(IN, u64, must, fatal_faults, none, "faults", "that nothing could be done about")

#define GPUOBS_FIELDS_uvm_allocation(F, IN)                                                        \
        F(IN, u64, must, address, none, "", "where it begins")                                     \
        F(IN, u64, must, bytes, none, "bytes", "size")                                             \
        F(IN, u64, may, since_ns, none, "ns", "when it was made; absent: before the daemon saw the process, and then it may be several") \
        F(IN, flag, must, advised, none, "", "the application gave advice on it: policies leave it alone") \
        F(IN, object, must, total, uvm_counts, "", "since it was made, or the process is watched") \
        F(IN, object, must, rate, uvm_counts, "", "in the last full second")                       \
        F(IN, list, must, pages, uvm_hot, "", "its hottest 64 KiB pages, at most 16")

#define GPUOBS_FIELDS_uvm_hot(F, IN)                                                               \
        F(IN, u64, must, address, none, "", "where it begins")                                     \
        F(IN, u64, must, bytes, none, "bytes", "size: 2 MiB or 64 KiB")                            \
        F(IN, u64, must, events, none, "", "faults and migrations")                                \
        F(IN, u64, must, error, none, "", "events may be too high by this much")                   \
        F(IN, u64, must, faults, none, "faults", "counted since it is in the list")                \
        F(IN, u64, must, bytes_to_gpu, none, "bytes", "migrated since it is in the list")          \
        F(IN, u64, must, bytes_to_cpu, none, "bytes", "migrated since it is in the list")

#define GPUOBS_FIELDS_uvm_kernel(F, IN)                                                            \
        F(IN, text, may, kernel, none, "", "name; absent when not known")                          \
        F(IN, u64, must, gpu_faults, none, "faults", "while it ran, and no other kernel did")      \
        F(IN, u64, must, bytes_to_gpu, none, "bytes", "migrated for it")                           \
        F(IN, u64, must, bytes_evicted, none, "bytes", "that had to make room for it")

#define GPUOBS_FIELDS_uvm_process(F, IN)                                                           \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, text, must, comm, none, "", "its short name")                                        \
        F(IN, choice, must, watch, uvm_watch, "", "whether its events are read")                   \
        F(IN, text, may, reason, none, "", "why not")                                              \
        F(IN, u64, may, since_ns, none, "ns", "since when they are")                               \
        F(IN, u64, must, produced, none, "events", "by the driver: read + dropped")                \
        F(IN, u64, must, read, none, "events", "read")                                             \
        F(IN, u64, must, dropped, none, "events", "dropped by the driver, as the queue was full: counts lack them") \
        F(IN, u64, must, garbage, none, "events", "of those read, not understood")                 \
        F(IN, u64, must, allocated_bytes, none, "bytes", "of managed allocations")                 \
        F(IN, u64, must, allocation_count, none, "", "managed allocations")                        \
        F(IN, u64, must, unlisted, none, "", "further ones, which are not followed: too many")     \
        F(IN, object, must, total, uvm_counts, "", "since it is watched")                          \
        F(IN, object, must, rate, uvm_counts, "", "in the last full second")                       \
        F(IN, object, must, freed, uvm_counts, "", "of the total, of allocations that are gone")   \
        F(IN, object, must, outside, uvm_counts, "", "of the total, of memory in no known allocation") \
        F(IN, list, must, allocations, uvm_allocation, "", "the most active ones first")           \
        F(IN, list, must, blocks, uvm_hot, "", "the hottest 2 MiB blocks")                         \
        F(IN, list, must, pages, uvm_hot, "", "the hottest 64 KiB pages of all allocations")       \
        F(IN, list, must, kernels, uvm_kernel, "", "kernels with most faults first")               \
        F(IN, object, must, shared, uvm_kernel, "", "while several kernels ran, or one beyond the 256 that are told apart") \
        F(IN, object, must, idle, uvm_kernel, "", "while none ran whose times are known")

#define GPUOBS_FIELDS_uvm_params(F, IN)                                                            \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, u32, may, top, none, "rows", "of each list of a process, 0 to 256, default 16")      \
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before")                        \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_uvm_processes(F, IN)                                                         \
        F(IN, list, must, processes, uvm_process, "", "in the order the daemon met them")          \
        F(IN, u64, may, next_cursor, none, "", "there is more: ask again with this cursor")        \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_uvm_event(F, IN)                                                             \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, choice, must, kind, uvm_kind, "", "what happened")                                   \
        F(IN, u64, may, at_ns, none, "ns", "when: on the GPU where its clock says so, else when the driver dealt with it") \
        F(IN, u64, may, end_ns, none, "ns", "when the driver was done with it, of migrations")     \
        F(IN, u32, may, clock_error_ns, none, "ns", "bound of the error of these times")           \
        F(IN, u64, may, address, none, "", "where")                                                \
        F(IN, u64, may, bytes, none, "bytes", "how much")                                          \
        F(IN, u64, may, allocation, none, "", "where the managed allocation begins that the address lies in; absent: in none that is known")\
        F(IN, choice, may, access, uvm_access, "", "of faults")                                    \
        F(IN, choice, may, cause, uvm_cause, "", "of migrations and mappings")                     \
        F(IN, text, may, source, none, "", "cpu or gpuN: which faulted, had the memory, is throttled or maps it") \
        F(IN, text, may, target, none, "", "cpu or gpuN: which gets the memory or has it")         \
        F(IN, u32, may, client, none, "", "of GPU faults: the unit, numbered per architecture")    \
        F(IN, u32, may, gpc, none, "", "of GPU faults: the graphics cluster")                      \
        F(IN, u32, may, batch, none, "", "of GPU faults and replays: serviced together")           \
        F(IN, u32, may, tid, none, "", "of CPU faults: the thread")                                \
        F(IN, u64, may, needed_by, none, "", "of evictions: the address that needed the room")     \
        F(IN, u64, may, processors, none, "mask", "of thrashing and duplication: the CPU is bit 0")

#define GPUOBS_FIELDS_uvm_subscribe_params(F, IN)                                                  \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, choice, may, kind, uvm_kind, "", "only this kind")                                   \
        F(IN, u64, may, address, none, "", "only events from this address on")                     \
        F(IN, u64, may, bytes, none, "bytes", "... for so many bytes")

#define GPUOBS_FIELDS_uvm_batch(F, IN)                                                             \
        F(IN, list, must, events, uvm_event, "", "as they came")                                   \
        F(IN, u64, must, dropped, none, "events", "not sent since the batch before: you read too slowly") \
        F(IN, object, may, losses, losses, "", "ledger of the processes you see; at most once a second")

#define GPUOBS_FIELDS_uvm_watch_params(F, IN)                                                      \
        F(IN, u32, must, pid, none, "", "process, live and known to the daemon")                   \
        F(IN, flag, must, on, none, "", "true: read its events, whatever the setting managed_memory; false: do not")

#define GPUOBS_FIELDS_uvm_watched(F, IN)                                                           \
        F(IN, choice, must, watch, uvm_watch, "", "how it is now")                                 \
        F(IN, text, may, reason, none, "", "why not")
#define GPUOBS_FIELDS_uvm_history_params(F, IN)                                                    \
        F(IN, u64, may, since_ns, none, "ns", "seconds that end at or after this")                 \
        F(IN, u64, may, until_ns, none, "ns", "seconds that end before this")                      \
        F(IN, u32, may, pid, none, "", "only this process")                                        \
        F(IN, u32, may, step_s, none, "s", "1 to 86400, default 60; steps begin at full multiples of it")\
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before")                        \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_uvm_past(F, IN)                                                              \
        F(IN, u32, must, pid, none, "", "process")                                                 \
        F(IN, u64, must, start_ticks, none, "clock ticks since boot", "start of the process")      \
        F(IN, text, must, comm, none, "", "its short name")                                        \
        F(IN, u64, must, start_ns, none, "ns", "when the step began")                              \
        F(IN, u32, must, seconds, none, "", "seconds of the step in which something happened")     \
        F(IN, u64, must, events, none, "", "that were read")                                       \
        F(IN, u64, must, dropped, none, "events", "by the driver: what the counts lack")           \
        F(IN, object, must, counts, uvm_counts, "", "what happened")

#define GPUOBS_FIELDS_uvm_history(F, IN)                                                           \
        F(IN, list, must, steps, uvm_past, "", "by time, then process")                            \
        F(IN, u64, may, next_cursor, none, "", "there is more: ask again with this cursor")        \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_uvm_reason_count(F, IN)                                                      \
        F(IN, choice, must, reason, uvm_reason, "", "why")                                         \
        F(IN, u64, must, count, none, "", "how often")                                             \
        F(IN, u64, must, failed, none, "", "of these, how often the driver gave up")               \
        F(IN, u64, must, total_ns, none, "ns", "time in the driver")                               \
        F(IN, u64, must, max_ns, none, "ns", "the longest of them")

#define GPUOBS_FIELDS_uvm_chunk_count(F, IN)                                                       \
        F(IN, choice, must, chunk, uvm_chunk, "", "what was in it")                                \
        F(IN, u64, must, count, none, "", "how often")

#define GPUOBS_FIELDS_uvm_point_info(F, IN)                                                        \
        F(IN, choice, must, point, uvm_point, "", "which")                                         \
        F(IN, flag, must, probed, none, "", "true: calls are seen")                                \
        F(IN, choice, may, form, uvm_form, "", "by which kind of probe")                           \
        F(IN, text, may, function, none, "", "the symbol that stands there in this build of the driver")\
        F(IN, flag, must, arguments, none, "", "true: BTF tells its arguments; false: counts and times alone")\
        F(IN, text, may, reason, none, "", "why it is not probed, or not by fentry as asked for")  \
        F(IN, u64, must, count, none, "calls", "seen")                                             \
        F(IN, u64, must, failed, none, "calls", "of these, that returned an error")                \
        F(IN, u64, must, total_ns, none, "ns", "time in them")                                     \
        F(IN, u64, must, max_ns, none, "ns", "the longest")

#define GPUOBS_FIELDS_uvm_driver_gpu(F, IN)                                                        \
        F(IN, text, must, uuid, none, "", "GPU-xxxxxxxx-...")                                      \
        F(IN, u64, must, batches, none, "", "batches of faults")                                   \
        F(IN, u64, must, faults, none, "", "in them")                                              \
        F(IN, u64, must, distinct, none, "faults", "of these, of different pages")                 \
        F(IN, u64, must, duplicates, none, "faults", "of these, of pages that another one was of") \
        F(IN, u64, must, largest, none, "faults", "in one batch")                                  \
        F(IN, u64, must, total_ns, none, "ns", "spent on batches")                                 \
        F(IN, u64, must, max_ns, none, "ns", "on one batch")                                       \
        F(IN, u64, must, evicted, none, "blocks", "moved out of its memory")

#define GPUOBS_FIELDS_uvm_driver_process(F, IN)                                                    \
        F(IN, u32, may, pid, none, "", "process; absent: those that are not known, or no longer listed, in one")\
        F(IN, u64, may, start_ticks, none, "clock ticks since boot", "start of the process")       \
        F(IN, text, may, comm, none, "", "its short name")                                         \
        F(IN, u64, must, decisions, none, "", "about what to bring along with what faulted")       \
        F(IN, u64, must, chosen, none, "decisions", "of these, that brought something along")      \
        F(IN, u64, must, pages, none, "4 KiB", "brought along")                                    \
        F(IN, u64, must, evicted, none, "blocks", "moved out of GPU memory")                       \
        F(IN, list, must, moves, uvm_reason_count, "", "pages made resident somewhere, by why. Reasons with count 0 are left out")

#define GPUOBS_FIELDS_uvm_driver_params(F, IN)                                                     \
        F(IN, u32, may, pid, none, "", "only this process")

#define GPUOBS_FIELDS_uvm_driver(F, IN)                                                            \
        F(IN, flag, must, probed, none, "", "true: there are probes inside the driver")            \
        F(IN, text, may, reason, none, "", "why there are none")                                   \
        F(IN, text, may, struct_ops, none, "", "types of struct_ops that the driver offers: it could run policies itself")\
        F(IN, u64, must, lost, none, "events", "not recorded")                                     \
        F(IN, list, must, points, uvm_point_info, "", "where")                                     \
        F(IN, list, must, picks, uvm_reason_count, "", "GPU memory chosen to be emptied, by why. Times are with the points")\
        F(IN, list, must, chunks, uvm_chunk_count, "", "... and by what was in it")                \
        F(IN, list, must, gpus, uvm_driver_gpu, "", "by GPU")                                      \
        F(IN, list, must, processes, uvm_driver_process, "", "by process")

#define GPUOBS_FIELDS_uvm_decision(F, IN)                                                          \
        F(IN, u64, must, sequence, none, "", "increasing")                                         \
        F(IN, choice, must, point, uvm_point, "", "what happened")                                 \
        F(IN, u64, must, at_ns, none, "ns", "the call began")                                      \
        F(IN, u64, must, duration_ns, none, "ns", "it took; 4.29 s at most")                       \
        F(IN, u32, may, pid, none, "", "whose memory")                                             \
        F(IN, u64, may, start_ticks, none, "clock ticks since boot", "start of the process")       \
        F(IN, text, may, comm, none, "", "its short name")                                         \
        F(IN, text, may, uuid, none, "", "of the GPU")                                             \
        F(IN, u64, may, address, none, "", "of the block, or of the part that it is about")        \
        F(IN, u64, may, bytes, none, "bytes", "size of that")                                      \
        F(IN, u32, may, processor, none, "", "where memory goes: 0 the CPU, else the driver's number of a GPU")\
        F(IN, choice, may, reason, uvm_reason, "", "why")                                          \
        F(IN, u32, may, pages, none, "4 KiB", "brought along; 0: it was decided to bring nothing") \
        F(IN, u64, may, pages_address, none, "", "of the first of them")                           \
        F(IN, u64, may, pages_bytes, none, "bytes", "from the first to the last; pages between may be left out")\
        F(IN, u32, may, faults, none, "", "in the batch")                                          \
        F(IN, u32, may, distinct, none, "faults", "of these, of different pages")                  \
        F(IN, u32, may, duplicates, none, "faults", "of these, of pages that another one was of")  \
        F(IN, u32, may, batch, none, "", "number of the batch, on its GPU")                        \
        F(IN, u64, may, physical, none, "", "address of a piece of GPU memory, on the GPU")        \
        F(IN, choice, may, chunk, uvm_chunk, "", "what was in it")                                 \
        F(IN, u32, may, status, none, "", "NV_STATUS, of a call that returned an error")

#define GPUOBS_FIELDS_uvm_decisions_params(F, IN)                                                  \
        F(IN, u32, may, pid, none, "", "only this process; batches and picks, which are nobody's, are left out then")\
        F(IN, u64, may, cursor, none, "", "next_cursor of the page before: sequence after this")   \
        F(IN, u32, may, limit, none, "rows", "1 to 10000, default 1000; a page may hold fewer")

#define GPUOBS_FIELDS_uvm_decisions(F, IN)                                                         \
        F(IN, list, must, decisions, uvm_decision, "", "by ascending sequence")                    \
        F(IN, u64, must, next_cursor, none, "", "to go on with, now or when there are more")       \
        F(IN, flag, must, more, none, "", "there are more now")                                    \
        F(IN, object, must, losses, losses, "", "ledger of the processes you see")

#define GPUOBS_FIELDS_check(F, IN)                                                                 \
        F(IN, text, must, name, none, "", "short and stable")                                      \
        F(IN, choice, must, state, check_state, "", "how well it works")                           \
        F(IN, text, must, finding, none, "", "what was found")                                     \
        F(IN, text, may, advice, none, "", "what to do about it")

#define GPUOBS_FIELDS_doctor_params(F, IN)

#define GPUOBS_FIELDS_doctor(F, IN)                                                                \
        F(IN, list, must, checks, check, "", "in order of the layers")

#define GPUOBS_FIELDS_policy_refusal(F, IN)                                                        \
        F(IN, text, must, reason, none, "", "stable name")                                         \
        F(IN, u64, must, count, none, "actions", "how many")                                       \
        F(IN, text, must, text, none, "", "what it means")

#define GPUOBS_FIELDS_policy(F, IN)                                                                \
        F(IN, text, must, name, none, "", "given at loading")                                      \
        F(IN, choice, must, state, policy_state, "", "whether it is run")                          \
        F(IN, text, may, reason, none, "", "why it was ejected")                                   \
        F(IN, i64, must, precedence, none, "", "of two that want opposite things, the higher has its way") \
        F(IN, u32, may, gpu, none, "", "only this GPU")                                            \
        F(IN, text, may, cgroup, none, "", "only processes whose control group matches: a glob")   \
        F(IN, text, may, process, none, "", "only processes whose short name matches: a glob")     \
        F(IN, flag, must, may_discard, none, "", "it may have contents of memory thrown away")     \
        F(IN, u64, must, loaded_ns, none, "ns, CLOCK_MONOTONIC", "when it was loaded")             \
        F(IN, u64, must, events, none, "", "events it was to be told of")                          \
        F(IN, u64, must, skipped, none, "events", "not told: over its budget of runs")             \
        F(IN, u64, must, runs, none, "", "runs of its programs")                                   \
        F(IN, u64, must, run_ns, none, "ns", "time of them")                                       \
        F(IN, u64, must, longest_ns, none, "ns", "the longest")                                    \
        F(IN, u64, must, asked, none, "actions", "it asked for")                                   \
        F(IN, u64, must, done, none, "actions", "carried out")                                     \
        F(IN, u64, must, refused, none, "actions", "not carried out; see refusals")                \
        F(IN, u64, must, waiting, none, "actions", "being carried out")                            \
        F(IN, u64, must, overrode, none, "actions", "done against a policy of lower precedence")   \
        F(IN, u64, must, bytes, none, "bytes", "memory moved: the driver took the orders")         \
        F(IN, u64, must, bytes_seen, none, "bytes", "of these, seen moving by request; memory that was there already does not move, and of processes that are not watched nothing is seen") \
        F(IN, u64, must, settings, none, "", "in force: set back when it goes")                    \
        F(IN, u64, must, undone, none, "", "settings that were set back, or that was tried")       \
        F(IN, u64, must, not_undone, none, "", "of these, those that could not be: the next daemon tries again") \
        F(IN, u64, must, renewed, none, "", "set again: time slices, as the process had made a channel group or set its own; advice, as what took its place failed") \
        F(IN, u64, must, unrenewed, none, "", "that were to be set again and could not be")          \
        F(IN, u64, must, missed, none, "channel groups", "that failed, or were more than 256 of a process, in actions that reached others of the process, which count as done") \
        F(IN, u64, must, untold, none, "actions", "refused, and too many at once for the policy to be told of them") \
        F(IN, u64, must, max_runs, none, "", "budget for a second: runs")                          \
        F(IN, u64, must, max_run_ns, none, "ns", "of run time; beyond, it is ejected")             \
        F(IN, u64, must, max_actions, none, "", "of actions")                                      \
        F(IN, u64, must, max_bytes, none, "bytes", "of memory moved")                              \
        F(IN, list, must, refusals, policy_refusal, "", "by reason")

#define GPUOBS_FIELDS_policy_variable(F, IN)                                                       \
        F(IN, text, must, name, none, "", "as in the source")                                      \
        F(IN, text, must, type, none, "", "u8 to u64, i8 to i64, text; [n] an array")              \
        F(IN, text, must, value, none, "", "now; elements of an array with commas, at most 16")    \
        F(IN, flag, must, parameter, none, "", "true: meant to be set; false: state of the policy") \
        F(IN, i64, may, low, none, "", "least value of a parameter")                               \
        F(IN, i64, may, high, none, "", "greatest value of a parameter")                           \
        F(IN, text, may, doc, none, "", "meaning of a parameter")

#define GPUOBS_FIELDS_policy_setting(F, IN)                                                        \
        F(IN, text, must, variable, none, "", "name, or name[index]")                              \
        F(IN, text, must, value, none, "", "number or text")

#define GPUOBS_FIELDS_policies_params(F, IN)

#define GPUOBS_FIELDS_policies(F, IN)                                                              \
        F(IN, list, must, policies, policy, "", "by descending precedence")

#define GPUOBS_FIELDS_policy_load_params(F, IN)                                                    \
        F(IN, text, must, name, none, "", "1 to 31 letters, digits, . _ -")                        \
        F(IN, bytes, must, object, none, "", "the ELF file")                                       \
        F(IN, i64, may, precedence, none, "", "default 0")                                         \
        F(IN, u32, may, gpu, none, "", "only this GPU")                                            \
        F(IN, text, may, cgroup, none, "", "only processes whose control group matches: a glob")   \
        F(IN, text, may, process, none, "", "only processes whose short name matches: a glob")     \
        F(IN, flag, may, may_discard, none, "", "let it have contents of memory thrown away")      \
        F(IN, u64, may, max_runs, none, "", "budget for a second: runs")                           \
        F(IN, u64, may, max_run_ns, none, "ns", "of run time; beyond, it is ejected")              \
        F(IN, u64, may, max_actions, none, "", "of actions")                                       \
        F(IN, u64, may, max_bytes, none, "bytes", "of memory moved")                               \
        F(IN, list, must, set, policy_setting, "", "variables, before it is run")

#define GPUOBS_FIELDS_policy_name_params(F, IN)                                                    \
        F(IN, text, must, name, none, "", "of the policy")

#define GPUOBS_FIELDS_policy_change_params(F, IN)                                                  \
        F(IN, text, must, name, none, "", "of the policy")                                         \
        F(IN, list, must, set, policy_setting, "", "variables; those before one that cannot be set are") \
        F(IN, flag, may, run, none, "", "true: run it (again); false: stop and undo what it set")

#define GPUOBS_FIELDS_policy_loaded(F, IN)                                                         \
        F(IN, object, must, policy, policy, "", "as it is now")

#define GPUOBS_FIELDS_policy_changed(F, IN)                                                        \
        F(IN, object, must, policy, policy, "", "as it is now")

#define GPUOBS_FIELDS_policy_details(F, IN)                                                        \
        F(IN, object, must, policy, policy, "", "the policy")                                      \
        F(IN, list, must, variables, policy_variable, "", "parameters first")

#define GPUOBS_FIELDS_policy_unloaded(F, IN)

#define GPUOBS_FIELDS_probe_program(F, IN)                                                          \
        F(IN, text, must, name, none, "", "of the function")                                        \
        F(IN, choice, must, event, probe_event, "", "where it runs")                                \
        F(IN, choice, must, scope, probe_scope, "", "who runs it")                                  \
        F(IN, u64, must, instructions, none, "", "of PTX that an event costs at most")              \
        F(IN, u64, must, memory, none, "", "loads and stores that it costs at most")                \
        F(IN, u64, must, atomics, none, "", "atomic operations that it costs at most")              \
        F(IN, text, may, ptx, none, "", "what it was compiled to, with the lines of its source")

#define GPUOBS_FIELDS_probe_map(F, IN)                                                              \
        F(IN, text, must, name, none, "", "name")                                                   \
        F(IN, choice, must, kind, map_kind, "", "kind")                                             \
        F(IN, choice, must, place, map_place, "", "where it lives")                                 \
        F(IN, choice, must, spread, map_spread, "", "how often its elements are there")             \
        F(IN, u32, must, key_bytes, none, "bytes", "of a key")                                      \
        F(IN, u32, must, value_bytes, none, "bytes", "of a value")                                  \
        F(IN, u32, must, entries, none, "", "at most")                                              \
        F(IN, u64, must, bytes, none, "bytes", "of memory in each process")

#define GPUOBS_FIELDS_probe_attachment(F, IN)                                                       \
        F(IN, u32, must, pid, none, "", "of the process")                                           \
        F(IN, u64, must, start_ticks, none, "", "its start, as in /proc")                           \
        F(IN, text, must, comm, none, "", "its short name")                                         \
        F(IN, choice, must, state, attached, "", "what became of it")                               \
        F(IN, flag, must, code, none, "", "they are for machine code as well; false: for PTX only") \
        F(IN, u64, must, gpu_bytes, none, "bytes", "of GPU memory that their maps take")            \
        F(IN, text, may, reason, none, "", "why it is refused, kept, or not for machine code")

#define GPUOBS_FIELDS_probe(F, IN)                                                                  \
        F(IN, text, must, name, none, "", "name")                                                   \
        F(IN, flag, must, builtin, none, "", "the daemon's own: it tells when kernels start and end, and stays") \
        F(IN, u64, must, loaded_ns, none, "ns", "CLOCK_MONOTONIC when it was loaded")               \
        F(IN, flag, must, all, none, "", "meant for all processes")                                 \
        F(IN, text, may, process, none, "", "meant for those whose short name matches: a glob")     \
        F(IN, text, may, kernels, none, "", "only in kernels whose name matches: a glob")           \
        F(IN, list, must, programs, probe_program, "", "its programs")                              \
        F(IN, list, must, maps, probe_map, "", "its maps")                                          \
        F(IN, list, must, attached, probe_attachment, "", "the processes it is in, or was to be in")

#define GPUOBS_FIELDS_probes_params(F, IN)

#define GPUOBS_FIELDS_probes(F, IN)                                                                 \
        F(IN, list, must, probes, probe, "", "the daemon's own first, then as they were loaded")

#define GPUOBS_FIELDS_probe_load_params(F, IN)                                                      \
        F(IN, text, must, name, none, "", "1 to 63 letters, digits, . _ -")                         \
        F(IN, bytes, must, object, none, "", "the ELF file")                                        \
        F(IN, u32, may, pid, none, "", "this process only; it needs an agent")                      \
        F(IN, text, may, process, none, "", "all whose short name matches: a glob")                 \
        F(IN, flag, may, all, none, "", "true: all that have an agent")                             \
        F(IN, text, may, kernels, none, "", "only kernels whose name (mangled) matches: a glob; for all processes that are attached from now on")

#define GPUOBS_FIELDS_probe_loaded(F, IN)                                                           \
        F(IN, object, must, probe, probe, "", "as it is now")

#define GPUOBS_FIELDS_probe_show_params(F, IN)                                                      \
        F(IN, text, must, name, none, "", "of the object")                                          \
        F(IN, flag, may, ptx, none, "", "what its programs were compiled to, too")

#define GPUOBS_FIELDS_probe_details(F, IN)                                                          \
        F(IN, object, must, probe, probe, "", "as it is now")

#define GPUOBS_FIELDS_probe_attach_params(F, IN)                                                    \
        F(IN, text, must, name, none, "", "of the object")                                          \
        F(IN, u32, may, pid, none, "", "this process only; it needs an agent")                      \
        F(IN, text, may, process, none, "", "all whose short name matches: a glob")                 \
        F(IN, flag, may, all, none, "", "true: all that have an agent")                             \
        F(IN, text, may, kernels, none, "", "only kernels whose name (mangled) matches: a glob; for all processes that are attached from now on")

#define GPUOBS_FIELDS_probe_attached(F, IN)                                                         \
        F(IN, object, must, probe, probe, "", "as it is now: agents answer a little later")

#define GPUOBS_FIELDS_probe_detach_params(F, IN)                                                    \
        F(IN, text, must, name, none, "", "of the object")                                          \
        F(IN, u32, may, pid, none, "", "from this process only; not given: from all, and from those that start later")

#define GPUOBS_FIELDS_probe_detached(F, IN)                                                         \
        F(IN, object, must, probe, probe, "", "as it is now: agents answer a little later")

#define GPUOBS_FIELDS_probe_unload_params(F, IN)                                                    \
        F(IN, text, must, name, none, "", "of the object")

#define GPUOBS_FIELDS_probe_unloaded(F, IN)

#define GPUOBS_FIELDS_probe_log_params(F, IN)                                                       \
        F(IN, text, must, name, none, "", "of the object")                                          \
        F(IN, u32, may, pid, none, "", "of the process; not needed where it is attached to only one") \
        F(IN, u64, may, from, none, "", "number of the first message; an answer says where to go on") \
        F(IN, u32, may, limit, none, "", "messages, default and at most 10000")

#define GPUOBS_FIELDS_probe_message(F, IN)                                                          \
        F(IN, u64, must, number, none, "", "from 0, per process and object; those lost have one, too") \
        F(IN, u64, must, gpu_ns, none, "ns", "the GPU's clock")                                     \
        F(IN, u64, must, gridid, none, "", "launch number on the GPU")                              \
        F(IN, u32, must, kernel_id, none, "", "as in coverage.list")                                \
        F(IN, text, must, text, none, "", "made from the format in the object and the numbers printed") \
        F(IN, u64, may, time_ns, none, "ns", "the same in CLOCK_MONOTONIC; not there while it is not known by which GPU's clock, or that has not been read") \
        F(IN, u32, may, time_error_ns, none, "ns", "how far time_ns may be off; 4294967295: 4 s or more") \
        F(IN, text, may, kernel, none, "", "its name")

#define GPUOBS_FIELDS_probe_log(F, IN)                                                              \
        F(IN, u32, must, pid, none, "", "of the process")                                           \
        F(IN, list, must, messages, probe_message, "", "the messages")                              \
        F(IN, u64, must, lost, none, "", "of those asked for: overwritten before they were read, or broken") \
        F(IN, u64, must, suppressed, none, "", "since the programs are there: not kept, too many at a time") \
        F(IN, u64, must, next, none, "", "number to go on with")

#define GPUOBS_FIELDS_map_dump_params(F, IN)                                                        \
        F(IN, text, must, probe, none, "", "name of the object")                                    \
        F(IN, text, must, map, none, "", "name of the map")                                         \
        F(IN, u32, may, pid, none, "", "of the process; not needed where they are attached to only one") \
        F(IN, flag, may, merge, none, "", "default true: what is there more than once is added up, in words of 8 bytes (of 4 where a value is not so many); false: each copy for itself") \
        F(IN, flag, may, nonzero, none, "", "true: leave out elements that are all 0")              \
        F(IN, u64, may, from, none, "", "go on where an answer said next")                          \
        F(IN, u32, may, limit, none, "", "elements, default and at most 10000")                      \
        F(IN, u64, may, snapshot, none, "", "go on in the reading that an answer gave this number; not given: the map is read again")

#define GPUOBS_FIELDS_map_element(F, IN)                                                            \
        F(IN, bytes, must, key, none, "", "the key; of an array its number, 4 bytes; of a record of a ring its number, 8 bytes")               \
        F(IN, u32, may, copy, none, "", "number of the multiprocessor, warp or thread, when copies are not added up") \
        F(IN, bytes, must, value, none, "", "the value")

#define GPUOBS_FIELDS_map_dump(F, IN)                                                               \
        F(IN, object, must, map, probe_map, "", "the map")                                          \
        F(IN, u32, must, pid, none, "", "of the process")                                           \
        F(IN, flag, must, settled, none, "", "two readings in a row were the same: what it held at one moment. false: kernels were writing to it, and words of 8 bytes are each from some moment of the reading") \
        F(IN, u64, must, before_ns, none, "ns", "CLOCK_MONOTONIC before the reading")               \
        F(IN, u64, must, after_ns, none, "ns", "and after it")                                      \
        F(IN, u64, may, lost, none, "", "of a hash: updates that found no room; of a ring: records overwritten or broken, of those asked for")                    \
        F(IN, list, must, elements, map_element, "", "the elements")                                \
        F(IN, u64, may, next, none, "", "where to go on: there are more")                           \
        F(IN, u64, may, snapshot, none, "", "with next: the number of this reading, for pages of the same moment. It is kept until its last page is read or 30 s after the last call that named it, for this connection only, which has two at most; 1 GiB are kept for all")

#define GPUOBS_FIELDS_map_update_params(F, IN)                                                      \
        F(IN, text, must, probe, none, "", "name of the object")                                    \
        F(IN, text, must, map, none, "", "name of the map")                                         \
        F(IN, u32, may, pid, none, "", "of the process; not needed where they are attached to only one") \
        F(IN, bytes, must, key, none, "", "the key")                                                \
        F(IN, bytes, must, value, none, "", "the value")

#define GPUOBS_FIELDS_map_updated(F, IN)

#define GPUOBS_FIELDS_map_delete_params(F, IN)                                                      \
        F(IN, text, must, probe, none, "", "name of the object")                                    \
        F(IN, text, must, map, none, "", "name of the map, a hash")                                 \
        F(IN, u32, may, pid, none, "", "of the process; not needed where they are attached to only one") \
        F(IN, bytes, must, key, none, "", "the key")

#define GPUOBS_FIELDS_map_deleted(F, IN)

#define GPUOBS_FIELDS_allocations_params(F, IN)                                                     \
        F(IN, u32, must, pid, none, "", "of the process")                                           \
        F(IN, u64, may, from, none, "", "the first address: an answer says where to go on")         \
        F(IN, u32, may, limit, none, "rows", "1 to 10000; a page may hold fewer")

#define GPUOBS_FIELDS_allocation(F, IN)                                                             \
        F(IN, u64, must, address, none, "", "where it begins")                                      \
        F(IN, u64, must, bytes, none, "bytes", "its size, as it was asked for")                     \
        F(IN, choice, must, kind, allocation_kind, "", "how it was allocated")                      \
        F(IN, u64, must, since_ns, none, "ns", "CLOCK_MONOTONIC of the allocation")

#define GPUOBS_FIELDS_allocations(F, IN)                                                            \
        F(IN, u32, must, pid, none, "", "of the process")                                           \
        F(IN, list, must, allocations, allocation, "", "by address")                                \
        F(IN, u64, must, unlisted, none, "", "made while as many as there may be (16384) were listed") \
        F(IN, u64, may, next, none, "", "where to go on: there are more")

#define GPUOBS_FIELDS_cancel_params(F, IN)                                                         \
        F(IN, u64, must, stream, none, "", "id of the request that began the stream")

#define GPUOBS_FIELDS_cancelled(F, IN)                                                             \
        F(IN, flag, must, cancelled, none, "", "false: there was no such stream")

#define GPUOBS_FIELDS_setting(F, IN)                                                               \
        F(IN, text, must, name, none, "", "name")                                                  \
        F(IN, text, must, value, none, "", "value as in gpuobsd.conf; libraries separated by spaces") \
        F(IN, flag, must, run_time, none, "", "settings.set can change it; false: it takes a restart") \
        F(IN, text, must, doc, none, "", "meaning")

#define GPUOBS_FIELDS_settings_params(F, IN)

#define GPUOBS_FIELDS_settings(F, IN)                                                              \
        F(IN, list, must, settings, setting, "", "each once")

#define GPUOBS_FIELDS_set_params(F, IN)                                                            \
        F(IN, text, must, name, none, "", "name")                                                  \
        F(IN, text, must, value, none, "", "value as in gpuobsd.conf")

#define GPUOBS_FIELDS_set_result(F, IN)                                                            \
        F(IN, object, must, setting, setting, "", "with its new value")

#define GPUOBS_FIELDS_flush_params(F, IN)

#define GPUOBS_FIELDS_flushed(F, IN)                                                               \
        F(IN, u64, must, launches, none, "rows", "stored launches (an estimate)")

#define GPUOBS_FIELDS_prune_params(F, IN)                                                          \
        F(IN, u64, must, older_than_s, none, "s", "launches older than this; 0: all")              \
        F(IN, flag, may, sums, none, "", "true: the sums per minute as well; default false")

#define GPUOBS_FIELDS_pruned(F, IN)                                                                \
        F(IN, u64, must, launches, none, "rows", "deleted launches")

/* ---- methods: M(C NAME, WIRE NAME, PARAMS, RESULT, PRIVILEGE, STREAM, DOC) ---- */
#define GPUOBS_METHODS(M)                                                                          \
        M(describe, "describe", describe_params, description, any, false,                          \
          "The API itself: methods, structs, enums and errors.")                                   \
        M(status, "status", status_params, status, own, false,                                     \
          "What the daemon is doing and whether anything is wrong.")                               \
        M(processes_list, "processes.list", processes_params, processes, own, false,               \
          "Observed processes with queue depth, agent, launch counts and losses.")                 \
        M(launches_query, "launches.query", launches_params, launches, own, false,                 \
          "Stored launches, oldest first, page by page.")                                          \
        M(launches_subscribe, "launches.subscribe", subscribe_params, launch_batch, own, true,     \
          "Launches as they are finished, in batches. The first batch comes at once and is empty.") \
        M(kernels_stats, "kernels.stats", kernels_params, kernels, own, false,                     \
          "Count and spread of queue delay and execution time per kernel.")                        \
        M(coverage_list, "coverage.list", coverage_params, coverage, own, false,                   \
          "Images and kernels the agents saw: how each is probed, or why not.")                    \
        M(losses_get, "losses.get", losses_params, losses_report, own, false,                      \
          "The loss ledger, in total and per process.")                                            \
        M(driver_calls_list, "driver.calls", driver_calls_params, driver_calls, own, false,        \
          "Calls of the NVIDIA driver since the daemon met the process: counts, errors, times.")   \
        M(driver_groups_list, "driver.groups", channel_groups_params, channel_groups, own, false,  \
          "Channel groups of live processes, with what it takes to act on them. Of those made before the daemon started, ones that kernels run in are found once there is a policy.") \
        M(share_query, "share.query", shares_params, shares, own, false,                           \
          "Which processes had the GPUs for how long, from the GPUs' context switches.")           \
        M(slices_list, "slices.list", slices_params, slices, own, false,                           \
          "The latest time slices of the GPUs.")                                                   \
        M(slices_subscribe, "slices.subscribe", slices_subscribe_params, slice_batch, own, true,   \
          "Time slices of the GPUs as they are found, at least four times a second. The first batch comes at once and is empty.") \
        M(gpus_list, "gpus.list", gpus_params, gpu_states, any, false,                             \
          "Load, memory, clocks, power, temperature and errors of the GPUs.")                      \
        M(uvm_list, "uvm.list", uvm_params, uvm_processes, own, false,                             \
          "Managed memory of processes: faults, migrations, thrashing; by allocation, hot piece and kernel.") \
        M(uvm_subscribe, "uvm.subscribe", uvm_subscribe_params, uvm_batch, own, true,              \
          "Events of managed memory as they come, in batches. The first batch comes at once and is empty.") \
        M(uvm_watch, "uvm.watch", uvm_watch_params, uvm_watched, admin, false,                     \
          "Read the events of a process's managed memory, or stop.")                               \
        M(uvm_history, "uvm.history", uvm_history_params, uvm_history, own, false,                 \
          "What happened to managed memory before, added up in steps of time. Kept as long as launches.")\
        M(uvm_driver_get, "uvm.driver", uvm_driver_params, uvm_driver, own, false,                 \
          "What the managed-memory driver decides, from probes inside it where the kernel allows them.")\
        M(uvm_decisions_list, "uvm.decisions", uvm_decisions_params, uvm_decisions, own, false,    \
          "The latest decisions of the managed-memory driver, one by one.")                        \
        M(doctor_get, "doctor.get", doctor_params, doctor, any, false,                             \
          "What works on this machine and what does not, as the daemon has found it.")             \
        M(policies_list, "policies.list", policies_params, policies, admin, false,                 \
          "Loaded policies with what they did.")                                                   \
        M(policies_load, "policies.load", policy_load_params, policy_loaded, admin, false,         \
          "Load a policy, an eBPF object, and run it.")                                            \
        M(policies_show, "policies.show", policy_name_params, policy_details, admin, false,        \
          "One policy with its variables.")                                                        \
        M(policies_change, "policies.change", policy_change_params, policy_changed, admin, false,  \
          "Set variables of a policy while it runs; stop it, or run it again.")                    \
        M(policies_unload, "policies.unload", policy_name_params, policy_unloaded, admin, false,   \
          "Undo what a policy set and forget it.")                                                 \
        M(probes_list, "probes.list", probes_params, probes, own, false,                            \
          "Device programs, where they are attached, their maps and what they cost.")               \
        M(probes_load, "probes.load", probe_load_params, probe_loaded, admin, false,                \
          "Verify and compile device programs, and attach them.")                                   \
        M(probes_show, "probes.show", probe_show_params, probe_details, admin, false,               \
          "One object of device programs.")                                                         \
        M(probes_attach, "probes.attach", probe_attach_params, probe_attached, admin, false,        \
          "Put device programs into processes that have an agent: those that run, from their next launch on, and those that start later.") \
        M(probes_detach, "probes.detach", probe_detach_params, probe_detached, admin, false,        \
          "Take them off.")                                                                         \
        M(probes_unload, "probes.unload", probe_unload_params, probe_unloaded, admin, false,        \
          "Take them off everywhere and forget them.")                                              \
        M(probes_log, "probes.log", probe_log_params, probe_log, admin, false,                      \
          "What device programs printed with bpf_printk(), in one process.")                        \
        M(maps_dump, "maps.dump", map_dump_params, map_dump, admin, false,                          \
          "Read a map of device programs in one process; of one that is there twice (docs/device-programs.md) the master.") \
        M(maps_update, "maps.update", map_update_params, map_updated, admin, false,                 \
          "Overwrite an element of such a map: of an array, or one that is in a hash; of a map that is there twice in the master.") \
        M(maps_delete, "maps.delete", map_delete_params, map_deleted, admin, false,                 \
          "Take an element out of such a map, a hash. What programs on the GPU add to it at that moment is lost.") \
        M(allocations_list, "allocations.list", allocations_params, allocations, own, false,        \
          "Live allocations of a process that its GPUs can reach. Those made before the process was observed are not known.") \
        M(stream_cancel, "stream.cancel", cancel_params, cancelled, any, false,                    \
          "End a stream of this connection. The stream's last batch comes before the answer.")     \
        M(settings_get, "settings.get", settings_params, settings, any, false,                     \
          "The daemon's settings.")                                                                \
        M(settings_set, "settings.set", set_params, set_result, admin, false,                      \
          "Change a setting until the settings are read again (SIGHUP, restart).")                 \
        M(store_flush, "store.flush", flush_params, flushed, admin, false,                         \
          "Wait until the launches that were finished before are in the database.")                \
        M(store_prune, "store.prune", prune_params, pruned, admin, false,                          \
          "Delete old launches, in runs of some thousand: what shares one with a newer launch stays.")

/* ---- errors: X(NAME, NUMBER, ERRNO the client library returns, DOC) ---- */
#define GPUOBS_ERRORS(X)                                                                           \
        X(bad_frame, 1, EBADMSG, "The frame is not well-formed. The connection is closed.")        \
        X(frame_too_large, 2, EMSGSIZE, "The frame is longer than the limit. The connection is closed.") \
        X(bad_request, 3, EBADMSG, "The request lacks its id or method, or they are of a wrong type, or the id is in use.") \
        X(unknown_method, 4, ENOSYS, "There is no such method.")                                   \
        X(bad_params, 5, EINVAL, "A parameter is missing, of a wrong type or out of range; detail names it.") \
        X(permission_denied, 6, EPERM, "Only root and members of group gpuobs may do this.")      \
        X(quota_exceeded, 7, EDQUOT, "Your user has too much open: connections, requests, streams or unread answers.") \
        X(too_many_connections, 8, EUSERS, "The daemon has as many connections as it may. The connection is closed.") \
        X(timeout, 9, ETIME, "The query took too long and was stopped. Narrow it.")                \
        X(store_failed, 10, EIO, "The database could not be read.")               \
        X(slow_client, 11, ETIMEDOUT, "Answers were not read for too long. The connection is closed.") \
        X(shutting_down, 12, ESHUTDOWN, "The daemon is stopping.")                                 \
        X(internal, 13, EREMOTEIO, "A fault in the daemon; its journal has more.")

/* clang-format on */
