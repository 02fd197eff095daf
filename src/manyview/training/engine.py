"""How a run uses this machine: one process, or those that torchrun has started. The only user of Lightning Fabric."""

from __future__ import annotations

import logging
import os
import warnings
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from manyview import encoders
from manyview.config.component import component
from manyview.config.config import Config
from manyview.core.distributed import wait_at_most
from manyview.core.errors import UserError
from manyview.encoders import Towers
from manyview.encoders.layers import batch_norms
from manyview.methods import BatchOutputs, Method
from manyview.training import build
from manyview.training.layer_decay import decay_by_layer
from manyview.training.optimizers import keep_lr, set_decay, set_lr
from manyview.training.step import Engine, MakeViews, StepOutput, micro_batches, whole_batch

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}  # and fp64 is `Double`


class Double(DoublePrecision):
    """Fabric's double precision, except that a network's outputs stay double, and so does the loss."""

    def convert_output(self, data: Any) -> Any:
        return data


class Ddp(DDPStrategy):
    """DistributedDataParallel that searches for parameters without a gradient only where a method leaves some out."""

    def setup_module(self, module: nn.Module) -> DistributedDataParallel:
        if isinstance(module, Method):
            self._ddp_kwargs["find_unused_parameters"] = module.towers.leaves_out(module.slots)
        return super().setup_module(module)


def start_fabric(config: Config) -> Fabric:
    """Starts Fabric for one process, or for those that torchrun has started."""
    world, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if world > 1 and not TorchElasticEnvironment.detect():
        raise UserError("WORLD_SIZE", f"is {world}, and torchrun has not started this process; use it, or unset this")
    device = build.device(config)
    for name in ("lightning.fabric", "lightning_fabric"):  # they would tell of every start
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*broadcast_buffers.*")  # the new name is not in older versions of torch
    # batch norm does not use running statistics in training, and the towers average those that count: no broadcast
    wait = timedelta(minutes=config.wait_minutes)
    wait_at_most(wait)
    strategy = Ddp(broadcast_buffers=False, timeout=wait) if world > 1 else "auto"
    # named, since Fabric would else take what a cluster has reserved for what was started
    started = TorchElasticEnvironment() if TorchElasticEnvironment.detect() else LightningEnvironment()
    plugins: list[Any] = [started, Double()] if config.precision == "fp64" else [started]
    fabric = Fabric(
        accelerator=device, devices=here, num_nodes=max(1, world // here), strategy=strategy, plugins=plugins,
        precision=PRECISIONS.get(config.precision),  # type: ignore[arg-type]
    )  # fmt: skip
    fabric.launch()
    return fabric


def has_groups(towers: Towers) -> bool:
    """Tells whether batch norm is over groups of the batch, between which keys are shuffled, not over all processes."""
    return towers.bn_splits > 1 or towers.shuffles


def groups_are_processes(towers: Towers, device: torch.device) -> bool:
    """Tells whether batch norm is over the images of each process, so that the number of processes matters."""
    over_all = device.type == "cuda" and not has_groups(towers)
    return towers.bn_splits == 1 and not over_all and bool(batch_norms(towers))


class Trainer:
    """A method with its optimiser, ready to step."""

    def __init__(self, fabric: Fabric, config: Config, method: Method) -> None:
        if fabric.world_size > 1 and fabric.device.type == "cuda" and not has_groups(method.towers):
            encoders.sync_batch_norm(method.towers)
        method.to(memory_format=torch.channels_last)
        encoders.dense_convolutions(method)
        self.fabric, self.config, self.method = fabric, config, method
        self.optimizer = component(config, "optimizer")(method.towers)
        if (decay := config.optimizer["layer_decay"]) is not None:
            for encoder in method.towers.encoders.values():
                decay_by_layer(self.optimizer, encoder.network, decay)
        if config.schedule.get("keep_predictor"):
            keep_lr(self.optimizer, method.towers.predictor)
        self._module, self._stepper = fabric.setup(method, self.optimizer)
        unsynced = partial(fabric.no_backward_sync, self._module)
        self._engine = Engine(method, self._module, fabric.backward, unsynced)

    def gradient(self, views: MakeViews, batch: BatchOutputs) -> StepOutput:
        """Computes the step's gradient in the parameters."""
        size = self.config.micro_batch
        if size and size < max([len(batch.ids), *batch.counts]):  # all processes do the same
            return micro_batches(self._engine, views, batch, size=size)
        return whole_batch(self._engine, views, batch)

    def step(self, lr: float, number: int, *, measure: bool, done: float = 0.0) -> Tensor | None:
        """Clips the gradient and updates the parameters; returns the gradient's norm if `measure` asks for it.

        number  of the step, in which some parameters may be frozen
        done    the share of the run that is done, on which the weight decay may depend
        """
        self.method.towers.hold(number)
        set_lr(self.optimizer, lr)
        set_decay(self.optimizer, done)
        norm = None
        if self.config.grad_clip is not None or measure:
            most = self.config.grad_clip or float("inf")
            norm = self.fabric.clip_gradients(self._module, self._stepper, max_norm=most, error_if_nonfinite=False)
        self._stepper.step()
        self._stepper.zero_grad()
        return norm

    def state_dict(self) -> dict[str, Any]:
        return {
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
