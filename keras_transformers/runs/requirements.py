"""Optional packages, looked for before a run starts rather than missed after an epoch."""

import importlib.util

__all__ = ["check_installed"]


def check_installed(*packages: str, extra: str) -> None:
    """Raises ValueError unless the packages of an extra in setup.cfg are installed."""
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} not installed: pip install 'keras-transformers[{extra}]'"
        )
