/* SPDX-License-Identifier: Apache-2.0 */
#include "api/rows.h"

#include <errno.h>

/* The records' enums are the API's, value for value. */
_Static_assert((int)MATCH_NONE == (int)GPUOBS_MATCH_NONE, "match");
_Static_assert((int)MATCH_INFERRED == (int)GPUOBS_MATCH_INFERRED, "match");
_Static_assert((int)MATCH_ORDERED == (int)GPUOBS_MATCH_ORDERED, "match");
_Static_assert((int)MATCH_EXACT == (int)GPUOBS_MATCH_EXACT, "match");
_Static_assert((int)END_NONE == (int)GPUOBS_END_NONE, "end");
_Static_assert((int)END_INFERRED == (int)GPUOBS_END_INFERRED, "end");
_Static_assert((int)END_MEASURED == (int)GPUOBS_END_MEASURED, "end");

const char *rows_text(const char *text)
{
        return text && *text ? text : NULL;
}

void rows_comm(char ret_comm[17], const struct process_info *info)
{
        for (size_t i = 0; i < sizeof(info->comm); i++)
                ret_comm[i] = info->comm[i];
        ret_comm[16] = '\0';
}

void rows_add(struct wire_buffer *b, const struct schema_struct *s, const void *object)
{
        msgpack_packer pk;

        msgpack_packer_init(&pk, b, wire_buffer_write);
        codec_encode(&pk, s, object, NULL, 0);
}

void rows_launch(const struct store_launch *l, struct gpuobs_launch *ret_row)
{
        const struct launch_record *r = &l->record;

        *ret_row = (struct gpuobs_launch){
                .launch_id = r->launch_id,
                .pid = l->pid,
                .start_ticks = l->start_ticks,
                .comm = l->comm,
                .tid = r->tid,
                .cgroup = rows_text(l->cgroup),
                .has_gpu = r->has & LAUNCH_HAS_GPU,
                .gpu = r->gpu,
                .has_context = r->has & LAUNCH_HAS_CONTEXT,
                .context = r->context,
                .stream = r->stream,
                .has_graph_exec = r->graph_exec,
                .graph_exec = r->graph_exec,
                .kernel = rows_text(l->kernel),
                .has_grid = r->has & LAUNCH_HAS_GEOMETRY,
                .grid = {r->grid_x, r->grid_y, r->grid_z},
                .has_block = r->has & LAUNCH_HAS_GEOMETRY,
                .block = {r->block_x, r->block_y, r->block_z},
                .has_shared_bytes = r->has & LAUNCH_HAS_GEOMETRY,
                .shared_bytes = r->shared_bytes,
                .cpu_enter_ns = r->cpu_enter_ns,
                .cpu_return_ns = r->cpu_return_ns,
                .has_gpu_start_ns = r->has & LAUNCH_HAS_GPU_START,
                .gpu_start_ns = r->gpu_start_ns,
                .has_gpu_end_ns = r->has & LAUNCH_HAS_GPU_END,
                .gpu_end_ns = r->gpu_end_ns,
                .has_smid = r->has & LAUNCH_HAS_SMID,
                .smid = r->smid,
                .has_gridid = r->has & LAUNCH_HAS_GRIDID,
                .gridid = r->gridid,
                .result = r->result,
                .match = (enum gpuobs_match)r->match,
                .end = (enum gpuobs_end)r->end,
                .has_clock_error_ns = r->has & LAUNCH_HAS_CLOCK_ERROR,
                .clock_error_ns = r->clock_error_ns,
                .has_queue_others_ns = r->has & LAUNCH_HAS_QUEUE_OTHERS,
                .queue_others_ns = r->queue_others_ns,
        };
}

void rows_add_launch(struct wire_buffer *b, const struct store_launch *l)
{
        struct gpuobs_launch row;

        rows_launch(l, &row);
        rows_add(b, SCHEMA_OF(launch), &row);
}

int rows_ledger(const struct ledger *l, bool explain, struct codec_arena *arena,
                struct gpuobs_losses *ret_losses)
{
        struct gpuobs_losses losses = {l->produced, l->stored, ledger_lost_launches(l), NULL, 0};

        losses.causes = codec_arena_alloc(arena, LOSS_COUNT * sizeof(*losses.causes));
        if (!losses.causes)
                return -ENOMEM;
        for (int i = 0; i < LOSS_COUNT; i++) {
                if (!l->lost[i] && !explain)
                        continue;
                losses.causes[losses.n_causes++] = (struct gpuobs_loss){
                        .cause = ledger_loss_names[i],
                        .count = l->lost[i],
                        .launches = ledger_loss_is_launch[i],
                        .text = explain ? ledger_loss_texts[i] : NULL,
                };
        }
        *ret_losses = losses;
        return 0;
}

int rows_losses(struct api_server *s, uint32_t uid, bool explain, struct codec_arena *arena,
                struct gpuobs_losses *ret_losses)
{
        struct ledger total = {0};

        s->backend->losses(s->data, uid, &total);
        return rows_ledger(&total, explain, arena, ret_losses);
}
