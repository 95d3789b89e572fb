/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What each uid has open at the API. One account per uid that has a connection. */
#include <stdint.h>
#include <sys/types.h>

struct quota;

struct quota_account {
        uid_t uid;
        uint32_t connections;
        uint32_t requests; /* being worked on */
        uint32_t queries;  /* of these, running in the thread pool */
        uint32_t streams;
        uint64_t bytes; /* requests partly received and answers not yet taken */
};

struct quota *quota_new(void);
struct quota *quota_free(struct quota *q);

/* The uid's account; take it once per connection and request, drop it as often. NULL on no memory.
 */
struct quota_account *quota_take(struct quota *q, uid_t uid);
void quota_drop(struct quota *q, struct quota_account *account);
