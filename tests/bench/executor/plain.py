"""A Llama-like model as one would write it in PyTorch: what scripts/bench-executor measures the executor against.

    plain.py PLAN.json STEPS PORT OUT.json

One process per data-parallel rank, with DistributedDataParallel over Gloo; gradients accumulate over the micro-batches and
are reduced with the last one; global norm clipped to 1; AdamW with the executor's constants. The same threads of BLAS and the
same scheduler as a rank of foretrain-run. Writes the seconds of each step, of the slowest rank. FullyShardedDataParallel of
this generation does not run on processors, so sharded layouts have no counterpart here.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Layer(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.heads, self.kv, self.width = m["heads"], m["kv_heads"], m["head_dim"]
        hidden, ffn = m["hidden"], m["ffn"]
        self.norm1, self.norm2 = Norm(hidden), Norm(hidden)
        self.qkv = nn.Linear(hidden, (self.heads + 2 * self.kv) * self.width, bias=False)
        self.out = nn.Linear(self.heads * self.width, hidden, bias=False)
        self.up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, turns, mask):
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, -1, self.width).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv, self.kv], dim=1)
        q, k = turned(q, turns), turned(k, turns)
        k = k.repeat_interleave(self.heads // self.kv, dim=1)
        v = v.repeat_interleave(self.heads // self.kv, dim=1)
        scores = q @ k.transpose(-1, -2) / self.width**0.5 + mask
        attended = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.out(attended)
        gate, up = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def turned(heads, turns):
    a, b = heads.chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Model(nn.Module):
    def __init__(self, m, length):
        super().__init__()
        self.embedding = nn.Embedding(m["vocab"], m["hidden"])
        self.layers = nn.ModuleList(Layer(m) for _ in range(m["layers"]))
        self.norm = Norm(m["hidden"])
        self.head = nn.Linear(m["hidden"], m["vocab"], bias=False)
        half = m["head_dim"] // 2
        angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1), persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, (self.cos, self.sin), self.mask)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def run(rank, plan, steps, port, out):
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    job, layout = plan["job"], plan["layout"]
    world = layout.get("dp_shard", 1)
    model = Model(plan["model"], job["sequence_length"])
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    micro_batch = layout.get("micro_batch", 1)
    count = job["global_batch"] // (micro_batch * world)
    shape = (micro_batch, job["sequence_length"])
    times = []
    for _ in range(steps):
        began = time.monotonic()
        for index in range(count):
            tokens = torch.randint(plan["model"]["vocab"], shape)
            targets = torch.randint(plan["model"]["vocab"], shape)
            waits = world > 1 and index + 1 < count
            with model.no_sync() if waits else torch.enable_grad():
                (model(tokens, targets) / count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        times.append(time.monotonic() - began)
    slowest = torch.tensor(times, dtype=torch.float64)
    if world > 1:
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        with open(out, "w") as file:
            json.dump(slowest.tolist(), file)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    arguments = (plan, int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    world = plan["layout"].get("dp_shard", 1)
    if world == 1:
        run(0, *arguments)
    else:
        mp.spawn(run, args=arguments, nprocs=world)
