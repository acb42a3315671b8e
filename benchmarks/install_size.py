"""Prints what `pip install` brings into a fresh environment: packages, MB, who asks for them.

Usage:
    python benchmarks/install_size.py            # the package alone
    python benchmarks/install_size.py serving    # with extras
"""

import configparser
import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SMALL = 10  # megabytes: smaller packages share a line

# Runs in the fresh environment.
_LIST = """
import importlib.metadata, json, re

packages = {}
for each in importlib.metadata.distributions():
    files = [each.locate_file(file) for file in each.files or []]
    size = sum(file.stat().st_size for file in files if file.exists())
    needed = [line for line in each.requires or [] if "extra ==" not in line]
    names = [re.match(r"[\\w.-]+", line)[0].lower().replace("_", "-") for line in needed]
    packages[each.metadata["Name"]] = each.version, size / 1e6, names
print(json.dumps(packages))
"""


def main(extras: list[str]) -> None:
    """Installs into a temporary environment and prints a table."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    if unknown := [extra for extra in extras if extra not in config["options.extras_require"]]:
        sys.exit(f"no extra {', '.join(unknown)}: use those of setup.cfg")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--no-compile", target], check=True, cwd=folder
        )
        done = subprocess.run(
            [python, "-c", _LIST], check=True, cwd=folder, stdout=subprocess.PIPE, text=True
        )
    packages = json.loads(done.stdout)
    for name in ("pip", "setuptools", "wheel"):  # the environment's own
        packages.pop(name, None)
    total = sum(size for _, size, _ in packages.values())
    print(f"{len(packages)} packages, {total:,.0f} MB")
    print("| package | MB | asked for by |\n|---|--:|---|")
    small = {name: entry for name, entry in packages.items() if entry[1] < _SMALL}
    for name, (version, size, _) in sorted(packages.items(), key=lambda item: -item[1][1]):
        if name not in small:
            users = [user for user, entry in packages.items() if name.lower() in entry[2]]
            print(f"| {name} {version} | {size:,.0f} | {', '.join(sorted(users)) or '-'} |")
    print(f"| {len(small)} smaller ones | {sum(size for _, size, _ in small.values()):,.0f} | |")


if __name__ == "__main__":
    main(sys.argv[1:])
