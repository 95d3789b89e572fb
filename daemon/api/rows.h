/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's records as the API's structs. */
#include "api/internal.h"

/* The API's row of a launch; texts stay the launch's. */
void rows_launch(const struct store_launch *l, struct gpuobs_launch *ret_row);

/* One launch, encoded at the end of the buffer (which remembers a failed allocation). */
void rows_add_launch(struct wire_buffer *b, const struct store_launch *l);

/* One struct of the API, encoded at the end of the buffer. */
void rows_add(struct wire_buffer *b, const struct schema_struct *s, const void *object);

/*
 * A ledger; its causes are in the arena. explain: with what each cause means,
 * and those with count 0 too. 0 or -ENOMEM.
 */
int rows_ledger(const struct ledger *l, bool explain, struct codec_arena *arena,
                struct gpuobs_losses *ret_losses);

/* The ledger of all processes of a uid. 0 or -ENOMEM. */
int rows_losses(struct api_server *s, uint32_t uid, bool explain, struct codec_arena *arena,
                struct gpuobs_losses *ret_losses);

/* A process's short name, which is 16 bytes that need not end in a NUL. */
void rows_comm(char ret_comm[17], const struct process_info *info);

/* A text of the daemon, where "" means not known: NULL then. */
const char *rows_text(const char *text);
