/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between the agent (in the observed process) and the daemon, on a
 * SOCK_SEQPACKET UNIX socket. One message per packet; fixed little-endian
 * structs, since both ends come from one build on one machine. Every message
 * starts with struct agent_header. The daemon treats all of it as hostile.
 *
 * agent                         daemon
 *   HELLO            ->
 *                    <-  WELCOME  + fds {start/end map, program blob memfd, launch map if any}
 *                                 or REFUSED with a reason
 *   IMAGE, KERNELS*  ->           one image loaded; its kernels, in as many packets as needed;
 *                                 again, whole, when other programs were put in
 *   CLOCK*           ->           of each device WELCOME asked for
 *   HANDLE*          ->           a function of the agent's: its launches are not the application's
 *   WAKE*            ->           there are arguments to be read (argument_abi.h)
 *   NOTE*            ->           something went wrong or was refused; kept and shown
 *                    <-  ATTACH + fds {program blob memfd, its host maps in their order}
 *   ATTACHED         ->           what became of it
 *                    <-  RULES
 *                    <-  DETACH
 *   DETACHED         ->
 *                    <-  READ_MAP + fd {memfd of the map's size, to be filled}
 *                    <-  WRITE_MAP
 *   MAP_DONE         ->           to either of these
 *   FUNCTION*        ->           a handle given out earlier, of an image that was found later
 *   BYE              ->           the agent takes itself out of the process
 *   (close)                       the process ended or closed it
 *
 * The daemon's messages behind WELCOME come at any time and are answered in their
 * order, but for RULES, which has no answer. The first WELCOME.attach_count of them are
 * RULES or ATTACH and come at once: the agent deals with these before it looks at the
 * first image.
 */
#include <linux/types.h>

#define AGENT_ABI_VERSION    11
#define AGENT_PACKET_MAX     65536
#define AGENT_SOCKET_DEFAULT "/run/gpuobsd/agent.sock"
#define AGENT_SOCKET_ENV     "GPUOBS_AGENT_SOCKET" /* overrides the default; tests */

enum agent_message {
        AGENT_HELLO = 1,
        AGENT_WELCOME,
        AGENT_REFUSED,
        AGENT_IMAGE,
        AGENT_KERNELS,
        AGENT_CLOCK,
        AGENT_HANDLE,
        AGENT_NOTE,
        AGENT_WAKE,
        AGENT_ATTACH,
        AGENT_ATTACHED,
        AGENT_DETACH,
        AGENT_DETACHED,
        AGENT_READ_MAP,
        AGENT_WRITE_MAP,
        AGENT_MAP_DONE,
        AGENT_RULES,
        AGENT_FUNCTION,
        AGENT_BYE,
};

struct agent_header {
        __u16 type;    /* enum agent_message */
        __u16 version; /* AGENT_ABI_VERSION */
        __u32 length;  /* whole packet, bytes */
};

#define AGENT_DEVICES_MAX 64

struct agent_hello {
        struct agent_header header;
        __u32 driver_version; /* cuDriverGetVersion, e.g. 13000 */
        __u32 device_count;   /* at most AGENT_DEVICES_MAX; 0: the agent has given up */
        __u32 sm;             /* 10 * major + minor of the device in use, e.g. 90 */
        __u32 device;         /* ordinal of the one in use when the first image comes */
        /* By the process's own ordinals (CUDA_VISIBLE_DEVICES); all zero: not known. */
        __u8 device_uuids[AGENT_DEVICES_MAX][16];
};
_Static_assert(sizeof(struct agent_hello) == 24 + 16 * AGENT_DEVICES_MAX, "agent hello");

#define AGENT_WELCOME_RECORD_LAUNCHES                                                              \
        1 /* record launches in the launch map (launch_abi.h), the third descriptor */

struct agent_welcome {
        struct agent_header header;
        __u32 flags;
        __u32 ring_entries;  /* DEVICE_RING_ENTRIES */
        __u64 ring_address;  /* DEVICE_RING_ADDRESS */
        __u64 clock_devices; /* bit n: the daemon cannot read the clock of device n: send CLOCK */
        __u64 blob_bytes;    /* size of the program blob; fds: [0] map, [1] blob, [2] launches */
        __u64 map_bytes;     /* of GPU memory that maps may take in the process, at most */
        __u32 attach_count;  /* RULES and ATTACH messages that follow at once */
        __u32 pad;
};

struct agent_refused {
        struct agent_header header;
        char reason[240]; /* NUL-terminated sentence */
};

/*
 * The program blob: struct agent_blob, then `count` struct agent_program, then
 * the texts they point to (offsets from the start of the blob).
 *
 * A text is a PTX fragment enclosed in { }: it declares its own registers,
 * falls through at its end, never returns, and uses labels that contain the
 * token @U@. Before use the agent replaces these tokens:
 *   @U@   text unique to the insertion point (letters, digits, underscore)
 *   @K@   the kernel id: an unsigned 32-bit literal in PTX that is injected; for
 *         machine code a register that each kernel's id is patched into later
 *   @C0@ and @C1@, @Q0@ and @Q1@  opcode and source of `opcode %r, source;`, which
 *         loads the number of the context, or the low half of the address of the
 *         launch's descriptor (device_abi.h), into a 32-bit register; 0 is loaded
 *         where the agent does not know where that is
 *   @A@   a 64-bit register with the address that is accessed, in AGENT_PROGRAM_MEM
 *   @S@   DEVICE_ACCESS() of that access: a literal, or a register for machine code
 *   @M0@ .. @M7@  the 64-bit address of the map with that number
 *   @O@   // or nothing: in front of an instruction that keeps a number which changes in a
 *         loop out of uniform registers; for machine code where it does not go without
 */
#define AGENT_PROGRAM_ENTRY 1
#define AGENT_PROGRAM_EXIT  2
#define AGENT_PROGRAM_MEM   3
#define AGENT_MAP_MAX       8
#define AGENT_PROGRAMS_MAX  8 /* of one blob */

struct agent_map {
        __u32 placement;      /* enum gpuobs_placement; 0 = unused */
        __u32 initial_bytes;  /* device: what it begins with; zeros behind that */
        __u64 bytes;          /* host: of the map itself; device: GPU memory to allocate */
        __u64 initial_offset; /* from the start of the blob */
};

struct agent_program {
        __u32 where; /* AGENT_PROGRAM_ENTRY, _EXIT or _MEM */
        __u32 reserved;
        __u64 text_offset;
        __u64 text_bytes; /* without a NUL */
        char name[64];
};

struct agent_blob {
        __u32 magic; /* AGENT_BLOB_MAGIC */
        __u32 count; /* programs, at most AGENT_PROGRAMS_MAX */
        struct agent_map maps[AGENT_MAP_MAX];
        /* struct agent_program programs[count] follow */
};
#define AGENT_BLOB_MAGIC 0x62707567u

enum agent_image_status {
        AGENT_IMAGE_REWRITTEN = 1,
        AGENT_IMAGE_ORIGINAL, /* loaded as it came; reason says why */
};

struct agent_image {
        struct agent_header header;
        __u32 image_id; /* from 1, per process */
        __u32 status;   /* enum agent_image_status */
        __u32 kernel_count;
        __u32 rewrite_us; /* time spent */
        __u64 handle;     /* CUmodule or CUlibrary the driver returned */
        __u64 bytes;      /* size of the image that was chosen */
        __u32 is_library; /* handle is a CUlibrary */
        __u32 is_ptx;     /* PTX was rewritten rather than machine code */
        __u32 launches;   /* it launches kernels on the device */
        __u32 pad;
        char reason[240];
};

enum agent_probe_how {
        AGENT_PROBE_NONE = 0,
        AGENT_PROBE_SASS = 1,
        AGENT_PROBE_PTX = 2,
};

/* Kernels of one image, packed: each is this struct, then the name, then the reason; 8-byte
 * aligned. */
struct agent_kernel {
        __u32 kernel_id;       /* from 1, at most DEVICE_KERNEL_ID_MAX, unique in the process */
        __u8 entry;            /* enum agent_probe_how: the program that tells when it starts */
        __u8 exit;             /* ... and ends */
        __u16 name_bytes;      /* without NUL */
        __u16 reason_bytes;    /* without NUL; 0 when all is in that was to be */
        __u8 programs;         /* others that are in */
        __u8 refused;          /* ... and that are not, the reason says why */
        __u32 size;            /* of this struct with name and reason, rounded up to 8 */
        __u32 accesses_probed; /* instructions with programs for accesses of memory */
        __u32 accesses;        /* ... of all that access memory; not known: the next */
};
#define AGENT_ACCESSES_UNKNOWN (~0u) /* nobody has asked for them; none is probed */
_Static_assert(sizeof(struct agent_kernel) == 24, "agent kernel");

struct agent_kernels {
        struct agent_header header;
        __u32 image_id;
        __u32 count;
        /* count packed kernels follow */
};

/* One bracketed reading of the GPU clock; all ns. */
struct agent_clock {
        struct agent_header header;
        __u64 raw_before_ns; /* CLOCK_MONOTONIC_RAW */
        __u64 gpu_ns;
        __u64 raw_after_ns;
        __u32 device; /* ordinal, one of clock_devices */
        __u32 pad;
};

struct agent_handle {
        struct agent_header header;
        __u64 func; /* CUfunction the agent launches itself */
};

/* Nothing but a header: what there is to know lies in the launch map. */
struct agent_wake {
        struct agent_header header;
};

/* A CUfunction or CUkernel of an image; the name follows, without NUL. */
struct agent_function {
        struct agent_header header;
        __u64 func;
        __u64 image; /* CUmodule or CUlibrary */
        __u32 name_bytes;
        __u32 pad;
        char name[];
};
_Static_assert(sizeof(struct agent_function) == 32, "agent function");

/* Nothing of the process runs programs any more; no record will come after this. */
struct agent_bye {
        struct agent_header header;
};

enum agent_note_kind {
        AGENT_NOTE_ERROR = 1,
        AGENT_NOTE_REFUSED,
        AGENT_NOTE_INFO,
};

struct agent_note {
        struct agent_header header;
        __u32 kind;
        __u32 pad;
        char text[240];
};

#define AGENT_GLOB_MAX  256
#define AGENT_WRITE_MAX 4096 /* bytes of one WRITE_MAP */
#define AGENT_RULES_MAX 2048

struct agent_attach {
        struct agent_header header;
        __u64 id; /* of the object, from 1; the daemon's own programs are object 0 */
        __u64 blob_bytes;
        __u32 host_maps;              /* descriptors behind the blob's */
        char kernels[AGENT_GLOB_MAX]; /* glob of kernel names; "": all */
        __u32 pad;
};

struct agent_attached {
        struct agent_header header;
        __u64 id;
        __s32 result; /* 0 or -errno */
        __u32 code;   /* 1: the programs are for machine code as well, else reason says why not */
        __u64 gpu_bytes;  /* memory that the maps take */
        char reason[240]; /* NUL-terminated sentence, "" none */
};

/* For images that are rewritten from now on. */
struct agent_rules {
        struct agent_header header;
        char text[AGENT_RULES_MAX]; /* probe_rules.h */
};

struct agent_detach {
        struct agent_header header;
        __u64 id;
};

struct agent_detached {
        struct agent_header header;
        __u64 id;
        /*
         * GPU memory that kernels which are loaded may still use. Then DETACHED comes
         * again, with 0, when it was freed.
         */
        __u64 kept_bytes;
};

struct agent_read_map {
        struct agent_header header;
        __u64 request; /* given back in MAP_DONE */
        __u64 id;
        __u32 map;
        __u32 pad;
        __u64 bytes;
};

struct agent_write_map {
        struct agent_header header;
        __u64 request;
        __u64 id;
        __u32 map;
        __u32 bytes; /* that follow */
        __u64 offset;
};

struct agent_map_done {
        struct agent_header header;
        __u64 request;
        __s32 result;    /* 0 or -errno */
        __u32 settled;   /* 1: read twice, and nothing had changed in between */
        __u64 before_ns; /* CLOCK_MONOTONIC, around the last reading */
        __u64 after_ns;
};
