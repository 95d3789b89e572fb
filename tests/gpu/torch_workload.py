#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch work for the GPU checks: the same results must come out with and without the agent.

Prints one `result NAME VALUE` line for each computation (a loss, or a digest of a
tensor's bytes), then `time NAME SECONDS` lines. Runs of the same script on the same
card must agree in every `result` line to the last bit.

usage: torch_workload.py [--compile] [--steps N] [--only-steps]
"""
import argparse
import hashlib
import time

T0 = time.perf_counter()
import torch  # noqa: E402  (its import time is part of what is measured)

T_IMPORT = time.perf_counter() - T0


def digest(t):
    return hashlib.sha256(t.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def result(name, value):
    print(f"result {name} {value}", flush=True)


def transformer():
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, 4).cuda()


def training(steps):
    model = transformer()
    optimiser = torch.optim.Adam(model.parameters())
    x = torch.randn(4, 32, 256, device="cuda")

    def step():
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimiser.step()
        return loss

    t = time.perf_counter()
    step()
    torch.cuda.synchronize()
    print(f"time first_step {time.perf_counter() - t:.4f}")
    for _ in range(20):
        loss = step()
    torch.cuda.synchronize()
    result("training_loss", f"{loss.item():.9g}")
    for repeat in range(5):
        t = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        print(f"time step {(time.perf_counter() - t) / steps:.6f}")


def operations():
    a = torch.randn(2048, 2048, device="cuda")
    result("gemm_fp32", digest(a @ a))
    result("gemm_bf16", digest(a.bfloat16() @ a.bfloat16()))
    result("gemm_fp16", digest(a.half() @ a.half()))
    q = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16)
    attention = torch.nn.functional.scaled_dot_product_attention
    result("attention", digest(attention(q, q, q, is_causal=True)))
    result("sort", digest(torch.sort(a.flatten()[:100000])[0]))
    result("topk", digest(torch.topk(a, 5)[0]))
    result("cumsum", digest(torch.cumsum(a.double(), 0)))
    result("softmax", digest(torch.softmax(a, -1)))
    conv = torch.nn.functional.conv2d
    x, w = torch.randn(4, 16, 32, 32, device="cuda"), torch.randn(8, 16, 3, 3, device="cuda")
    result("convolution", digest(conv(x, w)))
    result("fft", digest(torch.view_as_real(torch.fft.fft(a[0]))))
    eye = torch.eye(256, device="cuda")
    result("solve", digest(torch.linalg.solve(a[:256, :256] + 300 * eye, a[:256, :4])))
    return a


def take_first_variants():
    """Which variant of a kernel is the fastest is measured in each process, and two may add up in different orders."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def in_order(tuner, *_, **__):
        return {launcher: place for place, launcher in enumerate(tuner.launchers)}

    CachingAutotuner.benchmark_all_configs = in_order


def compiled(a):
    take_first_variants()
    f = torch.compile(lambda x: (x.sin() * x.cos()).softmax(-1))
    result("compile", digest(f(a)))


def graph():
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
    x = torch.randn(64, 256, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.no_grad():
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            for _ in range(3):
                net(x)
        torch.cuda.synchronize()
        with torch.cuda.graph(g):
            y = net(x)
    for _ in range(10):
        g.replay()
    torch.cuda.synchronize()
    result("graph", digest(y))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--only-steps", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    print(f"time import {T_IMPORT:.4f}")
    training(options.steps)
    if options.only_steps:
        return
    a = operations()
    if options.compile:
        compiled(a)
    graph()


if __name__ == "__main__":
    main()
