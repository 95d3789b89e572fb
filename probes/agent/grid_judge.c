/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "../device/device_abi.h"
#include "grid_check.h"

#define STREAM_SHIFT (DEVICE_QUEUE_SHIFT + DEVICE_QUEUE_STREAM_SHIFT)
#define SLOT_SHIFT   (DEVICE_QUEUE_SHIFT + DEVICE_QUEUE_SLOT_SHIFT)
#define CONTEXT_MAX  UINT16_MAX /* as many bits as a record has */

static const char *judge_contexts(const struct grid_words *words, size_t count)
{
        for (size_t i = 0; i < count; i++) {
                if (!words[i].context)
                        return "a grid is told no context";
                if (words[i].context > CONTEXT_MAX)
                        return "what should be a context's number is too large for one";
                if (words[i].context != words[0].context)
                        return "grids of one context are told different ones";
        }
        return NULL;
}

/* Launches i and i + 2 are neighbours on their stream. */
static const char *judge_queues(const struct grid_words *words, size_t count)
{
        if (words[0].queue >> STREAM_SHIFT == words[1].queue >> STREAM_SHIFT)
                return "two streams have their descriptors in one place";
        for (size_t i = 0; i + 2 < count; i++) {
                uint32_t slot = words[i].queue >> SLOT_SHIFT,
                         next = words[i + 2].queue >> SLOT_SHIFT;

                if (words[i].queue >> STREAM_SHIFT != words[i + 2].queue >> STREAM_SHIFT)
                        return "a stream's descriptors are not in one place";
                if ((next - slot) % DEVICE_QUEUE_SLOTS != 1)
                        return "a stream does not take its descriptors in turn";
        }
        return NULL;
}

/* Other threads may launch meanwhile: ids may be left out, never repeated. */
static enum grid_verdict judge_ids(const struct grid_words *words, size_t count)
{
        bool all = true, some = false;

        for (size_t i = 0; i + 1 < count; i++) {
                if (words[i + 1].gridid <= words[i].gridid)
                        return GRID_OTHERWISE;
                all &= words[i + 1].gridid == words[i].gridid + 1;
                some |= words[i + 1].gridid == words[i].gridid + 1;
        }
        return all ? GRID_AS_EXPECTED : some ? GRID_SHARED : GRID_UNCLEAR;
}

enum grid_verdict grid_judge(const struct grid_words *words, size_t count, const char **ret_reason)
{
        enum grid_verdict verdict;
        const char *why = judge_contexts(words, count);

        if (!why)
                why = judge_queues(words, count);
        *ret_reason = why;
        if (why)
                return GRID_OTHERWISE;
        verdict = judge_ids(words, count);
        if (verdict == GRID_UNCLEAR || verdict == GRID_OTHERWISE)
                *ret_reason = "grid ids do not grow by one from launch to launch";
        return verdict;
}
