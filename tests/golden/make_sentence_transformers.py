"""Packs folders that sentence-transformers wrote, and its vectors, into one small file.

Command: python tests/golden/make_sentence_transformers.py FOLDER
    where FOLDER has the folders st (5.7.0) and st_2.7.0 of the archive
    sentence_transformers.tar.gz, whose models were made with torch.manual_seed(0).
"""

import base64
import gzip
import json
import sys
from pathlib import Path

import numpy as np

OLD = ("cross_encoder", "dense", "layernorm", "pool_two", "pool_weightedmean")


def main(source: Path) -> None:
    folders = [path for path in sorted((source / "st").iterdir()) if path.is_dir()]
    folders += [source / "st_2.7.0" / name for name in OLD]
    blobs: dict[str, int] = {}
    packed = {}
    for folder in folders:
        if folder.name.startswith("_"):
            continue
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        packed[f"{folder.parent.name}/{folder.name}"] = {
            "files": {
                str(path.relative_to(folder)): blobs.setdefault(
                    base64.b64encode(path.read_bytes()).decode(), len(blobs)
                )
                for path in files
                if path.name != "README.md"
            },
            "answers": np.load(folder.with_name(f"{folder.name}.npy")).tolist(),
        }
    text = json.dumps({"blobs": list(blobs), "folders": packed})
    file = Path(__file__).parent / "left_behind" / "sentence_transformers.json.gz"
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
