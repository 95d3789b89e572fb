/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/call_names.h"

#include <stddef.h>

#include "driver/driver_abi.h"
#include "util/macro.h"

struct name {
        uint32_t number;
        const char *text;
};

static const struct name rm_requests[] = {
        {0x27, "alloc memory"},   {0x29, "free"},
        {0x2a, "control"},        {0x2b, "alloc"},
        {0x34, "duplicate"},      {0x35, "share"},
        {0x41, "idle channels"},  {0x4a, "video heap"},
        {0x4d, "registry"},       {0x4e, "map"},
        {0x4f, "unmap"},          {0x52, "get event"},
        {0x54, "context dma"},    {0x57, "map dma"},
        {0x58, "unmap dma"},      {0x59, "bind dma"},
        {0x5c, "export"},         {0x5d, "import"},
        {0x5e, "update mapping"}, {0xc8, "card info"},
        {0xc9, "register fd"},    {0xce, "alloc event"},
        {0xcf, "free event"},     {0xd1, "status code"},
        {0xd2, "check version"},  {0xd3, "wrapped"},
        {0xd4, "attach gpus"},    {0xd6, "system params"},
        {0xd9, "export dmabuf"},  {0xda, "wait open"},
};

static const struct name uvm_requests[] = {
        {23, "create range group"},
        {24, "destroy range group"},
        {25, "register gpu va space"},
        {26, "unregister gpu va space"},
        {27, "register channel"},
        {28, "unregister channel"},
        {29, "enable peer access"},
        {30, "disable peer access"},
        {31, "set range group"},
        {33, "map external"},
        {34, "free"},
        {37, "register gpu"},
        {38, "unregister gpu"},
        {39, "pageable access"},
        {40, "prevent migration"},
        {41, "allow migration"},
        {42, "set preferred location"},
        {43, "unset preferred location"},
        {44, "enable read duplication"},
        {45, "disable read duplication"},
        {46, "set accessed by"},
        {47, "unset accessed by"},
        {51, "migrate"},
        {53, "migrate range group"},
        {56, "init event tracker"},
        {57, "set threshold"},
        {58, "enable events"},
        {59, "disable events"},
        {65, "map dynamic parallelism"},
        {66, "unmap external"},
        {68, "alloc semaphore pool"},
        {70, "pageable access on gpu"},
        {71, "populate pageable"},
        {72, "validate range"},
        {73, "create external range"},
        {74, "map external sparse"},
        {75, "initialize mm"},
        {80, "discard"},
        {DRIVER_UVM_INITIALIZE, "initialize"},
        {DRIVER_UVM_DEINITIALIZE, "deinitialize"},
};

static const struct name whats[] = {
        {0x0000, "client"},
        {0x0001, "client"},
        {0x003e, "system memory"},
        {0x0040, "video memory"},
        {0x0041, "client"},
        {0x0071, "system memory mapping"},
        {0x0079, "event"},
        {0x0080, "device"},
        {0x2080, "subdevice"},
        {0x50a0, "virtual memory"},
        {0x9067, "context share"},
        {0x90cd, "event buffer"},
        {0x90ce, "deviceless memory"},
        {0x90f1, "address space"},
        {0xa06c, "channel group"},
        {0xc36f, "channel"},
        {0xc46f, "channel"},
        {0xc56f, "channel"},
        {0xc86f, "channel"},
        {0xc96f, "channel"},
        {0xca6f, "channel"},
        {0xc3c0, "compute"},
        {0xc5c0, "compute"},
        {0xc6c0, "compute"},
        {0xc7c0, "compute"},
        {0xc9c0, "compute"},
        {0xcbc0, "compute"},
        {0xcdc0, "compute"},
        {0xc3b5, "copy"},
        {0xc5b5, "copy"},
        {0xc6b5, "copy"},
        {0xc7b5, "copy"},
        {0xc8b5, "copy"},
        {0xc9b5, "copy"},
        {0x2080014a, "get uuid"},
        {0x20801238, "trace context switches"},
        {0xa06c0101, "schedule channel group"},
        {0xa06c0102, "bind channel group"},
        {0xa06c0103, "set time slice"},
        {0xa06c0104, "get time slice"},
        {0xa06c0105, "preempt"},
        {0xa06c0106, "get channel group id"},
        {0xa06f0103, "schedule channel"},
        {0xa06f0113, "get context id"},
};

static const char *find(const struct name *names, size_t n, uint32_t number)
{
        for (size_t i = 0; i < n; i++)
                if (names[i].number == number)
                        return names[i].text;
        return NULL;
}

const char *call_request_name(uint8_t device, uint32_t request)
{
        switch (device) {
        case DRIVER_DEVICE_RM:
                return find(rm_requests, ARRAY_SIZE(rm_requests), request);
        case DRIVER_DEVICE_UVM:
        case DRIVER_DEVICE_UVM_TOOLS:
                return find(uvm_requests, ARRAY_SIZE(uvm_requests), request);
        default:
                return NULL;
        }
}

const char *call_what_name(uint32_t what)
{
        return find(whats, ARRAY_SIZE(whats), what);
}

const char *call_device_name(uint8_t device)
{
        static const char *const names[DRIVER_DEVICE_COUNT] = {
                [DRIVER_DEVICE_NONE] = "other",
                [DRIVER_DEVICE_RM] = "rm",
                [DRIVER_DEVICE_UVM] = "uvm",
                [DRIVER_DEVICE_UVM_TOOLS] = "uvm-tools",
        };

        return device < DRIVER_DEVICE_COUNT ? names[device] : "other";
}
