"""Which types of models there are for which task."""

MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES = {"vit": "ViTForImageClassification"}
MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES = {"segformer": "SegformerForSemanticSegmentation"}
