/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A CUDA process in miniature, for the correlator's tests: threads that call the
 * driver; devices that give grid ids; contexts; streams with their blocks of launch
 * descriptors, that run kernels; graphs; rings that deliver what the probes see,
 * late, and with losses on demand. It behaves as device_abi.h says the driver does.
 * It knows the truth about each launch and counts what the correlator says
 * against it.
 */
#include <stdbool.h>
#include <stdint.h>

struct sim_options {
        const char *name;
        uint64_t seed;
        uint32_t launches;
        uint32_t threads;
        uint32_t streams;  /* per context; threads share them */
        uint32_t contexts; /* thread t works in context t % contexts */
        uint32_t devices;  /* context c is on device c % devices; 0: one */
        int64_t apart_ns;  /* each device's clock is so far ahead of the one before */
        uint32_t kernels;
        uint32_t gap_ns;    /* mean time between a thread's calls */
        uint32_t kernel_ns; /* mean run time */
        /* In 1/1000 of the calls: */
        uint32_t memsets; /* half of them take an id */
        uint32_t copies;  /* take none */
        uint32_t syncs;
        uint32_t failures;
        uint32_t own;       /* launches of the agent */
        uint32_t graphs;    /* a graph is captured or replayed */
        uint32_t restreams; /* a stream is destroyed, and another made */
        uint32_t resets;    /* of the context, which lives on under another number */
        uint32_t reset_ns;  /* that takes so long or up to three times as long; 0: 20 ms */
        uint32_t switches;  /* the thread goes on in another context */
        uint32_t slow;      /* calls that take 20 to 2,000 times longer */
        uint32_t overlaps;  /* kernels start before the one before has ended */
        uint32_t stalls;    /* or between them: all threads stop for 20 ms or longer ... */
        uint32_t stall_ns;  /* ... as long as this at most; 0: 200 ms */
        /* Of the kernels, in 1/1000: */
        uint32_t unprobed;
        uint32_t exit_unprobed;
        uint32_t nameless; /* functions the daemon saw no handle event of */
        uint32_t untagged; /* whose records do not tell context and queue */
        /* Of what is delivered, in 1/1000: */
        uint32_t device_gaps; /* up to gap_records records lost at once */
        uint32_t gap_records;
        uint32_t overrun_records; /* so many lost at once, a third through; 0 none */
        uint32_t cpu_gaps;        /* up to gap_launches launch events lost at once */
        uint32_t gap_launches;
        uint32_t duplicates;
        uint32_t garbage;
        uint32_t tails;          /* ends that the GPU says it does not see */
        uint32_t clock_ns;       /* between readings of the clock; 0: 10 ms */
        uint32_t cpu_late_ns;    /* launch events are read so much later than device records */
        uint32_t device_late_ns; /* device records are read so much later */
        uint32_t stuck_ns;       /* one launch, a third through, is under way so long */
        bool device_first;       /* device records are read before CPU events */
        bool graphs_unseen; /* captures and instantiations are not reported, nodes added by hand */
        bool shared_stream; /* threads use streams at random, else each its own */
        bool per_thread;    /* each thread its per-thread default stream */
        bool unborn;        /* the context was made before the probes */
        bool device_late;   /* the contexts' devices become known only after 20 ms */
        bool clock_late;    /* the clock is known only after 500 ms */
        bool slewed;        /* NTP sets CLOCK_MONOTONIC's rate to 500 ppm, then back, each 15 ms */
        bool kernels_late;  /* the agent's word on kernels comes after their first launches */
        bool sync_end;      /* the program synchronises before it ends */
        bool abrupt;        /* it is gone as soon as its last event has been read */
};

struct sim_result {
        uint64_t produced; /* launches the correlator was shown */
        uint64_t captured; /* of them, into graphs */
        uint64_t emitted;  /* records it gave, graph nodes' not counted */
        uint64_t expected; /* launches shown whose start record was delivered */
        uint64_t matched;  /* of them, given a grid id */
        uint64_t exact;
        uint64_t ordered;
        uint64_t inferred;
        uint64_t none;
        uint64_t none_recorded; /* of them, with a start record that was delivered */
        uint64_t wrong_exact;
        uint64_t wrong_ordered;
        uint64_t wrong_group; /* wrong ordered, and of no call that overlapped */
        uint64_t wrong_inferred;
        uint64_t wrong_time; /* a right match with a start or end outside the stated error */
        uint64_t ends;       /* measured */
        uint64_t ends_expected;
        uint64_t ends_inferred;
        uint64_t wrong_end; /* inferred end before the true one */
        uint64_t nodes;     /* graph records emitted */
        uint64_t nodes_expected;
        uint64_t exact_nodes;
        uint64_t inferred_nodes;
        uint64_t wrong_nodes;     /* exact, and of another replay */
        uint64_t unmatched;       /* device records, by the ledger */
        uint64_t tails;           /* ends not seen, as delivered */
        uint64_t tails_counted;   /* and by the ledger */
        uint64_t overfull;        /* launches given up since too many waited */
        uint64_t longest_inexact; /* longest run of expected launches that are not exact */
        uint64_t no_gpu;          /* emitted without the number of the GPU */
        uint64_t no_start;        /* matched, without a start time */
        uint64_t ledger_produced; /* launches and graph nodes, by the ledger */
};

/* Run it through a correlator. */
struct sim_result sim_run(const struct sim_options *options);
