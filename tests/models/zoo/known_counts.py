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
# With 10 classes; parameters and running statistics together, as Keras counts them.
TOTALS_OF_KERAS = {
    "inception_v3": 21823274,
    "resnet101v1": 42678666,
    "resnet101v2": 42647050,
    "resnet152v1": 58391434,
    "resnet152v2": 58352138,
    "resnet50v1": 23608202,
    "resnet50v2": 23585290,
    "vgg16": 14719818,
    "vgg19": 20029514,
    "xception": 20881970,
}
# With 1000 classes.
TOTALS_OF_TORCHVISION = {"alexnet": 61100840}
