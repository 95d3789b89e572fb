# SPDX-License-Identifier: Apache-2.0
"""Kernels in Triton for workloads.py: softmax, a product of matrices, causal attention."""
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=0.0) * 2, mask=i < n)


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * columns + i, e / tl.sum(e, axis=0), mask=i < columns)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        d = start + depth
        left = tl.load(a + rows[:, None] * k + d[None, :], mask=(rows[:, None] < m) & (d[None, :] < k), other=0.0)
        right = tl.load(b + d[:, None] * n + columns[None, :], mask=(d[:, None] < k) & (columns[None, :] < n),
                        other=0.0)
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16),
             mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def attention_kernel(q, k, v, out, scale, length, HEAD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Online softmax over blocks of keys; length is a multiple of BM, BM one of BN."""
    first = tl.program_id(0) * BM
    base = tl.program_id(1) * length * HEAD
    rows = first + tl.arange(0, BM)
    features = tl.arange(0, HEAD)
    queries = tl.load(q + base + rows[:, None] * HEAD + features[None, :])
    peak = tl.full((BM,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, HEAD), dtype=tl.float32)
    for start in range(0, first + BM, BN):
        keys = start + tl.arange(0, BN)
        transposed = tl.load(k + base + keys[None, :] * HEAD + features[:, None])
        values = tl.load(v + base + keys[:, None] * HEAD + features[None, :])
        scores = tl.dot(queries, transposed) * scale
        scores = tl.where(rows[:, None] >= keys[None, :], scores, -float("inf"))
        higher = tl.maximum(peak, tl.max(scores, axis=1))
        p = tl.exp(scores - higher[:, None])
        shrink = tl.exp(peak - higher)
        weight = weight * shrink + tl.sum(p, axis=1)
        total = total * shrink[:, None] + tl.dot(p.to(tl.float16), values)
        peak = higher
    tl.store(out + base + rows[:, None] * HEAD + features[None, :], (total / weight[:, None]).to(tl.float16))


def double(x):
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def softmax(x):
    """Of each row of a float32 matrix."""
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def matmul(a, b, warps):
    """Of float16 matrices."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), device=a.device, dtype=torch.float16)
    matmul_kernel[(triton.cdiv(m, 64), triton.cdiv(n, 128))](a, b, c, m, n, k, BM=64, BN=128, BK=32, num_warps=warps)
    return c


def attention(q, k, v):
    """Causal, of float16 tensors (heads, length, 64); the length is a multiple of 128."""
    heads, length, head = q.shape
    out = torch.empty_like(q)
    attention_kernel[(length // 128, heads)](q, k, v, out, head ** -0.5, length, HEAD=head, BM=128, BN=64)
    return out
