"""Records the pixels that image processors of transformers make, for test/golden/image-processors.test.ts.

    python make-image-processors.py > image-processors.json      (transformers 5.24, Pillow)
"""

import base64
import io
import json
from pathlib import Path
from unittest import mock

import numpy as np
import transformers as hf
from PIL import Image

IMAGES = json.loads((Path(__file__).parent / "../fixtures/models/vision-images.json").read_text())
SQUARE = {"height": 8, "width": 8}
LARGER = {"height": 10, "width": 10}
CENTRED = {"crop_size": SQUARE, "do_center_crop": True}
RESIZE = Image.Image.resize
PROCESSORS = {
    "DeiT": hf.DeiTImageProcessorPil(size=LARGER, crop_size=SQUARE),
    "DeiT with one number": hf.DeiTImageProcessorPil(size=10, crop_size=8),
    "BEiT": hf.BeitImageProcessorPil(size={"height": 10, "width": 12}, **CENTRED),
    "EfficientNet": hf.EfficientNetImageProcessorPil(size=SQUARE, resample=0, rescale_factor=1 / 127.5, rescale_offset=True),
    "EfficientNet without top": hf.EfficientNetImageProcessorPil(size=SQUARE, resample=4, include_top=False),
    "LeViT": hf.LevitImageProcessorPil(size={"shortest_edge": 8}, crop_size=SQUARE),
    "MobileViT": hf.MobileViTImageProcessorPil(size={"shortest_edge": 10}, crop_size=SQUARE, resample=2),
    "MobileNetV2": hf.MobileNetV2ImageProcessorPil(size={"shortest_edge": 10}, crop_size=SQUARE),
    "PoolFormer": hf.PoolFormerImageProcessorPil(size={"shortest_edge": 8}, crop_size=SQUARE, crop_pct=0.8),
    "Swin": hf.ViTImageProcessorPil(size=SQUARE, resample=5),
    "DINOv2": hf.BitImageProcessorPil(size={"shortest_edge": 10}, crop_size=SQUARE),
}


def rows_first(image, size, *more, **named):
    """Rows and then columns, as torchvision and Pillow before 13 resize every image."""
    return RESIZE(RESIZE(image, (size[0], image.height), *more, **named), size, *more, **named)


def pixels(processor, file):
    image = Image.open(io.BytesIO(base64.b64decode(file))).convert("RGB")
    with mock.patch.object(Image.Image, "resize", rows_first):
        values = processor(image, return_tensors="np")["pixel_values"]
    return base64.b64encode(values.astype(np.float32).tobytes()).decode()


def settings(name, processor):
    """The file of a processor, which older files write with one number for a size."""
    written = json.loads(processor.to_json_string())
    if name == "DeiT with one number":
        written |= {"size": 10, "crop_size": 8, "feature_extractor_type": "DeiTFeatureExtractor"}
        del written["image_processor_type"]
    return written


print(json.dumps([{"name": name, "processor": settings(name, processor), "pixels": [pixels(processor, file) for file in IMAGES]}
                  for name, processor in PROCESSORS.items()]))
