// SPDX-License-Identifier: Apache-2.0

// The kernel of the check of device programs that come and go: tests/gpu/pack makes a
// cubin and PTX of this file.
extern "C" __global__ void alpha(unsigned *out)
{
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

        if (threadIdx.x & 1)
                return; // lanes of a warp leave at different exits
        out[i] = i * 2654435761u + 1;
}
