"""Shapes of the in-tree models, and their floating-point operations by formula. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields

from .contract import Parameter

STEM_CHANNELS = 64
STAGE_WIDTHS = (64, 128, 256, 512)


@dataclass(frozen=True)
class ResNetShape:
    """A residual network after He et al. 2015, with the stride on the 3x3 convolution (v1.5)."""

    block: str
    """`basic` (two 3x3) or `bottleneck` (1x1, 3x3, 1x1 times four)."""
    stages: tuple[int, ...]
    """Blocks per stage."""
    image: int
    """Height and width in pixels."""
    classes: int

    @classmethod
    def described(cls, parameters: Mapping[str, Parameter]) -> ResNetShape:
        """The shape described by a size's parameters `model`, `image` and `classes`."""
        _, block, *stages = str(parameters["model"]).split("-")
        return cls(block, tuple(map(int, stages)), int(parameters["image"]), int(parameters["classes"]))

    def parameters(self) -> dict[str, Parameter]:
        """Those that describe it; the model `resnet-bottleneck-3-4-6-3` is ResNet-50."""
        model = f"resnet-{self.block}-{'-'.join(map(str, self.stages))}"
        return {"model": model, "image": self.image, "classes": self.classes}

    @property
    def expansion(self) -> int:
        """Output channels of a block over its width."""
        return 4 if self.block == "bottleneck" else 1


@dataclass(frozen=True)
class TextShape:
    """A GPT-2 style decoder (pre-norm, head tied to the embedding) or a BERT-style classifier (post-norm,
    scores of `[CLS]`), both with learned positions, or a language model of stacked LSTM layers.
    """

    layers: int
    heads: int
    """0 for an LSTM, which has no attention."""
    width: int
    context: int
    """Tokens of every text."""
    vocabulary: int
    classes: int = 0
    """0 for a language model, which scores tokens."""

    @classmethod
    def described(cls, parameters: Mapping[str, Parameter]) -> TextShape:
        """The shape described by a size's parameters of these names."""
        return cls(**{one.name: int(parameters.get(one.name, 0)) for one in fields(cls)})

    def parameters(self) -> dict[str, Parameter]:
        """Those that describe it."""
        return {name: value for name, value in asdict(self).items() if value}


def _convolutions(shape: ResNetShape) -> Iterator[tuple[int, int]]:
    """FLOPs and numbers put out by the forward pass of each convolution, the stem's first, for one image."""

    def conv(out_pixels: int, kernel: int, channels_in: int, channels_out: int) -> tuple[int, int]:
        numbers_out = out_pixels**2 * channels_out
        return 2 * numbers_out * kernel**2 * channels_in, numbers_out

    pixels = shape.image // 2
    yield conv(pixels, 7, 3, STEM_CHANNELS)
    pixels //= 2
    channels = STEM_CHANNELS
    for stage, (width, blocks) in enumerate(zip(STAGE_WIDTHS, shape.stages, strict=True)):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            out_pixels, out_channels = pixels // stride, width * shape.expansion
            if shape.block == "bottleneck":
                yield conv(pixels, 1, channels, width)
                yield conv(out_pixels, 3, width, width)
                yield conv(out_pixels, 1, width, out_channels)
            else:
                yield conv(out_pixels, 3, channels, width)
                yield conv(out_pixels, 3, width, width)
            if stride != 1 or channels != out_channels:
                yield conv(out_pixels, 1, channels, out_channels)
            pixels, channels = out_pixels, out_channels


def resnet_forward_flops(shape: ResNetShape) -> int:
    """Multiply-adds counted as two, of one image's scores. Norms and activations are not counted."""
    convolutions = sum(flops for flops, _ in _convolutions(shape))
    return convolutions + 2 * STAGE_WIDTHS[-1] * shape.expansion * shape.classes


def resnet_training_flops(shape: ResNetShape) -> int:
    """Multiply-adds counted as two, of one image's forward and backward pass.

    A layer's backward pass costs twice its forward pass: the gradients of its weights and of its input.
    Images need no gradient, so the stem does only half of that. Norms and activations are not counted.
    """
    stem_flops, _ = next(_convolutions(shape))
    return 3 * resnet_forward_flops(shape) - stem_flops


def resnet_traffic_bytes(shape: ResNetShape, *, trains: bool) -> int:
    """About what one image moves with `amp`: 12 bytes per number that a convolution puts out, 38 in training.

    The convolution writes it, the norm and the activation read and write it, and the next convolution reads
    it, in 2 bytes each; in training the norm reads it twice, and the backward pass moves 24 bytes more.
    """
    return (38 if trains else 12) * sum(numbers_out for _, numbers_out in _convolutions(shape))


def resnet_operators(shape: ResNetShape, *, trains: bool) -> int:
    """Operators of a batch's scores, or of a training step with SGD.

    With norm and activation they are 3 or 4 for each convolution, 16 in training; twice as many are stated,
    since a convolution takes the host as long as several others.
    """
    convolutions = len(list(_convolutions(shape)))
    return (32 if trains else 7) * convolutions


def gpt_training_flops(shape: TextShape) -> int:
    """FLOPs of one sequence's forward and backward pass: 6 N per token and 12 L d T for attention.

    N are the weights that are multiplied (the embedding counts once, as the head). Attention is counted
    over the full square, as is usual, though a causal kernel may skip half of it.
    Source: PaLM, arXiv 2204.02311, appendix B.
    """
    weights = 12 * shape.layers * shape.width**2 + shape.vocabulary * shape.width
    attention = 12 * shape.layers * shape.width * shape.context
    return shape.context * (6 * weights + attention)


def encoder_forward_flops(shape: TextShape) -> int:
    """FLOPs of one text's scores: 24 L d² per token, 4 L T² d for attention, and the head on one token.

    A layer multiplies each token with 12 d² weights: 4 d² in attention, 8 d² in an MLP four times as wide.
    """
    tokens = 24 * shape.layers * shape.width**2 * shape.context
    attention = 4 * shape.layers * shape.width * shape.context**2
    return tokens + attention + 2 * shape.width * (shape.width + shape.classes)


@dataclass(frozen=True)
class LlamaShape:
    """A Llama-2 style decoder: pre-norm RMS, rotary positions, gated MLP, a separate head, no biases."""

    layers: int
    heads: int
    width: int
    hidden: int
    """Width of the MLP."""
    vocabulary: int
    cache: int
    """Tokens that its key-value cache can hold; all of it is read for every token."""

    @property
    def multiplied_weights(self) -> int:
        """Weights that every token is multiplied with: all but the embedding, of which one row is read."""
        layer = 4 * self.width**2 + 3 * self.width * self.hidden
        return self.layers * layer + self.vocabulary * self.width


def decode_flops(shape: LlamaShape, batch: int) -> int:
    """FLOPs of one more token for each sequence: 2 per weight, and 4 L d per place in the cache."""
    return batch * (2 * shape.multiplied_weights + 4 * shape.layers * shape.width * shape.cache)


def decode_bytes(shape: LlamaShape, batch: int, bytes_per_number: int) -> int:
    """Bytes that one more token for each sequence must read: every weight once, and both whole caches.

    Norms, embedding rows and what is written are left out: together less than 1 %.
    """
    cache = 2 * shape.layers * shape.width * shape.cache
    return bytes_per_number * (shape.multiplied_weights + batch * cache)


def lstm_training_flops(shape: TextShape) -> int:
    """FLOPs of one sequence's forward and backward pass: 3 times 16 d² per token and layer, and the head.

    A layer multiplies each token and its own last state with 4 d² weights each. The first state is 0 and
    needs no gradient, which saves each layer one of its products with the state.
    """
    layer = 16 * shape.width**2
    head = 2 * shape.width * shape.vocabulary
    first_states = shape.layers * layer // 2
    return 3 * shape.context * (shape.layers * layer + head) - first_states


STYLE_CONVOLUTIONS = (
    # kernel, channels in, channels out, and the share of a frame's pixels it runs on
    (9, 3, 32, 1),
    (3, 32, 64, 1 / 4),
    (3, 64, 128, 1 / 16),
    *((3, 128, 128, 1 / 16),) * 10,
    (3, 128, 64, 1 / 4),
    (3, 64, 32, 1),
    (9, 32, 3, 1),
)
"""Of the transformation network of real-time style transfer: arXiv 1603.08155, with nearest-neighbour
upsampling instead of transposed convolutions, and instance norms. Two that halve the frame, five residual
blocks of two, two after an upsampling, and the two ends."""


def style_flops(height: int, width: int) -> int:
    """FLOPs of one frame: 2 for each of the 153,792 multiply-adds a pixel costs."""
    per_pixel = sum(2 * k * k * a * b * share for k, a, b, share in STYLE_CONVOLUTIONS)
    return int(per_pixel) * height * width
