"""ViT's counts: 224 x 224 RGB images; class token, positions and last norm, without a head."""

COUNTS = {
    "vit_tiny16": 5_524_416,
    "vit_small16": 21_665_664,
    "vit_b16": 85_798_656,
    "vit_b32": 87_455_232,
    "vit_l16": 303_301_632,
    "vit_l32": 305_510_400,
    "vit_h14": 630_764_800,
}
# Built in every run, with fewer layers.
BUILT = {"vit_tiny16": {"num_layers": 2}}
PAPERS = ("Dosovitskiy", "Touvron")
