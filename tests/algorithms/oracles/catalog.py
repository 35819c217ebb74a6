"""The shipped algorithms with their oracles: same codecs, same parameters as in algorithms/*.mlir."""

from dataclasses import dataclass, field
from typing import Callable

from . import adam, decentralized, gradients, local_steps
from .codecs import MinMax


@dataclass
class Algorithm:
    make: Callable  # (weights, **parameters) → Job
    block: int = 1  # of its codec: lengths around it are tried
    parameters: dict = field(default_factory=dict)  # not the defaults: 20 steps must reach all branches
    owns_update: bool = False
    replicas_equal: bool = False  # weights of all ranks are the same after each step
    keeps_average: bool = False  # only the gradients move the average of the weights


def with_codec(job, codec, **options):
    return Algorithm(lambda w, **named: job(w, codec=codec, **named), codec.block, **options)


MINMAX8 = MinMax(8, 2048)
MINMAX4 = MinMax(4, 512)
ADAM = dict(owns_update=True, replicas_equal=True, parameters=dict(warmup=7, weight_decay=0.05, lr=0.01))

ALGORITHMS = {
    "gradient_allreduce": Algorithm(gradients.GradientAllReduce, replicas_equal=True),
    "bytegrad": with_codec(gradients.CompressedAllReduce, MINMAX8, replicas_equal=True),
    "qadam": with_codec(adam.QAdam, MINMAX8, **ADAM),
    "one_step_late": Algorithm(gradients.OneStepLate, replicas_equal=True),
    "decentralized": Algorithm(decentralized.Mixing, keeps_average=True),
    "decentralized_all": Algorithm(decentralized.DecentralizedAll, parameters=dict(interval=3)),
    "decentralized_shift_one": Algorithm(
        decentralized.DecentralizedShiftOne, parameters=dict(interval=2), keeps_average=True
    ),
    "one_peer_exponential": Algorithm(decentralized.OnePeer, keeps_average=True),
    "low_precision_decentralized": with_codec(decentralized.DcdPsgd, MINMAX8),
    "deepsqueeze": with_codec(decentralized.DeepSqueeze, MINMAX4, keeps_average=True),
    "d2": Algorithm(decentralized.D2, keeps_average=True),
    "sgp": Algorithm(decentralized.Sgp, keeps_average=True),
    "local_sgd": Algorithm(local_steps.LocalSgd, parameters=dict(interval=4)),
    "post_local_sgd": Algorithm(local_steps.PostLocalSgd, parameters=dict(interval=4, warmup=6)),
    "slowmo": Algorithm(local_steps.SlowMo, parameters=dict(interval=4)),
    "diloco": Algorithm(local_steps.DiLoCo, parameters=dict(interval=5)),
}
