/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct api_check;

/*
 * What works of the daemon's parts and what does not, with what to do about it, part
 * by part; the same for all who ask. Texts live until row() returns. data: struct gpuobsd.
 */
void doctor_examine(void *data, void (*row)(void *row_data, const struct api_check *check),
                    void *row_data);
