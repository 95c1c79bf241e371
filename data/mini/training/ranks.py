"""The processes of one training run, one to a GPU; a run without a launcher is a group of one.

`python -m torch.distributed.run --nproc-per-node N -m data.mini.training train ...` starts several.
"""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Ranks:
    """This process's place among `count`, and its device."""

    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, value: float) -> float:
        """The first process's value, in all of them. Waits for the device."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return float(shared.item())

    def gather(self, values: Tensor) -> Tensor:
        """(N,) of every process as (count, N)."""
        if self.count == 1:
            return values[None]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        dist.all_gather(parts, values)
        return torch.stack(parts)

    def average(self, values: Tensor) -> None:
        """The mean over the processes, in place."""
        if self.count > 1:
            dist.all_reduce(values, dist.ReduceOp.AVG if values.is_cuda else dist.ReduceOp.SUM)
            if not values.is_cuda:
                values /= self.count

    def wait(self) -> None:
        if self.count > 1:
            dist.barrier()

    def close(self) -> None:
        if self.count > 1:
            dist.destroy_process_group()


def join_ranks(device: str) -> Ranks:
    """Reads the launcher's environment and joins the others; alone where there is none."""
    rank, count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if device != "cuda":
        here = torch.device(device)
    else:
        here = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(here)
    if count > 1:
        on_gpu = here.type == "cuda"
        dist.init_process_group("nccl" if on_gpu else "gloo", device_id=here if on_gpu else None)
    return Ranks(rank, count, here)


class FlatGradients:
    """All gradients in one tensor, so that they are averaged, clipped and cleared at once."""

    def __init__(self, model: nn.Module) -> None:
        parameters = [each for each in model.parameters() if each.requires_grad]
        sizes = [each.numel() for each in parameters]
        self.values = torch.zeros(sum(sizes), device=parameters[0].device)
        for parameter, part in zip(parameters, self.values.split(sizes), strict=True):
            # In the parameter's own memory order, which is channels last in SAM's neck.
            parameter.grad = part.as_strided(parameter.shape, parameter.stride())

    def clip(self, largest: float) -> Tensor:
        """Scales down to a norm of `largest` where it is above; returns the norm before."""
        norm = self.values.norm()
        self.values *= (largest / (norm + 1e-6)).clamp(max=1.0)
        return norm

    def clear(self) -> None:
        self.values.zero_()
