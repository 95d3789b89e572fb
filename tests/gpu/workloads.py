#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work that people do with PyTorch and Triton, in parts, for tests/gpu/workload_checks.py.

Prints `pid N`, `time import SECONDS`, then for each part its results (`result PART.NAME
DIGEST`), and `part PART BEGIN_NS END_NS` (CLOCK_MONOTONIC) when it came to its end, `skip
PART REASON` when this machine cannot do it, or `failed PART REASON`. Runs on the same card
agree in all results but those of operations that PyTorch has no deterministic form of.

usage: workloads.py PART...
"""
import concurrent.futures
import os
import sys
import time
import warnings

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch_workload  # noqa: E402  (it times the import of torch)
from torch_workload import digest, result  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

DEVICE = "cuda"
VOCABULARY, WIDTH, HEADS, LENGTH, BATCH, LAYERS = 512, 256, 4, 128, 8, 4


class Skip(Exception):
    """This machine cannot do it."""


def random(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=DEVICE).to(dtype)


# ---- libraries ----

def cublas(part):
    shapes = ((64, 64, 64), (1024, 1024, 1024), (257, 513, 129), (8, 4096, 1024), (2048, 16, 2048))
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for m, n, k in shapes:
            a, b, c = random(m, k, dtype=dtype), random(k, n, dtype=dtype), random(n, dtype=dtype)
            result(f"{part}.{name}_matmul_{m}_{n}_{k}", digest(torch.matmul(a, b)))
            result(f"{part}.{name}_addmm_{m}_{n}_{k}", digest(torch.addmm(c, a, b)))
        a, b = random(16, 128, 192, dtype=dtype), random(16, 192, 64, dtype=dtype)
        result(f"{part}.{name}_bmm", digest(torch.bmm(a, b)))
        result(f"{part}.{name}_transposed", digest(a[0].t() @ random(128, 320, dtype=dtype)))
    torch.backends.cuda.matmul.allow_tf32 = True
    result(f"{part}.tf32", digest(random(512, 512) @ random(512, 512)))
    torch.backends.cuda.matmul.allow_tf32 = False


def epilogue(part):
    """Bias and activation within cuBLASLt's kernel."""
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        x, w, bias = random(512, 384, dtype=dtype), random(384, 640, dtype=dtype), random(640, dtype=dtype)
        result(f"{part}.{name}_linear", digest(F.linear(x, w.t().contiguous(), bias).relu()))
        result(f"{part}.{name}_relu", digest(torch.ops.aten._addmm_activation(bias, x, w)))
        result(f"{part}.{name}_gelu", digest(torch.ops.aten._addmm_activation(bias, x, w, use_gelu=True)))


# ---- Triton ----

def solvers(part):
    """Dense and sparse linear algebra: cuSOLVER, cuSPARSE, and halves that are added up two at a time."""
    square = random(12, 24, 24) + 8 * torch.eye(24, device=DEVICE)
    positive = square @ square.mT + torch.eye(24, device=DEVICE)
    large = random(300, 300) + 20 * torch.eye(300, device=DEVICE)
    result(f"{part}.solve", digest(torch.linalg.solve(square, random(12, 24, 3))))
    result(f"{part}.solve_large", digest(torch.linalg.solve(large, random(300, 7))))
    result(f"{part}.inverse", digest(torch.linalg.inv(square)))
    result(f"{part}.cholesky", digest(torch.linalg.cholesky(positive)))
    result(f"{part}.eigenvalues", digest(torch.linalg.eigvalsh(positive)))
    result(f"{part}.singular_values", digest(torch.linalg.svdvals(large)))
    result(f"{part}.qr", digest(torch.linalg.qr(large)[1]))
    sparse = (random(400, 300) * (random(400, 300) > 1)).to_sparse_csr()
    result(f"{part}.sparse_matmul", digest(torch.sparse.mm(sparse, random(300, 32))))
    result(f"{part}.sparse_vector", digest(sparse @ random(300)))
    halves = torch.zeros(64, 128, device=DEVICE, dtype=torch.float16)
    where = torch.arange(2048, device=DEVICE) % 64
    # Sums of small whole numbers, which are the same in any order.
    halves.index_add_(0, where, torch.randint(-8, 9, (2048, 128), device=DEVICE).half())
    result(f"{part}.halves", digest(halves))


def working_triton():
    """Our kernels, after one was compiled; Skip where none can be."""
    try:
        import triton_kernels
        x = torch.arange(2000, device=DEVICE, dtype=torch.float32)
        doubled = triton_kernels.double(x)
        torch.cuda.synchronize()
    except Exception as e:
        raise Skip(f"Triton cannot compile here: {type(e).__name__}: {e}") from e
    if not torch.equal(doubled, 2 * x):
        raise RuntimeError("a kernel in Triton that doubles does not")
    return triton_kernels


def near(name, got, wanted, tolerance):
    error = (got.float() - wanted.float()).abs().max().item()
    if not error <= tolerance:
        raise RuntimeError(f"{name} is off by {error:.3g}")
    return digest(got)


def triton_softmax(part):
    kernels = working_triton()
    for rows, columns in ((512, 1000), (37, 4096)):
        x = random(rows, columns)
        result(f"{part}.{rows}_{columns}", near("softmax", kernels.softmax(x), torch.softmax(x, -1), 1e-5))


def triton_matmul(part):
    kernels = working_triton()
    for (m, n, k), warps in (((512, 512, 512), 4), ((300, 200, 170), 4), ((1024, 768, 256), 8)):
        a, b = random(m, k, dtype=torch.float16), random(k, n, dtype=torch.float16)
        result(f"{part}.{m}_{n}_{k}", near("matmul", kernels.matmul(a, b, warps), a.float() @ b.float(), 0.5))


def triton_attention(part):
    kernels = working_triton()
    q, k, v = (random(16, 512, 64, dtype=torch.float16) for _ in range(3))
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    result(f"{part}.causal", near("attention", kernels.attention(q, k, v), wanted, 0.02))


# ---- training ----

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        attended = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = torch.nn.LayerNorm(WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.last(x))


class Training:
    def __init__(self, dtype, wrap=lambda model: model, capturable=False):
        self.model = Transformer().to(device=DEVICE, dtype=dtype)
        self.run = wrap(self.model)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), capturable=capturable)
        self.data = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device=DEVICE)

    def step(self):
        self.optimiser.zero_grad(set_to_none=True)
        logits = self.run(self.data[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), self.data[:, 1:].flatten())
        loss.backward()
        self.optimiser.step()
        return loss

    def results(self, part, losses):
        for i, loss in enumerate(losses):
            result(f"{part}.loss_{i}", digest(loss.reshape(1)))
        for name in ("tokens.weight", "blocks.0.qkv.weight", "blocks.3.narrow.bias", "head.weight"):
            result(f"{part}.{name}", digest(self.model.get_parameter(name)))


def train(part, dtype, wrap=lambda model: model):
    began = time.perf_counter()
    training = Training(dtype, wrap)
    losses = [training.step().detach()]
    torch.cuda.synchronize()
    print(f"time {part}_first_step {time.perf_counter() - began:.4f}")
    losses += [training.step().detach() for _ in range(4)]
    training.results(part, losses)


def compiled(part, dtype):
    working_triton()
    train(part, dtype, lambda model: torch.compile(model, dynamic=False))


def graph(part):
    """The whole step in a graph, replayed."""
    training, side, g = Training(torch.float32, capturable=True), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            training.step()
    torch.cuda.current_stream().wait_stream(side)
    training.optimiser.zero_grad(set_to_none=True)
    with torch.cuda.graph(g):
        loss = training.step()
    losses = []
    for _ in range(5):
        g.replay()
        losses.append(loss.detach().clone())
    training.results(part, losses)


# ---- streams and threads ----

def chain(stream, x, w):
    """A little network, forwards and backwards, on a stream."""
    with torch.cuda.stream(stream):
        w = w.detach().requires_grad_()
        y = x
        for _ in range(20):
            y = F.layer_norm((y @ w).relu() + x, (w.shape[0],))
        return y.detach(), torch.autograd.grad(y.square().mean(), w)[0]


def on_streams(part, run):
    inputs = [(torch.cuda.Stream(), random(256, 256), random(256, 256) / 16) for _ in range(4)]
    torch.cuda.synchronize()
    outputs = run(inputs)
    torch.cuda.synchronize()
    for i, (y, gradient) in enumerate(outputs):
        result(f"{part}.output_{i}", digest(y))
        result(f"{part}.gradient_{i}", digest(gradient))


def streams(part):
    """One thread that goes from stream to stream."""
    on_streams(part, lambda inputs: [chain(*i) for _ in range(5) for i in inputs][-4:])


def threads(part):
    """Four threads at once, each with a stream of its own."""
    def run(inputs):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda i: [chain(*i) for _ in range(5)][-1], inputs))

    on_streams(part, run)


# ----

PARTS = {
    "cublas": cublas,
    "epilogue": epilogue,
    "solvers": solvers,
    "triton_softmax": triton_softmax,
    "triton_matmul": triton_matmul,
    "triton_attention": triton_attention,
    "streams": streams,
    "threads": threads,
    "train_fp32": lambda part: train(part, torch.float32),
    "train_bf16": lambda part: train(part, torch.bfloat16),
    "graph": graph,
    "compiled_fp32": lambda part: compiled(part, torch.float32),
    "compiled_bf16": lambda part: compiled(part, torch.bfloat16),
}


def one_line(e):
    return " ".join(str(e).split())[:300]


def do(part):
    torch.manual_seed(1)
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    try:
        PARTS[part](part)
        torch.cuda.synchronize()
        print(f"part {part} {began} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}", flush=True)
    except Skip as e:
        print(f"skip {part} {one_line(e)}", flush=True)
    except Exception as e:  # the others are still to be tried
        print(f"failed {part} {type(e).__name__}: {one_line(e)}", flush=True)


def main():
    if len(sys.argv) < 2 or not set(sys.argv[1:]) <= set(PARTS):
        sys.exit(f"usage: workloads.py PART... of {', '.join(PARTS)}")
    warnings.filterwarnings("ignore", message=".*deterministic.*")
    torch.use_deterministic_algorithms(True, warn_only=True)
    print(f"pid {os.getpid()}\ntime import {torch_workload.T_IMPORT:.4f}", flush=True)
    for part in sys.argv[1:]:
        do(part)


if __name__ == "__main__":
    main()
