// SPDX-License-Identifier: Apache-2.0

// A kernel that launches another one, before it is linked with the device's runtime.

__global__ void child(int *a)
{
        a[threadIdx.x]++;
}

__global__ void parent(int *a)
{
        if (threadIdx.x == 0)
                child<<<1, 32>>>(a);
}
