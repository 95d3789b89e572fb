/* SPDX-License-Identifier: Apache-2.0 */
#include "util/ledger.h"

const char *const ledger_loss_names[LOSS_COUNT] = {
#define X(name, launch, text) [LOSS_##name] = #name,
        LEDGER_LOSSES(X)
#undef X
};

const char *const ledger_loss_texts[LOSS_COUNT] = {
#define X(name, launch, text) [LOSS_##name] = text,
        LEDGER_LOSSES(X)
#undef X
};

const bool ledger_loss_is_launch[LOSS_COUNT] = {
#define X(name, launch, text) [LOSS_##name] = launch,
        LEDGER_LOSSES(X)
#undef X
};

uint64_t ledger_lost_launches(const struct ledger *l)
{
        uint64_t sum = 0;

        for (int i = 0; i < LOSS_COUNT; i++)
                if (ledger_loss_is_launch[i])
                        sum += l->lost[i];
        return sum;
}

void ledger_add(struct ledger *to, const struct ledger *from)
{
        to->produced += from->produced;
        to->stored += from->stored;
        for (int i = 0; i < LOSS_COUNT; i++)
                to->lost[i] += from->lost[i];
}
