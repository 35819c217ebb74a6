"""The shipped algorithms with their oracles: same codecs, same parameters as in algorithms/*.mlir."""

from dataclasses import dataclass, field
from typing import Callable

from . import adam, asynchronous, decentralized, gradients, hierarchical, local_steps
from .codecs import AbsMax, MinMax, Qsgd, RandK, Range, Sign, Ternary, TopK


@dataclass
class Algorithm:
    make: Callable  # (weights, **parameters) → Job
    block: int = 1  # of its codec: lengths around it are tried
    parameters: dict = field(default_factory=dict)  # not the defaults: 20 steps must reach all branches
    owns_update: bool = False
    replicas_equal: bool = False  # weights of all ranks are the same after each step
    counts_nodes: bool = False  # takes the number of nodes as a parameter
    keeps_average: bool = False  # only the gradients move the average of the weights
    asynchronous: bool = False  # weights move between steps too


def with_codec(job, codec, **options):
    return Algorithm(lambda w, **named: job(w, codec=codec, **named), codec.block, **options)


MINMAX8, MINMAX4 = MinMax(8, 2048), MinMax(4, 512)
SIGN, TOPK = Sign(256), TopK(64, 4096)
ADAM = dict(owns_update=True, replicas_equal=True, parameters=dict(warmup=7, weight_decay=0.05, lr=0.01))
EQUAL = dict(replicas_equal=True)
SEED = dict(parameters=dict(seed=5))
NODES = dict(counts_nodes=True, replicas_equal=True)

ALGORITHMS = {
    "gradient_allreduce": Algorithm(gradients.GradientAllReduce, **EQUAL),
    "bytegrad": with_codec(gradients.CompressedAllReduce, MINMAX8, **EQUAL),
    "hierarchical_allreduce": Algorithm(hierarchical.Hierarchical, **NODES),
    "hierarchical_bytegrad": with_codec(hierarchical.Hierarchical, MINMAX8, **NODES),
    "hierarchical_decentralized": Algorithm(hierarchical.Decentralized, counts_nodes=True, keeps_average=True),
    "qsgd": with_codec(gradients.CompressedAllReduce, Qsgd(7, 512, "l2"), **EQUAL, **SEED),
    "terngrad": with_codec(gradients.GatheredMean, Ternary(512), **EQUAL, **SEED),
    "random_k": with_codec(gradients.GatheredMean, RandK(512, 4096, True), **EQUAL, **SEED),
    "signsgd_majority": with_codec(gradients.SignMajority, SIGN, **EQUAL),
    "ef_signsgd": with_codec(gradients.Memory, SIGN, **EQUAL),
    "topk_memory": with_codec(gradients.Memory, TOPK, **EQUAL),
    "doublesqueeze": with_codec(gradients.DoubleSqueeze, SIGN, **EQUAL),
    "ef21": with_codec(gradients.Ef21, TopK(256, 4096), **EQUAL),
    "one_step_late": Algorithm(gradients.OneStepLate, **EQUAL),
    "qadam": with_codec(adam.QAdam, MINMAX8, **ADAM),
    "onebit_adam": with_codec(adam.OneBitAdam, SIGN, **ADAM),
    "decentralized": Algorithm(decentralized.Mixing, keeps_average=True),
    "decentralized_all": Algorithm(decentralized.DecentralizedAll, parameters=dict(interval=3)),
    "decentralized_shift_one": Algorithm(
        decentralized.DecentralizedShiftOne, parameters=dict(interval=2), keeps_average=True
    ),
    "one_peer_exponential": Algorithm(decentralized.OnePeer, keeps_average=True),
    "low_precision_decentralized": with_codec(decentralized.DcdPsgd, MINMAX8),
    "dcd_psgd": with_codec(decentralized.DcdPsgd, Qsgd(7, 512, "max"), **SEED),
    "choco_sgd": with_codec(decentralized.ChocoSgd, SIGN, keeps_average=True),
    "deepsqueeze": with_codec(decentralized.DeepSqueeze, MINMAX4, keeps_average=True),
    "d2": Algorithm(decentralized.D2, keeps_average=True),
    "sgp": Algorithm(decentralized.Sgp, keeps_average=True),
    "local_sgd": Algorithm(local_steps.LocalSgd, parameters=dict(interval=4)),
    "post_local_sgd": Algorithm(local_steps.PostLocalSgd, parameters=dict(interval=4, warmup=6)),
    "qsparse_local_sgd": with_codec(
        local_steps.QsparseLocalSgd, TOPK, parameters=dict(interval=4)
    ),
    "slowmo": Algorithm(local_steps.SlowMo, parameters=dict(interval=4)),
    "diloco": Algorithm(local_steps.DiLoCo, parameters=dict(interval=5)),
    "async_model_average": Algorithm(
        asynchronous.AsyncModelAverage, parameters=dict(warmup_steps=6), keeps_average=True, asynchronous=True
    ),
    "ad_psgd": Algorithm(asynchronous.AdPsgd, keeps_average=True, asynchronous=True),
}

# Of tests/algorithms/Inputs: the codecs are written in the files.
USER_CODECS = {
    "absmax4": with_codec(gradients.CompressedAllReduce, AbsMax(4, 512), **EQUAL),
    "range6_memory": with_codec(gradients.Memory, Range(6, 64), **EQUAL),
}
