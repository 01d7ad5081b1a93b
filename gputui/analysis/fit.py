"""Whether a training step fits: the memory of its parts, and the most that is held at one instant.

Every byte follows from the step of `gputui.worker.models`: pre-norm blocks, fused attention (no matrix of
context x context is kept), cross entropy over all tokens, gradients released before each step and an
optimizer that needs no temporaries (`fused=True`). Comments say why each tensor is kept. For comparison:
Korthikanti et al. 2022, arXiv 2205.05198, equation 2, counts 34 bytes per token and width for 16-bit numbers,
2 of them dropout masks; here there is no dropout, and the same sum is 32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from gputui.model.absent import Missing

GIB = 2**30
STATES_PER_WEIGHT: dict[str, int] = {
    "sgd": 0,
    "momentum": 1,
    "rmsprop": 1,
    "adagrad": 1,
    "adam": 2,
    "adamw": 2,
}
"""Numbers that torch.optim keeps per weight; the step counts, 4 bytes per tensor, are left out."""
OVERHEAD_BYTES = (3 * GIB // 10, GIB)
"""Least and most GPU memory that a process uses besides its tensors: driver context, kernels, workspaces.
An estimate from common practice, not measured."""
FRAGMENTED = 0.05
"""Share by which the caching allocator may hold more than is allocated, at the upper end. An estimate."""
MOST_GPUS = 1024
MOST_BATCH = 2**20


@dataclass(frozen=True, slots=True)
class PrecisionBytes:
    """Bytes of one number, by its purpose."""

    name: str
    title: str
    weight: int
    gradient: int
    state: int
    """Of each number that an optimizer keeps per weight."""
    master: int
    """Of the copy of the weights that an optimizer updates; 0 if it updates the weights themselves."""
    stream: int
    """Of the residual stream."""
    product: int
    """Of inputs and outputs of products and attention."""
    scores: int
    """Of the log-probabilities kept for the backward pass of the loss."""
    copies: int
    """Of each weight's copy that autocast makes and the backward pass keeps."""


PRECISIONS: dict[str, PrecisionBytes] = {
    p.name: p
    for p in (
        PrecisionBytes("fp32", "all in fp32", 4, 4, 4, 0, 4, 4, 4, 0),
        PrecisionBytes("tf32", "fp32 numbers, products in TF32", 4, 4, 4, 0, 4, 4, 4, 0),
        PrecisionBytes("amp", "torch.autocast: fp32 weights, 16-bit products", 4, 4, 4, 0, 4, 2, 4, 2),
        PrecisionBytes("bf16", "all in bf16, optimizer state too", 2, 2, 2, 0, 2, 2, 2, 0),
        PrecisionBytes(
            "mixed", "16-bit weights and gradients, fp32 master copy and state", 2, 2, 4, 4, 2, 2, 4, 0
        ),
    )
}
"""`mixed` is the textbook's: 2 + 2 + 12 bytes per weight with Adam (ZeRO, arXiv 1910.02054, section 3.1)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A stack of transformer blocks between an embedding and a head."""

    name: str
    """Of a published model; empty if the shape was stated."""
    layers: int
    width: int
    heads: int
    kv_heads: int
    """Heads of keys and values; `heads` without grouped queries, 1 with one for all (arXiv 1911.02150)."""
    head_dim: int
    hidden: int
    """Width of the MLP."""
    vocabulary: int
    context: int
    """Tokens of a usual training sequence, or the most that it was trained for."""
    gated: bool = True
    """True: LLaMA's block, with a gated MLP, rotary positions and no biases. False: GPT-2's."""
    tied: bool = False
    """True: the head is the embedding."""
    source: str = ""
    experts: int = 0
    """MLPs of a layer of which a router chooses; 0 if there is one MLP for all tokens."""
    active_experts: int = 0
    """Of them, for each token."""
    expert_hidden: int = 0
    shared_hidden: int = 0
    """Width of what all tokens pass beside the experts that were chosen."""
    dense_layers: int = 0
    """Layers with one MLP, of width `hidden`, although others have experts."""
    latent: int = 0
    """Numbers that are cached of a token and layer in place of keys and values (MLA, arXiv 2405.04434)."""
    rotary: int = 0
    """Of `latent` and of `head_dim`, those that carry the position."""
    query_rank: int = 0
    """Width to which queries are compressed; 0 if they are not."""
    value_dim: int = 0
    """Size of a head of values where it is not `head_dim`."""
    window: int = 0
    """Tokens that `window_layers` look back on; 0 without."""
    window_layers: int = 0
    linear_layers: int = 0
    """Layers with linear attention, which keep `state` numbers of a sequence however long it is."""
    state: int = 0
    linear_in: int = 0
    """Outputs of the first product of linear attention."""
    linear_out: int = 0
    """Inputs of its last."""
    gated_queries: bool = False
    """True: the product that gives queries also gives as many gates."""
    weight_format: str = ""
    """In which the weights are published; empty for 16 bits."""

    @property
    def attention(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each product of attention in a layer: q, k, v, the projection."""
        queries = self.heads * self.head_dim * (2 if self.gated_queries else 1)
        values = self.heads * (self.value_dim or self.head_dim)
        if self.latent:
            rank, keys = self.latent - self.rotary, self.heads * (self.head_dim - self.rotary)
            asked = ((self.width, self.query_rank), (self.query_rank, queries))
            return (
                *(asked if self.query_rank else ((self.width, queries),)),
                (self.width, self.latent),
                (rank, keys + values),
                (values, self.width),
            )
        cached = self.kv_heads * self.head_dim
        return (self.width, queries), (self.width, cached), (self.width, cached), (values, self.width)

    def mlp(self, hidden: int) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of each product of an MLP, down last."""
        return ((self.width, hidden),) * (2 if self.gated else 1) + ((hidden, self.width),)

    @property
    def expert_layers(self) -> int:
        """Layers with a router and experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """How many there are of a product in all layers, but for experts, its inputs and its outputs."""
        linear, full, routed = self.linear_layers, self.layers - self.linear_layers, self.expert_layers
        linear_products = ((self.width, self.linear_in), (self.linear_out, self.width))
        return (
            *((full, *product) for product in self.attention),
            *((linear, *product) for product in linear_products),
            *((self.layers - routed, *product) for product in self.mlp(self.hidden)),
            *((routed, *product) for product in self.mlp(self.shared_hidden)),
        )

    @property
    def expert_matrices(self) -> tuple[tuple[int, int, int], ...]:
        """The same of experts."""
        count = self.expert_layers * self.experts
        return tuple((count, *product) for product in self.mlp(self.expert_hidden))

    @property
    def expert_weights(self) -> int:
        return sum(count * inputs * outputs for count, inputs, outputs in self.expert_matrices)

    @property
    def active_hidden(self) -> int:
        """Width of all MLPs of a layer that a token passes."""
        routed = self.active_experts * self.expert_hidden + self.shared_hidden
        return max(routed, self.hidden if self.dense_layers else 0) if self.experts else self.hidden

    @property
    def block_weights(self) -> int:
        return self.expert_weights + sum(count * inputs * outputs for count, inputs, outputs in self.matrices)

    @property
    def end_weights(self) -> int:
        return self.vocabulary * self.width * (1 if self.tied else 2)

    @property
    def small_weights(self) -> int:
        """Weights of norms, two per block and the last, and of routers.

        GPT-2's blocks also have biases and positions.
        """
        if self.gated:
            return (2 * self.layers + 1 + self.expert_layers * self.experts) * self.width
        return self.layers * (9 * self.width + self.hidden) + (self.context + 2) * self.width

    @property
    def parameters(self) -> int:
        """All weights; biases and norms that few models have are left out."""
        return self.block_weights + self.end_weights + self.small_weights

    @property
    def active_parameters(self) -> int:
        """Weights that one token is multiplied with: those of its experts only, and no embedding."""
        embedding = 0 if self.tied else self.vocabulary * self.width
        idle = self.experts - self.active_experts
        return self.parameters - embedding - self.expert_weights * idle // max(self.experts, 1)

    def scales(self, group: int | None, of_experts_only: bool = False) -> int:
        """Groups of weights of one output that share a scale, in all blocks; of None, one each."""
        products = self.expert_matrices if of_experts_only else self.matrices + self.expert_matrices
        return sum(
            count * outputs * math.ceil(inputs / (group or inputs or 1))
            for count, inputs, outputs in products
        )

    def copied_weights(self, gpus: int) -> int:
        """Weights that tensor parallelism cannot split, once for each GPU beyond the first that has them."""
        if self.latent:
            return (gpus - 1) * self.layers * self.width * (self.query_rank + self.latent)
        more_heads = gpus * math.ceil(self.kv_heads / gpus) - self.kv_heads
        return 2 * (self.layers - self.linear_layers) * self.width * self.head_dim * more_heads


@dataclass(frozen=True, slots=True)
class Training:
    params: int
    optimizer: str
    """One of STATES_PER_WEIGHT."""
    precision: PrecisionBytes
    blocks: Shape
    batch: int
    """Sequences per GPU and optimizer step."""
    context: int


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes on a GPU by purpose."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    """Kept by the forward pass for the backward pass, except the next two."""
    copies: int = 0
    """16-bit copies of the weights that autocast makes."""
    loss: int = 0
    """Scores of every token for every word of the vocabulary."""
    temporary: int = 0
    """Lives within one operation of the backward pass."""
    cache: int = 0
    """Keys and values of a model that is served."""

    @property
    def total(self) -> int:
        return self.cache + int(sum(getattr(self, name) for name in PART_TITLES))


PART_TITLES: dict[str, str] = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "copies": "autocast copies",
    "loss": "logits and loss",
    "temporary": "temporaries",
}


@dataclass(frozen=True, slots=True)
class Tricks:
    """What is done to need less memory on one GPU."""

    checkpoint: bool = False
    """Keep only each block's input and recompute the rest."""
    offload: bool = False
    """Keep what the backward pass needs in host memory."""
    pieces: int = 1
    """Split the batch into this many pieces and sum their gradients."""
    gpus: int = 1
    """Shard weights, gradients and optimizer state over this many (FSDP, ZeRO stage 3)."""


NO_TRICK = Tricks()


@dataclass(frozen=True, slots=True)
class Peak:
    """The instant of a step at which most memory is held."""

    moment: str
    parts: Parts


def state_bytes(params: int, optimizer: str, precision: PrecisionBytes) -> Parts:
    """Weights, gradients and optimizer state, exactly: they depend on nothing else."""
    per_weight = STATES_PER_WEIGHT[optimizer] * precision.state + precision.master
    return Parts(
        weights=params * precision.weight,
        gradients=params * precision.gradient,
        optimizer=params * per_weight,
    )


def layer_bytes_per_token(blocks: Shape, precision: PrecisionBytes) -> int:
    """What the forward pass of one block keeps of each token for the backward pass.

    GPT: both inputs of the norms (2 d in the type of the stream); both norms' outputs, q, k, v and what
    attention gives (6 d), the MLP before and after its non-linearity (2 h), in the type of products; mean
    and deviation of two norms and one sum per head, in fp32. In fp32 with h = 4 d: 64 d + 16 + 4 heads.
    A gated block keeps q and k also before they are turned (2 d), and four tensors of its MLP; its heads may
    be wider together than d. Grouped keys and values count as if each head had its own.
    """
    attention = 6 * blocks.heads * blocks.head_dim
    kept = 2 * blocks.width + attention + 4 * blocks.active_hidden
    if not blocks.gated:
        kept = 6 * blocks.width + 2 * blocks.hidden
    return 2 * blocks.width * precision.stream + kept * precision.product + 16 + 4 * blocks.heads


def activation_parts(training: Training) -> Parts:
    """What the forward pass leaves for the backward pass, at its end: activations, copies and loss."""
    blocks, precision = training.blocks, training.precision
    tokens = training.batch * training.context
    kept = tokens * (blocks.layers * layer_bytes_per_token(blocks, precision) + _ends_per_token(training))
    embedding = 0 if blocks.tied else blocks.vocabulary * blocks.width
    not_copied = blocks.small_weights + embedding  # autocast copies the weights of products only
    return Parts(
        activations=kept,
        copies=max(training.params - not_copied, 0) * precision.copies,
        loss=tokens * blocks.vocabulary * precision.scores,
    )


def all_at_once(training: Training) -> Parts:
    """Every part in full, as textbooks add them up; a step never holds them all at one instant."""
    kept = activation_parts(training)
    state = state_bytes(training.params, training.optimizer, training.precision)
    return replace(state, activations=kept.activations, copies=kept.copies, loss=kept.loss)


@lru_cache(maxsize=4096)  # searches for GPUs of other sizes ask for the same batches
def peak_of(training: Training, tricks: Tricks = NO_TRICK) -> Peak:
    """The most that a step holds on one GPU at one instant, in bytes, without the process's overhead."""
    return max(_moments(training, tricks), key=lambda peak: peak.parts.total)


def needed_bytes(training: Training, tricks: Tricks = NO_TRICK) -> tuple[int, int]:
    """Memory a GPU must have, from the estimated minimum to an amount that surely suffices."""
    peak_bytes = peak_of(training, tricks).parts.total
    low, high = OVERHEAD_BYTES
    return peak_bytes + low, round(peak_bytes * (1 + FRAGMENTED)) + high


def largest_batch(training: Training, memory_bytes: int, tricks: Tricks = NO_TRICK) -> int:
    """The largest batch that surely fits; 0 if not even one sequence does; at most MOST_BATCH."""

    def fits(batch: int) -> bool:
        return needed_bytes(replace(training, batch=batch), tricks)[1] <= memory_bytes

    return greatest(fits, MOST_BATCH)


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a training, or a model that is served, fits into one size of memory."""

    word: str
    """`fits`, `tight` (only if overhead is low), `with tricks`, `several GPUs`, `does not fit`."""
    gpus: int
    """Over which it is spread; of a served model no fewer than stated."""
    tricks: Tricks
    """The least of them with which it surely fits; of a served model only more GPUs than stated."""
    needed_bytes: tuple[int, int]
    """With these, on each GPU, least and most."""
    largest_batch: int
    """Of a training without a trick, of a served model on these GPUs; 0 if not one sequence fits."""
    largest_batch_checkpoint: int | Missing
    """Of a training, with checkpointing."""
    longest_context: int | Missing
    """Of a served model, by memory alone; 0 where not even one token fits. Missing of a training."""


def fit(training: Training, memory_bytes: int) -> Fit:
    """Try it as it is, then with each technique in order of its cost in time, then on several GPUs."""
    low, high = needed_bytes(training)

    def found(word: str, tricks: Tricks) -> Fit:
        return Fit(
            word,
            tricks.gpus,
            tricks,
            needed_bytes(training, tricks),
            largest_batch(training, memory_bytes),
            largest_batch(training, memory_bytes, Tricks(checkpoint=True)),
            Missing("a training has the context that it has"),
        )

    if high <= memory_bytes:
        return found("fits", NO_TRICK)
    for tricks in _in_order_of_cost(training, memory_bytes):
        if needed_bytes(training, tricks)[1] <= memory_bytes:
            return found("tight" if low <= memory_bytes else "with tricks", tricks)
    if low <= memory_bytes:
        return found("tight", NO_TRICK)
    spread = [
        replace(tricks, gpus=gpus)
        for checkpoint in (False, True)
        for pieces in (1, training.batch)
        for tricks in (Tricks(checkpoint, pieces=pieces),)
        if (gpus := _fewest_gpus(training, tricks, memory_bytes)) is not None
    ]
    if spread:
        return found("several GPUs", min(spread, key=lambda tricks: tricks.gpus))
    return found("does not fit", NO_TRICK)


def _in_order_of_cost(training: Training, memory_bytes: int) -> Iterator[Tricks]:
    """Splitting the batch costs least; recomputing about a third; offloading to the host most."""
    for kind in (NO_TRICK, Tricks(checkpoint=True), Tricks(offload=True)):
        yield kind
        fewest = _fewest_pieces(training, kind, memory_bytes)
        if fewest is not None:
            yield replace(kind, pieces=fewest)


def _fewest_pieces(training: Training, kind: Tricks, memory_bytes: int) -> int | None:
    def fits(piece: int) -> bool:
        pieces = math.ceil(training.batch / piece)
        return needed_bytes(training, replace(kind, pieces=max(pieces, 2)))[1] <= memory_bytes

    piece = greatest(fits, max(training.batch // 2, 1)) if training.batch > 1 else 0
    return math.ceil(training.batch / piece) if piece else None


def _fewest_gpus(training: Training, tricks: Tricks, memory_bytes: int) -> int | None:
    def lacks(gpus: int) -> bool:
        return needed_bytes(training, replace(tricks, gpus=gpus))[1] > memory_bytes

    if lacks(MOST_GPUS):
        return None
    return max(greatest(lacks, MOST_GPUS) + 1, 2)


def greatest(holds: Callable[[int], bool], most: int) -> int:
    """The largest of 1..most for which it holds, as it does for all smaller ones; else 0."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _ends_per_token(training: Training) -> int:
    """The last norm's input, output and statistics, and the token itself."""
    precision, width = training.precision, training.blocks.width
    return width * (precision.stream + precision.product) + 8 + 8


def _moments(training: Training, tricks: Tricks) -> Iterator[Peak]:
    """The instants of a step at which most memory may be held.

    Gradients grow block by block while activations shrink block by block, each at a steady rate, so the peak
    is at the first or the last block of the backward pass, or at the loss, or at the optimizer.
    """
    blocks, precision = training.blocks, training.precision
    training = replace(training, batch=math.ceil(training.batch / tricks.pieces))
    state = state_bytes(training.params, training.optimizer, precision)
    whole = activation_parts(training)
    gpus = tricks.gpus
    layers = blocks.layers
    unit = max(training.params - blocks.end_weights, 0) // layers
    head = blocks.vocabulary * blocks.width
    gathered = lent = 0
    if (
        gpus > 1
    ):  # two units are gathered at a time, one in use and the next in transit; and the gradients of one
        gathered = 2 * max(unit, head) * (precision.copies or precision.weight)
        lent = max(unit, head) * precision.gradient
        whole = replace(whole, copies=0)
    fixed = Parts(
        weights=math.ceil(state.weights / gpus) + gathered, optimizer=math.ceil(state.optimizer / gpus)
    )
    gradients = math.ceil(state.gradients / gpus)
    before = gradients if tricks.pieces > 1 else 0

    tokens = training.batch * training.context
    ends = tokens * _ends_per_token(training)
    per_layer = math.ceil((whole.activations - ends) / layers)
    held, held_copies, again, again_copies = per_layer * layers, whole.copies, 0, 0
    if tricks.checkpoint or tricks.offload:
        held = tokens * blocks.width * precision.stream * layers if tricks.checkpoint else 0
        held_copies, again, again_copies = 0, per_layer, whole.copies // layers
    forward_scores = 2 * whole.loss  # the product's scores and their logarithms
    if precision.scores > precision.product:  # and the wider copy that is made of them between the two
        forward_scores += tokens * blocks.vocabulary * precision.product
    at_loss = replace(fixed, gradients=before, activations=held + ends, copies=whole.copies)
    yield Peak("the loss, forward", replace(at_loss, loss=forward_scores))
    yield Peak("the loss, backward", replace(at_loss, copies=held_copies, loss=3 * whole.loss))
    hidden_gradients = 3 if blocks.gated else 1
    temporary = tokens * (
        blocks.width * precision.stream + hidden_gradients * blocks.active_hidden * precision.product
    )
    if precision.copies:  # gradients are 16-bit first, and converted to fp32 later
        temporary += tokens * blocks.width * 2 + blocks.width * blocks.hidden * 2
    embedding = head * precision.gradient
    first = min(embedding + blocks.width * blocks.hidden * precision.gradient, state.gradients)
    in_blocks = replace(fixed, temporary=temporary + lent)
    yield Peak(
        "the last block, backward",
        replace(
            in_blocks,
            gradients=before + math.ceil(first / gpus),
            activations=held + again,
            copies=held_copies + again_copies,
        ),
    )
    matrices = 2 if blocks.gated else 1  # of its MLP, without the last, whose gradient comes first
    later = (4 * blocks.width**2 + matrices * blocks.width * blocks.hidden) * precision.gradient
    yield Peak(
        "the first block, backward",
        replace(
            in_blocks,
            gradients=max(before, math.ceil(max(state.gradients - later, 0) / gpus)),
            activations=held // layers + again,
            copies=held_copies // layers + again_copies,
        ),
    )
    embedding_bytes = 0 if blocks.gated else math.ceil(embedding / gpus)  # it is added to that of the head
    streamed = tokens * blocks.width * precision.stream
    of_embedding = replace(fixed, gradients=gradients, temporary=embedding_bytes + lent + streamed)
    yield Peak("the embedding, backward", of_embedding)
    yield Peak("the optimizer", replace(fixed, gradients=gradients))
