"""Where the corpus is known to fail, and why: a check listed here has to fail, and a mend removes it."""

__all__ = ["KNOWN"]

_CUT = (
    "2 stages, zero-bubble",
    "2 stages, grouped",
    "2 stages, recomputed",
    "4 stages",
    "recomputation",
    "stages on ranks",
)
_SPLIT = ("2 stages", *_CUT)
_RUNS = ("again", "given", "continued", "captured")
_EVERYTHING = ("larger micro-batches", *_SPLIT, "replicas on ranks", *_RUNS)

# A cause, the checks that it fails, and the modules.
_ROWS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "the trace forgets the gradient mode",
        (*_SPLIT,),
        (
            "NoGradBlock FrozenBackboneNoGrad NoGradDecorator NoGradInABlock "
            "EnableGradInsideNoGrad InferenceModeBranch SetGradEnabledContext "
            "SetGradEnabledCalls"
        ),
    ),
    ("the trace forgets autocast", (*_SPLIT,), ("AutocastOn AutocastDecorator")),
    (
        "a recomputed pass of torch.utils.checkpoint counts as another use of a dropout layer",
        (*_SPLIT, "twin"),
        ("CheckpointDropout CheckpointSharedDropout CheckpointInABlock"),
    ),
    ("the reentrant kind of torch.utils.checkpoint cannot be traced", (*_SPLIT,), ("CheckpointReentrant")),
    (
        "the reentrant kind of torch.utils.checkpoint cannot be traced",
        (*_SPLIT, "twin"),
        ("CheckpointReentrantDropout"),
    ),
    (
        "the trace forgets hooks of the root and backward hooks",
        (*_SPLIT,),
        (
            "RootForwardHook RootForwardHookWithKwargs RootPreHookWithKwargs RootBackwardHook "
            "FullBackwardHook BackwardPreHook ContainerBackwardHook"
        ),
    ),
    ("a deep copy loses the hooks of parameters", ("given",), ("ParameterHook PostAccumulateHook")),
    (
        "complex values take no gradient across a cut",
        ("2 stages, grouped", "4 stages"),
        ("ComplexBetweenBlocks"),
    ),
    ("complex weights lose their imaginary part", ("torch",), ("ComplexParameter")),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        ("2 stages", "2 stages, zero-bubble", "4 stages", "recomputation", "stages on ranks", "torch"),
        ("CounterInPlace CounterThatIsNotSaved"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        ("2 stages, recomputed", "recomputation", "stages on ranks", "torch", "captured"),
        ("CounterAnew"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        ("torch",),
        ("CounterAtTheRoot"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        (
            "2 stages, recomputed",
            "recomputation",
            "stages on ranks",
            "larger micro-batches",
            "replicas on ranks",
            "torch",
            "continued",
        ),
        ("PythonCounter"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        (
            "2 stages, recomputed",
            "recomputation",
            "stages on ranks",
            "larger micro-batches",
            "replicas on ranks",
            "torch",
            "continued",
            "captured",
        ),
        ("PlainTensorAttribute"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        ("recomputation",),
        ("MovingCentre"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        ("2 stages", "2 stages, zero-bubble", "4 stages", "stages on ranks"),
        ("ClampedParameter"),
    ),
    (
        "state that a pass changes is not seen, or changed by a pass that only looks",
        ("2 stages, recomputed", "recomputation"),
        ("SpectralNorm SpectralNormHook"),
    ),
    ("recomputation leaves extra state out of checkpoints", ("recomputation",), ("ExtraState")),
    (
        "draws of Python and numpy are not seeded",
        (*_RUNS, "replicas on ranks"),
        ("PythonLayerDrop NumpyMixingAtTheRoot"),
    ),
    (
        "draws of Python and numpy are not seeded",
        (*_SPLIT, *_RUNS, "replicas on ranks"),
        ("PythonLayerDropInABlock NumpyNoise"),
    ),
    (
        "a generator of the model's own is not seen",
        (*_SPLIT, "larger micro-batches", "replicas on ranks", "continued", "captured"),
        ("OwnGenerator"),
    ),
    (
        "draws from torch's generator depend on the cut",
        ("2 stages, zero-bubble", "2 stages, grouped", "2 stages, recomputed", "4 stages", "stages on ranks"),
        (
            "RandInALeaf RandAtTheRoot RandnLike BernoulliInPlace BlockFunctionalDropout "
            "FunctionalDropout2d FunctionalAlphaDropout RandomPermutation"
        ),
    ),
    (
        "draws from torch's generator depend on the cut",
        (*_CUT,),
        (
            "RandInABlock RReluLayer GumbelGate DropoutSubclass "
            "TorchvisionStochasticDepthOfBatches LstmDropout SequenceFirstDropoutOdd"
        ),
    ),
    (
        "draws from torch's generator depend on the cut",
        (*_CUT, "larger micro-batches"),
        (
            "AlphaDropoutLayer FeatureAlphaDropoutLayer TimmDropPath "
            "TorchvisionStochasticDepth AttentionDropout AttentionDropoutSequenceFirst "
            "EncoderLayer"
        ),
    ),
    ("a layer that replaces another lacks its type and attributes", (*_EVERYTHING,), ("ReadsDropoutRate")),
    ("a layer that replaces another lacks its type and attributes", (*_SPLIT,), ("ChecksDropoutType")),
    (
        "a layer that replaces another lacks its type and attributes",
        ("larger micro-batches", "torch"),
        ("BatchNormInEval"),
    ),
    (
        "channels_last is forced on code that views",
        (*_EVERYTHING, "torch"),
        ("ViewFlatten WeightStandardisation"),
    ),
    ("channels_last is forced on a weight of 5 dimensions", (*_EVERYTHING, "torch"), ("OtherDimensions")),
    (
        "a branch on self.training cannot be split",
        (*_SPLIT,),
        (
            "CheckpointFunctionalDropout RootFunctionalDropout FunctionalRRelu "
            "ScaledDotProductDropout TrainingBranchAtTheRoot AuxiliaryOfABlock"
        ),
    ),
    (
        "code that uses sizes as numbers cannot be split",
        (*_SPLIT,),
        ("BranchOnStaticSize LoopOverSize ShapeAssert DimensionAssert SpatialTransformer"),
    ),
    ("an error of the trace ends in a traceback", (*_SPLIT,), ("TiedTransposed")),
    ("an error of the trace ends in a traceback", ("2 stages", "recomputation"), ("UnpoolIndices")),
    ("a model with the older weight norm cannot be copied", (*_EVERYTHING, "torch"), ("WeightNormHook")),
    (
        "the trace forgets autocast",
        ("16 bits, 2 stages", "16 bits, 4 stages", "16 bits, recomputation"),
        "AutocastOff",
    ),
)

KNOWN: dict[str, dict[str, str]] = {}
for _cause, _checks, _names in _ROWS:
    for _name in _names.split():
        KNOWN.setdefault(_name, {}).update(dict.fromkeys(_checks, _cause))
