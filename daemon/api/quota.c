/* SPDX-License-Identifier: Apache-2.0 */
#include "api/quota.h"

#include <stdlib.h>
#include <uthash.h>

#include "util/macro.h"

struct entry {
        struct quota_account account;
        uint32_t users;
        UT_hash_handle hh;
};

struct quota {
        struct entry *entries;
};

struct quota *quota_new(void)
{
        return calloc(1, sizeof(struct quota));
}

struct quota *quota_free(struct quota *q)
{
        struct entry *e, *next;

        if (!q)
                return NULL;
        HASH_ITER (hh, q->entries, e, next) {
                HASH_DEL(q->entries, e);
                free(e);
        }
        free(q);
        return NULL;
}

struct quota_account *quota_take(struct quota *q, uid_t uid)
{
        struct entry *e;

        HASH_FIND(hh, q->entries, &uid, sizeof(uid), e);
        if (!e) {
                e = calloc(1, sizeof(*e));
                if (!e)
                        return NULL;
                e->account.uid = uid;
                HASH_ADD(hh, q->entries, account.uid, sizeof(uid), e);
        }
        e->users++;
        return &e->account;
}

void quota_drop(struct quota *q, struct quota_account *account)
{
        struct entry *e = container_of(account, struct entry, account);

        if (--e->users)
                return;
        HASH_DEL(q->entries, e);
        free(e);
}
