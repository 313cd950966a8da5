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
