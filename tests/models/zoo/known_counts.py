"""How many parameters the models have."""

UNET_COUNTS = {"unet": 31030658, "unet_medical": 34512258}
SAME_COUNTS = {"unet_same": 31030658}
LARGE_COUNTS = {
    "resnet18": 11693736,
    "resnet34": 21801896,
    "resnet50": 25557032,
    "resnet101": 44549160,
    "resnet152": 60192808,
}
# With 10 classes and running statistics, as Keras counts them.
LIGHT_TOTALS = {
    "mobilenet": 3239114,
    "mobilenet_v2": 2270794,
    "mobilenet_v3_small": 944890,
    "mobilenet_v3_large": 3005962,
    "densenet121": 7047754,
    "densenet169": 12659530,
    "densenet201": 18341194,
    "efficientnet_b0": 4062381,
    "efficientnet_b1": 6588049,
    "efficientnet_b2": 7782659,
    "efficientnet_b3": 10798905,
}
